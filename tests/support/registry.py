"""A registry of the distribution project on loopback, with a folder as its store."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.kube.binaries import find
from tools.kube.ports import free_ports
from tools.kube.processes import last_lines, launch_tied, stop, wait_until


@dataclass(frozen=True)
class Registry:
    """Its host and port, and where it keeps what it is sent."""

    address: str
    folder: Path

    def blob(self, digest: str) -> Path:
        hexadecimal = digest.removeprefix("sha256:")
        return self.folder / "docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/v2/", timeout=2):
                return True
        except OSError:
            return False


@contextmanager
def running(folder: Path) -> Iterator[Registry]:
    """Gone with the block, or with pytest."""
    folder.mkdir()
    registry = Registry(f"127.0.0.1:{free_ports(1)[0]}", folder / "store")
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(registry.folder)}},
        "http": {"addr": registry.address},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    process = launch_tied([str(find("registry")), "serve", str(folder / "config.yaml")], folder / "log")
    try:
        assert wait_until(lambda: registry.answers() or not process.alive(), 20), last_lines(folder / "log")
        assert process.alive(), last_lines(folder / "log")  # where another program had taken the port, that one answers
        yield registry
    finally:
        stop([process], grace=2)
