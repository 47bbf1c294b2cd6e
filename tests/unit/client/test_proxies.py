"""Which proxy the environment names, and which servers it takes out."""

import pytest

from kompakt_client.proxies import bypassed, proxy_for
from kompakt_core.errors import InvalidInput

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environment", "found"),
    [
        ("https://api:6443", {}, ""),
        ("https://api:6443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api:6443", {"https_proxy": "https://small:1", "HTTPS_PROXY": PROXY}, "https://small:1"),
        ("https://api:6443", {"HTTP_PROXY": PROXY}, ""),
        ("http://api:6443", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://api:6443", {"ALL_PROXY": PROXY}, PROXY),
        ("https://api:6443", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ("https://api:6443", {"HTTPS_PROXY": " "}, ""),
        ("https://api:6443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "other, api"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://api", {"HTTPS_PROXY": PROXY, "NO_PROXY": "api:443"}, ""),
    ],
)
def test_the_environment_names_a_proxy(server: str, environment: dict[str, str], found: str) -> None:
    assert proxy_for(server, environment) == found


@pytest.mark.parametrize(
    "value", ["socks5://me:very-secret@proxy:1080", "http://", "http://me:very-secret@proxy:port", "http://[x"]
)
def test_another_kind_of_proxy_is_refused_without_its_password(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^HTTPS_PROXY: expected http://HOST:PORT") as refused:
        proxy_for("https://api", {"HTTPS_PROXY": value})
    assert "very-secret" not in str(refused.value)


@pytest.mark.parametrize("server", ["https://api:port", "https://[x"])
def test_a_server_that_is_no_url_is_refused(server: str) -> None:
    with pytest.raises(InvalidInput, match="server: expected a URL"):
        proxy_for(server, {"HTTPS_PROXY": PROXY})


@pytest.mark.parametrize(
    ("host", "rules", "out"),
    [
        ("api.example.com", "", False),
        ("api.example.com", "*", True),
        ("api.example.com", "example.com", True),
        ("example.com", "example.com", True),
        ("API.Example.com", "EXAMPLE.com", True),
        ("badexample.com", "example.com", False),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("example.com", ".example.com", False),
        ("api.example.com", "example.com:6443", True),
        ("api.example.com", "example.com:443", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:6443", True),
        ("10.1.2.3", "10.1.2.3:80", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.0.0.0/99", False),
        ("api", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]:6443", True),
        ("localhost", "", True),
        ("127.0.0.9", "", True),
        ("::1", "", True),
    ],
)
def test_who_is_asked_without_a_proxy(host: str, rules: str, out: bool) -> None:
    assert bypassed(host, 6443, rules) is out
