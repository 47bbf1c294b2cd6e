"""The control plane as data: addresses land where they must, keys fit together."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from tools.kube.components import Addresses, Component, control_plane, make_keys, node_kubeconfig
from tools.kube.kwok import STAGES, node
from tools.kube.pki import new_authority, token_kubeconfig

# What the API server reads of a client certificate: user and groups.
NAMES = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)


def find(name: str) -> Path:
    return Path("/bin") / name


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def started(folder: Path, addresses: Addresses, **more: Any) -> list[Component]:
    return control_plane(find, addresses, make_keys(folder / "pki", addresses), folder, **more)


def test_components_come_in_start_order_with_their_addresses(tmp_path: Path) -> None:
    addresses = Addresses(host="10.199.0.1", api_host="10.199.0.1", api_bind="0.0.0.0", etcd=1, etcd_peer=2, api=3)
    more = {"kube-apiserver": ("--enable-aggregator-routing=true",)}
    components = started(tmp_path, addresses, more=more)
    assert [c.name for c in components] == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    server = components[1].argv
    assert {"--etcd-servers=http://10.199.0.1:1", "--bind-address=0.0.0.0", "--advertise-address=10.199.0.1"} < set(server)
    assert server[-1] == "--enable-aggregator-routing=true"
    assert not any("endpoint-reconciler" in argument for argument in server)


def test_a_loopback_server_keeps_no_endpoints_of_the_service(tmp_path: Path) -> None:
    assert "--endpoint-reconciler-type=none" in started(tmp_path, Addresses())[1].argv


def test_nothing_answers_before_it_was_started(tmp_path: Path) -> None:
    addresses = Addresses(etcd=1, api=1, controller_manager=1, scheduler=1)
    assert [c.ready() for c in started(tmp_path, addresses)] == [False] * 4


def test_the_server_certificate_names_all_its_addresses(tmp_path: Path) -> None:
    keys = make_keys(tmp_path, Addresses(api_host="10.199.0.1"), more_hosts=("10.199.0.254",))
    names = certificate(keys.api.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(ip) for ip in names.get_values_for_type(x509.IPAddress)} == {
        "10.96.0.1",
        "10.199.0.1",
        "127.0.0.1",
        "10.199.0.254",
    }
    assert "kubernetes.default.svc.cluster.local" in names.get_values_for_type(x509.DNSName)


def test_a_nodes_identity_is_what_the_node_authorizer_expects(tmp_path: Path) -> None:
    addresses = Addresses()
    keys = make_keys(tmp_path, addresses)
    document = yaml.safe_load(node_kubeconfig(keys, addresses, "node-1").read_text())
    subject = certificate(Path(document["users"][0]["user"]["client-certificate"])).subject
    names = {name: [found.value for found in subject.get_attributes_for_oid(name)] for name in NAMES}
    assert names == {NameOID.COMMON_NAME: ["system:node:node-1"], NameOID.ORGANIZATION_NAME: ["system:nodes"]}
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"


def test_no_certificate_has_an_empty_list_of_names(tmp_path: Path) -> None:
    """Go refuses such a critical extension as one it cannot handle: the API server then answers Unauthorized."""
    make_keys(tmp_path, Addresses())
    issued = [path for path in tmp_path.glob("*.crt") if path.name != "ca.crt"]
    assert len(issued) == 5
    for path in issued:
        assert list(certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    make_keys(tmp_path, Addresses())
    secret = [path for path in tmp_path.iterdir() if path.suffix in {".key", ".kubeconfig"}]
    assert secret
    assert {oct(path.stat().st_mode & 0o077) for path in secret} == {"0o0"}


def test_a_certificate_of_the_authority_is_trusted_and_fits_its_key(tmp_path: Path) -> None:
    authority = new_authority(tmp_path / "a")
    signed = authority.server("server", "server", ["localhost", "127.0.0.1"])
    ssl.create_default_context(cafile=str(authority.certificate_file)).load_cert_chain(signed.certificate, signed.key)
    certificate(signed.certificate).verify_directly_issued_by(certificate(authority.certificate_file))
    other = new_authority(tmp_path / "b")
    with pytest.raises((InvalidSignature, ValueError)):
        certificate(signed.certificate).verify_directly_issued_by(certificate(other.certificate_file))


def test_a_token_kubeconfig_holds_the_token_and_no_certificate(tmp_path: Path) -> None:
    path = token_kubeconfig(tmp_path / "k", "https://127.0.0.1:1", tmp_path / "ca.crt", "secret")
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": "secret"}


def test_stages_are_stages_with_names_of_their_own() -> None:
    documents = [document for path in sorted(STAGES.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]
    assert {document["kind"] for document in documents} == {"Stage"}
    names = [document["metadata"]["name"] for document in documents]
    assert sorted(names) == ["node-heartbeat", "node-initialize", "pod-delete", "pod-end", "pod-leave", "pod-ready"]


def test_a_simulated_node_carries_its_machine_and_gpus() -> None:
    made = node("n", 8, "dgx1-v100", {"kompakt.dev/rack": "a"}, tainted=True)
    assert made["status"]["allocatable"]["kompakt.dev/gpu"] == "8"
    assert made["metadata"]["labels"]["kompakt.dev/machine"] == "dgx1-v100"
    assert made["spec"]["taints"][0]["effect"] == "NoSchedule"
