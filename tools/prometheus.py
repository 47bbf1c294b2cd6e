"""Prometheus and promtool of Debian's package, unpacked beside the system: installed, it would start as a service."""

import shutil
import tempfile
from pathlib import Path

from tools.kube.cache import cache_root, locked
from tools.kube.command import CommandFailed, output

PACKAGE = "prometheus"


class NoPrometheus(Exception):
    """Why there is none, and what would help."""


def find(program: str) -> Path:
    """`prometheus` or `promtool`: of PATH, of the cache, else fetched with apt-get, which needs no root.

    Raises:
        NoPrometheus: there is none, and none could be fetched.
    """
    if (installed := shutil.which(program)) is not None:
        return Path(installed)
    with locked(PACKAGE):
        kept = cache_root() / PACKAGE
        if not (kept / "usr" / "bin" / program).exists():
            _fetch(kept)
    return kept / "usr" / "bin" / program


def _fetch(target: Path) -> None:
    wanted = f"{PACKAGE} of Debian or Ubuntu"
    if shutil.which("apt-get") is None:
        raise NoPrometheus(f"there is no apt-get to fetch {wanted}: put prometheus and promtool on PATH")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".prometheus.") as folder:
        try:
            _download(Path(folder))
            (archive,) = Path(folder).glob("*.deb")
            output(["dpkg-deb", "--extract", archive, f"{folder}/unpacked"])
        except (CommandFailed, ValueError) as error:
            raise NoPrometheus(f"apt-get could not fetch {wanted} ({error}): put prometheus and promtool on PATH") from error
        shutil.rmtree(target, ignore_errors=True)
        Path(folder, "unpacked").rename(target)


def _download(folder: Path) -> None:
    command = ["env", f"--chdir={folder}", "apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE]
    try:
        output(command)
    except CommandFailed:
        output(["apt-get", "update", "-qq"])  # a fresh machine has no lists yet
        output(command)
