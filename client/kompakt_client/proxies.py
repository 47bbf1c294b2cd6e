"""Which proxy the environment names for a server: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and what NO_PROXY takes out.

Small letters go before capital ones. As for kubectl, this machine's own addresses are never asked through a proxy.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from kompakt_core.errors import InvalidInput

_PORTS: Final = {"http": 80, "https": 443}
EXPECTED: Final = "expected http://HOST:PORT or https://HOST:PORT"  # never with the value: it may hold a password


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """URL of the proxy for requests to `server`; empty where there is none. Raises InvalidInput for one of another kind."""
    try:
        url = urlsplit(server)
        host, port = url.hostname or "", url.port or _PORTS.get(url.scheme, 0)
    except ValueError:
        raise InvalidInput("server: expected a URL such as https://10.0.0.1:6443") from None
    for name in (f"{url.scheme}_proxy", "all_proxy"):
        if found := _variable(environment, name):
            return "" if bypassed(host, port, _variable(environment, "no_proxy")) else proxy_url(found, name.upper())
    return ""


def proxy_url(text: str, name: str) -> str:
    """A proxy's URL as given for `name`; without a scheme it is http. Raises InvalidInput for other schemes, such as SOCKS."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname and parts.port != 0:
            return url
    except ValueError:  # a port that is no number
        pass
    raise InvalidInput(f"{name}: {EXPECTED}")


def bypassed(host: str, port: int, rules: str) -> bool:
    """Whether `rules`, separated by commas, say that this host is asked without a proxy."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(rule.strip().lower(), host.lower(), port, address) for rule in rules.split(",") if rule.strip())


def _matches(rule: str, host: str, port: int, address: IPv4Address | IPv6Address | None) -> bool:
    """`*`, an address, a range of addresses, a name with all below it, or `.name` for what is below; each with a port or none."""
    if rule == "*":
        return True
    if (named := _address(rule.strip("[]"))) is not None:
        return named == address
    if "/" in rule:
        return address is not None and _within(address, rule)
    name, colon, wanted = rule.rpartition(":")
    if colon and wanted != str(port):
        return False
    name = (name if colon else rule).strip("[]").removeprefix("*")
    if (named := _address(name)) is not None:
        return named == address
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _within(address: IPv4Address | IPv6Address, text: str) -> bool:
    try:
        return address in ip_network(text, strict=False)
    except ValueError:
        return False


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _variable(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.upper()) or "").strip()
