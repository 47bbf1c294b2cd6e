"""Which files, contexts, proxies and pods a command that a person starts goes by."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kompakt_client import connections, credentials, kubeconfig
from kompakt_client.connections import find_as_kubectl
from kompakt_client.requests import ApiRequest
from kompakt_client.transport import connect_as_kubectl
from kompakt_core.errors import InvalidInput
from tests.support.client.api_server import serving
from tests.support.client.kubeconfigs import write_kubeconfig


def write(path: Path, name: str, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with one context of that name, current; its server is called like it."""
    return write_kubeconfig(
        path, f"http://{name}", name=name, cluster=cluster, user=user or {"token": name}, namespace=f"of-{name}"
    )


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the machine that the tests run on counts."""
    variables = [f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL", "NO")]
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", *variables, *map(str.lower, variables)]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def found(*arguments: str | None) -> tuple[str, str]:
    endpoint, namespace = find_as_kubectl(*arguments)
    return endpoint.server, namespace


def test_the_flag_goes_before_the_variable_before_the_file_at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".kube/config", "home")
    assert found() == ("http://home", "of-home")
    monkeypatch.setenv("KUBECONFIG", str(write(home / "variable", "variable")))
    assert found() == ("http://variable", "of-variable")
    assert found(str(write(home / "flag", "flag"))) == ("http://flag", "of-flag")
    assert found("~/flag") == ("http://flag", "of-flag")
    monkeypatch.setenv("KUBECONFIG", "")
    assert found() == ("http://home", "of-home")


def test_several_files_are_merged_and_those_that_are_not_there_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "b").mkdir()
    (home / "b/token").write_text("beside b")
    paths = [home / "gone", write(home / "a", "a"), write(home / "b/config", "b", user={"tokenFile": "token"})]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    assert found() == ("http://a", "of-a")
    assert found(None, "b") == ("http://b", "of-b")
    assert find_as_kubectl(None, "b")[0].headers() == {"Authorization": "Bearer beside b"}
    assert found(f"{paths[2]}:{paths[1]}") == ("http://b", "of-b")


def test_relative_paths_begin_at_the_working_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("mine")
    write(home / "config", "here", user={"tokenFile": "token"})
    monkeypatch.chdir(home)
    endpoint, _ = find_as_kubectl("config")
    monkeypatch.chdir("/")
    assert endpoint.headers() == {"Authorization": "Bearer mine"}


def test_without_any_file_the_pods_own_cluster_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("mounted")
    (home / "namespace").write_text("ml\n")
    account = kubeconfig.Access("https://10.0.0.1:443", token_file=str(home / "token"))
    monkeypatch.setattr(kubeconfig, "in_pod", lambda environment: account)
    monkeypatch.setattr(connections, "ACCOUNT_FOLDER", str(home))
    assert found() == ("https://10.0.0.1:443", "ml")
    (home / "namespace").unlink()
    assert found() == ("https://10.0.0.1:443", "default")
    write(home / ".kube/config", "home")
    assert found() == ("http://home", "of-home")


def test_where_nothing_can_be_used_the_places_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=rf"there is no {home}/\.kube/config; not inside a cluster"):
        find_as_kubectl()
    with pytest.raises(InvalidInput, match=r"\.kube/config, where context 'x' could stand"):
        find_as_kubectl(None, "x")
    monkeypatch.setenv("KUBECONFIG", "/gone/1:/gone/2")
    with pytest.raises(InvalidInput, match="there is no /gone/1 or /gone/2; not inside"):
        find_as_kubectl()
    with pytest.raises(InvalidInput, match="No such file or directory: '/gone/3'"):
        find_as_kubectl("/gone/3")
    path = write(home / "config", "a")
    with pytest.raises(InvalidInput, match=f"{path}: contexts: none is called 'x'; there are: a"):
        find_as_kubectl(str(path), "x")
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InvalidInput):
        find_as_kubectl(str(path))


def test_a_password_is_sent_as_http_knows_it(home: Path) -> None:
    path = write(home / "config", "a", user={"username": "ann", "password": "pässword"})
    assert find_as_kubectl(str(path))[0].headers() == {"Authorization": "Basic YW5uOnDDpHNzd29yZA=="}


def test_requests_go_through_the_proxy_of_kubeconfig_or_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        proxy.answers = [(200, {})]
        address = proxy.address.removeprefix("http://")

        def asked(path: Path) -> tuple[str, str | None]:
            client, _ = connect_as_kubectl(str(path), None)
            client.answer(ApiRequest("GET", "/x"))
            client._endpoint.pool.clear()
            _, target, headers, _ = proxy.asked[-1]
            return target, {name.lower(): value for name, value in headers.items()}.get("proxy-authorization")

        named = write(home / "a", "a.example", cluster={"proxy-url": f"http://me:x%20y@{address}"})
        assert asked(named) == ("http://a.example/x", "Basic bWU6eCB5")
        monkeypatch.setenv("HTTP_PROXY", address)
        assert asked(write(home / "b", "b.example")) == ("http://b.example/x", None)


def test_a_program_may_use_the_terminal_only_where_one_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Always"}
    path = str(write(home / "config", "a", user={"exec": program}))
    with pytest.raises(InvalidInput, match="interactiveMode: this program must ask a person"):
        find_as_kubectl(path)
    started: list[dict[str, Any]] = []

    def run(command: list[str], **more: Any) -> "subprocess.CompletedProcess[bytes]":
        started.append({"command": command, **more})
        said = b'{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'
        return subprocess.CompletedProcess(command, 0, said, None)

    monkeypatch.setattr(connections.sys.stdin, "isatty", lambda: True, raising=False)  # type: ignore[attr-defined]
    monkeypatch.setattr(credentials.subprocess, "run", run)  # type: ignore[attr-defined]
    assert find_as_kubectl(path)[0].headers() == {"Authorization": "Bearer t"}
    assert started[0]["command"] == [str(home / "login")]
    assert (started[0]["stdin"], started[0]["stderr"]) == (None, None)
    assert '"interactive": true' in started[0]["env"]["KUBERNETES_EXEC_INFO"]
