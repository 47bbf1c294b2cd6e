"""Keys, certificates and kubeconfig files of one short-lived cluster.

All keys are on the NIST P-256 curve: they are made in milliseconds, and the API server signs ServiceAccount tokens
with them as ES256.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
# Clocks of namespaces and containers can differ by seconds; a certificate from the future is refused.
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Signed:
    """A key and its certificate, as files."""

    key: Path
    certificate: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate authority of one cluster; `folder` receives all files, readable by the owner only."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "ca.key"

    def client(self, name: str, common_name: str, organization: str | None = None) -> Signed:
        """A client certificate; the API server reads the common name as user, the organization as group."""
        return self._signed(name, _subject(common_name, organization), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, common_name: str, hosts: Iterable[str]) -> Signed:
        """A server certificate for these host names and IP addresses."""
        return self._signed(name, _subject(common_name, None), ExtendedKeyUsageOID.SERVER_AUTH, tuple(hosts))

    def _signed(self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: tuple[str, ...]) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        signed = Signed(self.folder / f"{name}.key", self.folder / f"{name}.crt")
        write_private(signed.key, _pem(key))
        signed.certificate.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return signed


def new_authority(folder: Path) -> Authority:
    """A new certificate authority with its files ca.crt and ca.key in `folder`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("kompakt-test-ca", None)
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    certificate = _builder(subject, subject, key).add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    authority = Authority(folder, key, certificate)
    write_private(authority.key_file, _pem(key))
    authority.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
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


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 - certificates are valid from the wall clock's now
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
    )


def _subject(common_name: str, organization: str | None) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
