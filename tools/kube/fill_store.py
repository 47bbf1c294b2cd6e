"""Import image archives into a containerd root; run as root inside throw-away namespaces, by path, with stdlib only.

usage: fill_store.py CONTAINERD_ROOT WANTED ARCHIVE...   WANTED: names of the images to keep, joined by commas
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONFIG = """version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
"""
_SOCKET = Path("/run/containerd/containerd.sock")


def main(root: str, wanted: set[str], archives: list[str]) -> None:
    with containerd(root):
        for archive in archives:
            _images("import", archive)
        _drop_all_but(wanted)


@contextmanager
def containerd(root: str) -> Iterator[None]:
    """containerd with that root, in the mount namespace of the caller, which must have one of its own."""
    # /run of the mount namespace is private: socket and state vanish with it.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".toml", dir="/run") as config:
        config.write(_CONFIG.format(root=root))
        config.flush()
        daemon = subprocess.Popen(["containerd", "--config", config.name])
        try:
            _wait(daemon)
            yield
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)


def _images(*words: str) -> str:
    return subprocess.run(["ctr", "-n", "k8s.io", "images", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _drop_all_but(wanted: set[str]) -> None:
    names = set(_images("list", "--quiet").split())
    if missing := wanted - names:
        raise SystemExit(f"not in the archives: {sorted(missing)}")
    # Removing an image collects what no image uses; where none is outdated, a name that is made for it sets that off,
    # since an import under the same name leaves the old layers behind.
    _images("tag", "--force", min(wanted), "localhost/outdated:0")
    for name in (names - wanted) | {"localhost/outdated:0"}:
        _images("remove", "--sync", name)


def _wait(daemon: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 20
    while subprocess.run(["ctr", "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > end:
            raise SystemExit("containerd does not answer on " + str(_SOCKET))
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], set(sys.argv[2].split(",")), sys.argv[3:])
