"""Keys, certificates and kubeconfig files of one short-lived cluster.

Certificates are trustme's. All keys are on the NIST P-256 curve: they are made in milliseconds, and the API server signs
ServiceAccount tokens with them as ES256.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class Signed:
    """A key and its certificate, as files."""

    key: Path
    certificate: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate authority of one cluster; `folder` receives all files, readable by the owner only."""

    folder: Path
    issuer: trustme.CA

    @property
    def certificate_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "ca.key"

    def client(self, name: str, common_name: str, organization: str | None = None) -> Signed:
        """A client certificate; the API server reads the common name as user, the organization as group."""
        # Without a group of its own trustme's name stands there: a group that nothing is bound to. Nobody reads the address,
        # but without any trustme writes an empty critical list, which Go refuses.
        return self._write(
            name, self.issuer.issue_cert(f"{name}.client", common_name=common_name, organization_name=organization)
        )

    def server(self, name: str, common_name: str, hosts: Iterable[str]) -> Signed:
        """A server certificate for these host names and IP addresses."""
        return self._write(name, self.issuer.issue_cert(*hosts, common_name=common_name))

    def _write(self, name: str, issued: trustme.LeafCert) -> Signed:
        signed = Signed(self.folder / f"{name}.key", self.folder / f"{name}.crt")
        write_private(signed.key, issued.private_key_pem.bytes())
        signed.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return signed


def new_authority(folder: Path) -> Authority:
    """A new certificate authority with its files ca.crt and ca.key in `folder`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(folder, trustme.CA(organization_name="kompakt-test-ca"))
    write_private(authority.key_file, authority.issuer.private_key_pem.bytes())
    authority.certificate_file.write_bytes(authority.issuer.cert_pem.bytes())
    return authority


def new_token_key(folder: Path) -> tuple[Path, Path]:
    """The key pair for ServiceAccount tokens: files (private, public)."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "sa.key", folder / "sa.pub"
    write_private(private, _pem(key))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return private, public


def certificate_kubeconfig(path: Path, server: str, authority: Path, client: Signed) -> Path:
    """A kubeconfig file that signs in with a client certificate."""
    return _kubeconfig(path, server, authority, {"client-certificate": str(client.certificate), "client-key": str(client.key)})


def token_kubeconfig(path: Path, server: str, authority: Path, token: str) -> Path:
    """A kubeconfig file that signs in with a ServiceAccount token."""
    return _kubeconfig(path, server, authority, {"token": token})


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, not even for the moment before a chmod."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _kubeconfig(path: Path, server: str, authority: Path, user: dict[str, str]) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kompakt", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "kompakt", "context": {"cluster": "kompakt", "user": "user"}}],
        "current-context": "kompakt",
    }
    write_private(path, yaml.safe_dump(document).encode())
    return path


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
