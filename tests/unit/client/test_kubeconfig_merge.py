"""Several kubeconfigs as one: who goes first, where paths begin, and what is refused with the name of its file."""

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_client.kubeconfig import Pem, access_of
from kompakt_client.kubeconfig_merge import KubeconfigFile, merged
from kompakt_core.errors import InvalidInput


def cluster(name: str, host: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cluster": {"server": f"https://{host}", **more}}


def context(name: str, **names: str) -> dict[str, Any]:
    return {"name": name, "context": {"cluster": "c", "user": "u", **names}}


def file(path: str, **document: Any) -> KubeconfigFile:
    return KubeconfigFile(path, yaml.safe_dump({key.replace("_", "-"): value for key, value in document.items()}))


def test_the_first_file_that_says_something_counts() -> None:
    first = file("/a/config", clusters=[cluster("c", "first")], contexts=[context("x", namespace="one")])
    second = file(
        "/b/config",
        current_context="x",
        clusters=[cluster("c", "second"), cluster("d", "third")],
        contexts=[context("x", namespace="two"), context("y", cluster="d")],
        users=[{"name": "u", "user": {"token": "t"}}],
    )
    last = file("/c/config", current_context="y")
    found = access_of(merged([first, second, last]))
    assert (found.server, found.namespace, found.token) == ("https://first", "one", "t")
    assert access_of(merged([first, second, last]), "y").server == "https://third"
    assert access_of(merged([second, first])).server == "https://second"


def test_paths_begin_where_their_file_lies() -> None:
    user = {"client-certificate": "me.crt", "client-key": "/keys/me.key", "tokenFile": "../token"}
    files = [
        file(
            "/a/config",
            current_context="x",
            contexts=[context("x")],
            clusters=[cluster("c", "h", **{"certificate-authority": "ca"})],
        ),
        file("/b/config", users=[{"name": "u", "user": user}]),
    ]
    found = access_of(merged(files))
    assert (found.authority, found.certificate, found.key) == (Pem(path="/a/ca"), Pem(path="/b/me.crt"), Pem(path="/keys/me.key"))
    assert found.token_file == "/b/../token"


@pytest.mark.parametrize(("command", "found"), [("aws", "aws"), ("./login", "/b/login"), ("/bin/login", "/bin/login")])
def test_a_program_with_a_slash_lies_beside_its_file(command: str, found: str) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
    one = file("/b/config", users=[{"name": "u", "user": {"exec": program}}])
    two = file("/a/config", current_context="x", contexts=[context("x")], clusters=[cluster("c", "h")])
    read = access_of(merged([one, two])).program
    assert read is not None
    assert read.command == found


def test_an_empty_file_says_nothing_and_nulls_are_absent() -> None:
    whole = file("/a/config", current_context="x", contexts=[context("x", user="")], clusters=[cluster("c", "h")], users=None)
    assert access_of(merged([KubeconfigFile("/e", ""), whole])).server == "https://h"
    assert merged([]) == {"current-context": "", "clusters": [], "contexts": [], "users": []}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "/bad: no YAML"),
        ("7", "/bad: : expected an object, got 7"),
        ("clusters: {}", "/bad: clusters: expected a list, got {}"),
        ("clusters: text", "/bad: clusters: expected a list"),
        ("users: [3]", "/bad: users[0]: expected an object, got 3"),
        ("contexts: [{name: 4}]", "/bad: contexts[0].name: expected text, got 4"),
        ("current-context: []", "/bad: current-context: expected text, got []"),
    ],
)
def test_a_bad_file_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        merged([file("/good", clusters=[cluster("c", "h")]), KubeconfigFile("/bad", text)])
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    "held", [{"cluster": 3}, {}, {"cluster": {"server": 3}}, {"cluster": {"server": "https://h", "certificate-authority": 3}}]
)
def test_what_is_wrong_inside_is_left_for_the_reader(held: dict[str, Any]) -> None:
    document = merged([file("/a", current_context="x", contexts=[context("x", user="")], clusters=[{"name": "c", **held}])])
    with pytest.raises(InvalidInput, match=r"clusters\[0\]"):
        access_of(document)


_NAMES = st.sampled_from(
    ["current-context", "contexts", "clusters", "users", "name", "user", "cluster", "exec", "command", "tokenFile"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(_JSON, max_size=3))
def test_any_files_are_merged_or_refused(documents: list[Any]) -> None:
    with contextlib.suppress(InvalidInput):
        access_of(merged(KubeconfigFile(f"/{i}", yaml.safe_dump(document)) for i, document in enumerate(documents)))


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3), max_size=4))
def test_of_each_name_the_first_one_stays(lists: list[list[str]]) -> None:
    files = [file(f"/{i}", clusters=[cluster(name, f"{i}-{j}") for j, name in enumerate(names)]) for i, names in enumerate(lists)]
    found = {one["name"]: one["cluster"]["server"] for one in merged(files)["clusters"]}
    every = [(name, f"https://{i}-{j}") for i, names in enumerate(lists) for j, name in enumerate(names)]
    assert found == {name: next(server for other, server in every if other == name) for name, _ in every}
