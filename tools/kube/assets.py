"""Which file of its project's release holds a program, and how that file's SHA-256 is known."""

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tools.kube.programs import Program, pinned_version

ENV_KUBERNETES_MIRROR = "KOMPAKT_KUBE_RELEASES"  # with the layout of KUBERNETES
ENV_MIRROR = "KOMPAKT_RELEASES"  # with one folder per host: <mirror>/github.com/etcd-io/etcd/...
KUBERNETES = "https://dl.k8s.io/release"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# kwok publishes no checksums. This one agrees in two independent places that packaged the file: the package kwok-bin of
# the Arch User Repository and a project that pins its tools. Of arm64 there was only one, so there kwok is built.
PINNED = {("kwok", "v0.8.0", "amd64"): "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46"}


class NoAsset(Exception):
    """There is no release file that could be checked; the message says why."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of a release: `path` below `base`."""

    base: str
    path: str
    checksums: str = ""  # the published file of checksums, below `base`
    pinned: str = ""  # the SHA-256 itself, where none is published
    member: str = ""  # the program's name in an archive; empty where the file is the program

    @property
    def url(self) -> str:
        return f"{self.base}/{self.path}"


def asset_of(program: Program) -> Asset:
    """The official file of a program in its pinned version, or the mirror's. Raises NoAsset."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise NoAsset(f"there is no release for {machine}")
    if program.module not in _ASSETS:
        raise NoAsset("its project publishes packages only")
    found = _ASSETS[program.module](program.name, pinned_version(program.module), ARCHITECTURES[machine])
    if not found.checksums and not found.pinned:
        raise NoAsset(f"no checksum is known of {found.url}")
    return replace(found, base=_mirrored(found.base))


def checksum_in(text: str, name: str) -> str:
    """The SHA-256 of a file in published text: lines of sum and name as sha256sum writes them, or one bare sum.

    Raises:
        ValueError: it is not in there.
    """
    for line in text.splitlines():
        words = line.split()
        if words and re.fullmatch(r"[0-9a-f]{64}", words[0]) and (words[1:] == [] or _names(words[-1], name)):
            return words[0]
    raise ValueError(f"holds no SHA-256 of {name}")


def _names(word: str, name: str) -> bool:
    return word.removeprefix("*").rpartition("/")[2] == name


def _mirrored(base: str) -> str:
    own = os.environ.get(ENV_KUBERNETES_MIRROR) if base == KUBERNETES else None
    mirror = os.environ.get(ENV_MIRROR)
    return (own or (f"{mirror.rstrip('/')}/{base.removeprefix('https://')}" if mirror else base)).rstrip("/")


def _github(project: str) -> str:
    return f"https://github.com/{project}/releases/download"


def _kubernetes(name: str, version: str, architecture: str) -> Asset:
    path = f"{version}/bin/linux/{architecture}/{name}"
    return Asset(KUBERNETES, path, f"{path}.sha256")


def _etcd(name: str, version: str, architecture: str) -> Asset:
    stem = f"etcd-{version}-linux-{architecture}"
    return Asset(_github("etcd-io/etcd"), f"{version}/{stem}.tar.gz", f"{version}/SHA256SUMS", member=f"{stem}/{name}")


def _kwok(name: str, version: str, architecture: str) -> Asset:
    path = f"{version}/{name}-linux-{architecture}"
    return Asset(_github("kubernetes-sigs/kwok"), path, pinned=PINNED.get((name, version, architecture), ""))


def _helm(name: str, version: str, architecture: str) -> Asset:
    path = f"helm-{version}-linux-{architecture}.tar.gz"
    return Asset("https://get.helm.sh", path, f"{path}.sha256sum", member=f"linux-{architecture}/{name}")


def _coredns(name: str, version: str, architecture: str) -> Asset:
    path = f"{version}/coredns_{version.removeprefix('v')}_linux_{architecture}.tgz"
    return Asset(_github("coredns/coredns"), path, f"{path}.sha256", member=name)


def _containerd(name: str, version: str, architecture: str) -> Asset:
    path = f"{version}/containerd-{version.removeprefix('v')}-linux-{architecture}.tar.gz"
    return Asset(_github("containerd/containerd"), path, f"{path}.sha256sum", member=f"bin/{name}")


_ASSETS: dict[str, Callable[[str, str, str], Asset]] = {
    "kubernetes": _kubernetes,
    "etcd": _etcd,
    "kwok": _kwok,
    "helm": _helm,
    "coredns": _coredns,
    "containerd": _containerd,
}
