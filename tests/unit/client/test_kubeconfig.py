"""What a kubeconfig says, what goes before what, and what is refused."""

import contextlib
from base64 import b64encode
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_client.kubeconfig import Access, LoginProgram, Pem, access_of, in_pod, parsed, read
from kompakt_core.errors import InvalidInput

PROGRAM = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}


def written(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> str:
    return yaml.safe_dump(
        {
            "current-context": "here",
            "contexts": [
                {"name": "there", "context": {"cluster": "far", "user": "other"}},
                {"name": "here", "context": {"cluster": "near", "user": "me", "namespace": "x"}},
            ],
            "clusters": [{"name": "near", "cluster": {"server": "https://10.0.0.1:6443/", **(cluster or {})}}],
            "users": [{"name": "me", "user": user or {}}],
            **top,
        }
    )


def test_the_current_context_leads_to_its_cluster_and_user() -> None:
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"}
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    assert read(written(cluster, user)) == Access(
        "https://10.0.0.1:6443",
        Pem(path="ca.crt"),
        Pem(path="me.crt"),
        Pem(path="me.key"),
        server_name="kubernetes",
        namespace="x",
    )


def test_data_goes_before_files_and_both_tokens_are_known() -> None:
    data = {"certificate-authority": "ca.crt", "certificate-authority-data": b64encode(b"-----BEGIN").decode()}
    found = read(written(data, {"token": "t", "tokenFile": "f"}))
    assert found.authority == Pem(text="-----BEGIN")
    assert (found.token, found.token_file) == ("t", "f")


def test_a_context_without_a_user_asks_as_nobody() -> None:
    contexts = [{"name": "here", "context": {"cluster": "near"}}]
    assert read(written(contexts=contexts)) == Access("https://10.0.0.1:6443")


def test_a_program_that_logs_in_is_read_whole() -> None:
    program = PROGRAM | {
        "args": ["eks", "get-token"],
        "env": [{"name": "AWS_PROFILE", "value": "p"}],
        "installHint": "install it",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    info = {"cluster": {"server": "https://10.0.0.1:6443"}}
    wanted = LoginProgram("aws", PROGRAM["apiVersion"], ("eks", "get-token"), {"AWS_PROFILE": "p"}, "install it", info)
    assert read(written(user={"exec": program})).program == wanted


def test_another_context_is_found_by_its_name() -> None:
    contexts = [
        {"name": "here", "context": {"cluster": "near"}},
        {"name": "b", "context": {"cluster": "near", "namespace": "ml"}},
    ]
    assert read(written(contexts=contexts)).namespace == "default"
    assert read(written(contexts=contexts), "b").namespace == "ml"


def test_only_an_explicit_word_switches_verification_off() -> None:
    assert read(written()).verify
    assert not read(written({"insecure-skip-tls-verify": True})).verify


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected an object"),
        ("{", "no YAML"),
        ("a: 2001-99-99", "no YAML"),
        ("current-context: here", "contexts: none is called 'here'; there are: none"),
        (written(**{"current-context": "gone"}), "none is called 'gone'; there are: there, here"),
        (written(**{"current-context": "there"}), "clusters: none is called 'far'; there are: near"),
        (written(users=[]), "users: none is called 'me'"),
        (written({"server": "10.0.0.1"}), "server: expected a URL"),
        (written({"server": ""}), "server: expected a URL"),
        (written({"proxy-url": "socks5://proxy:1080"}), "cluster.proxy-url: expected http://HOST:PORT"),
        (written({"proxy-url": "http://proxy:many"}), "cluster.proxy-url: expected http://HOST:PORT"),
        (written({"extensions": {}}), "cluster.extensions: expected a list"),
        (written({"certificate-authority-data": "%"}), "certificate-authority-data: expected the base64 form"),
        (written({"insecure-skip-tls-verify": "no"}), "insecure-skip-tls-verify: expected true or false"),
        (written(user={"exec": {"command": "aws"}}), "user.exec.apiVersion: is required"),
        (written(user={"exec": PROGRAM | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}}), "exec.apiVersion: expected"),
        (written(user={"exec": PROGRAM | {"interactiveMode": "Always"}}), "interactiveMode: this program must ask a person"),
        (written(user={"exec": PROGRAM | {"args": [7]}}), "user.exec.args[0]: expected text, got 7"),
        (written(user={"exec": PROGRAM | {"arg": []}}), "user.exec.arg: unknown field"),
        (written(user={"auth-provider": {"name": "oidc"}}), "auth-provider: Kubernetes knows it no more"),
        (written(user={"username": "me"}), "user.password: is required beside"),
        (written(user={"password": "x"}), "user.username: is required beside"),
        (written(user={"as-groups": ["a"]}), "user.as: is required beside as-groups"),
        (written(user={"as": "jane\r\nX: y"}), "user.as: expected Impersonate-User without control characters"),
        (written(user={"as": "jane", "as-groups": [7]}), "user.as-groups[0]: expected text, got 7"),
        (written(user={"as": "jane", "as-user-extra": {"scopes": "a"}}), "user.as-user-extra.scopes: expected a list"),
        (written(user={"as": "jane", "as-user-extra": {7: ["a"]}}), "user.as-user-extra: expected at most 1000 keys, each text"),
        (written(user={"client-certificate": "me.crt"}), "client-key: is required"),
        (written(user={"client-key": "me.key"}), "client-certificate: is required"),
        (written(clusters={"near": {}}), "clusters: expected a list"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(text)
    assert said in str(refused.value)


def test_a_password_and_a_proxy_are_read() -> None:
    found = read(written({"proxy-url": "http://me:x@proxy:3128"}, {"username": "me", "password": "x"}))
    assert (found.username, found.password, found.proxy) == ("me", "x", "http://me:x@proxy:3128")


def test_one_may_ask_in_the_name_of_somebody_else() -> None:
    user = {"as": "jäne", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"example.org/Team x": ["ml", "ops"]}}
    assert read(written(user=user)).impersonation == (
        ("Impersonate-User", "j\xc3\xa4ne"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.org%2FTeam%20x", "ml"),
        ("Impersonate-Extra-example.org%2FTeam%20x", "ops"),
    )
    assert read(written(user={"as": "", "as-groups": []})).impersonation == ()


def test_a_program_may_ask_where_a_person_sits_and_learns_its_clusters_settings() -> None:
    settings = [{"name": "other", "extension": 1}, {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    program = PROGRAM | {"interactiveMode": "Always", "provideClusterInfo": True}
    found = access_of(parsed(written({"extensions": settings}, {"exec": program})), person=True).program
    assert found is not None
    assert found.interactive
    assert found.cluster_info["cluster"]["config"] == {"audience": "a"}
    never = access_of(parsed(written(user={"exec": PROGRAM | {"interactiveMode": "Never"}})), person=True).program
    assert never is not None
    assert not never.interactive


@pytest.mark.parametrize("proxy", ["socks5://me:very-secret@proxy", "http://me:very-secret@:0"])
def test_no_proxys_password_stands_in_a_refusal(proxy: str) -> None:
    with pytest.raises(InvalidInput, match="proxy-url") as refused:
        read(written({"proxy-url": proxy}))
    assert "very-secret" not in str(refused.value)


def test_no_secret_stands_in_a_refusal() -> None:
    with pytest.raises(InvalidInput) as refused:
        read(written(user={"token": "very-secret", "password": "very-secret", "client-key-data": "very-secret!"}))
    assert "very-secret" not in str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "user", "cluster", "token"]), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["current-context", "contexts", "clusters", "users"]), _JSON))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidInput):
        assert isinstance(read(written(**document)), Access)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        read(text)


def test_a_pod_finds_its_cluster_in_its_environment() -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_pod(environment, "/account")
    assert found == Access("https://10.96.0.1:443", Pem(path="/account/ca.crt"), token_file="/account/token")
    assert in_pod({**environment, "KUBERNETES_SERVICE_HOST": "fd00::1"}).server == "https://[fd00::1]:443"


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT": "443"}])
def test_outside_a_pod_says_so(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="not inside a cluster"):
        in_pod(environment)
