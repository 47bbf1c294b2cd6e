"""Import image archives into a containerd root; run as root inside throw-away namespaces, by path, with stdlib only.

usage: fill_store.py CONTAINERD_ROOT ARCHIVE...
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CONFIG = """version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
"""
_SOCKET = Path("/run/containerd/containerd.sock")


def main(root: str, archives: list[str]) -> None:
    # /run of the mount namespace is private: socket and state vanish with it.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".toml", dir="/run") as config:
        config.write(_CONFIG.format(root=root))
        config.flush()
        daemon = subprocess.Popen(["containerd", "--config", config.name])
        try:
            _wait(daemon)
            for archive in archives:
                subprocess.run(["ctr", "-n", "k8s.io", "images", "import", archive], check=True)
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)


def _wait(daemon: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 20
    while subprocess.run(["ctr", "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > end:
            raise SystemExit("containerd does not answer on " + str(_SOCKET))
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
