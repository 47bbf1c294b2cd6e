"""Programs of Kubernetes from the official release download, checked against the published SHA-256."""

import hashlib
import os
import platform
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tools.kube.cache import cache_root
from tools.kube.programs import Program, pinned_version

ENV_BASE = "KOMPAKT_KUBE_RELEASES"  # a mirror with the layout of the official place
OFFICIAL = "https://dl.k8s.io/release"
CONNECT_SECONDS = 4.0
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NotDownloaded(Exception):
    """The program cannot be downloaded; the message says why."""


def folder(program: Program) -> Path:
    """Where a downloaded program is kept."""
    return cache_root() / "bin" / f"{program.module}-{pinned_version(program.module)}-release"


def download(program: Program, say: Callable[[str], None]) -> Path:
    """The program's file in the cache. Raises NotDownloaded; nothing half loaded or unchecked stays in place."""
    if not program.kubernetes:
        raise NotDownloaded("only Kubernetes' own programs are downloaded")
    url = f"{_base()}/{pinned_version('kubernetes')}/bin/linux/{_architecture()}/{program.name}"
    obstacle = unreachable(_base())
    if obstacle:
        raise NotDownloaded(obstacle)
    say(f"{program.name}: downloading {url} ({program.megabytes} MB)")
    try:
        expected = _read(f"{url}.sha256").decode().split()[0]
        content = _read(url)
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise NotDownloaded(f"{url}: {error}") from error
    if hashlib.sha256(content).hexdigest() != expected:
        raise NotDownloaded(f"{url} does not have the published SHA-256 {expected}")
    return _keep(program, content)


@cache
def unreachable(base: str) -> str:
    """Why the download place does not answer, asked once per run; empty where it does."""
    try:
        with urllib.request.urlopen(f"{base}/stable.txt", timeout=CONNECT_SECONDS):
            return ""
    except OSError as error:
        return f"{base} does not answer ({getattr(error, 'reason', error)})"


def _keep(program: Program, content: bytes) -> Path:
    target = folder(program) / program.name
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{program.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    return fresh.replace(target)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return bytes(response.read())


def _base() -> str:
    return os.environ.get(ENV_BASE, OFFICIAL).rstrip("/")


def _architecture() -> str:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise NotDownloaded(f"there is no release for {machine}")
    return ARCHITECTURES[machine]
