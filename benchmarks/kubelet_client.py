"""Kubelet's questions to a device plugin, asked and timed by kubelet's own gRPC client (kubelet/main.go).

A client in Python would add its own share to every answer: threads that wake each other under one interpreter lock.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.kube.cache import cache_root, content_key, files_of, locked
from tools.kube.golang import build_environment, find_go

SOURCE: Final = Path(__file__).parent / "kubelet"


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of an answer, and the seconds that it took."""

    ids: list[str]
    seconds: float


class KubeletClient:
    """One connection to a plugin, from a process of its own. `gpus`: the ids that the plugin offered first."""

    def __init__(self, program: Path, socket: Path) -> None:
        self._process = subprocess.Popen([program, str(socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.gpus: list[str] = self._line()

    def prefer(self, offered: Sequence[str], size: int) -> Answer:
        """GetPreferredAllocation of `size` of the offered."""
        return self._ask(call="prefer", ids=list(offered), size=size)

    def allocate(self, gpus: Sequence[str]) -> Answer:
        """Allocate of exactly these."""
        return self._ask(call="allocate", ids=list(gpus))

    def echo(self, gpus: Sequence[str]) -> Answer:
        """A call with these ids to which the plugin answers nothing (PreStartContainer)."""
        return self._ask(call="echo", ids=list(gpus))

    def close(self) -> None:
        """End the client."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, **order: Any) -> Answer:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said = self._line()
        return Answer(said["ids"] or [], said["nanoseconds"] / 1e9)

    def _line(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the client that plays kubelet ended with status {self._process.wait()}")
        return json.loads(line)


def build_client() -> Path:
    """The client's program, kept in the cache by the content of its sources. Raises CalledProcessError."""
    key = content_key([], files_of(SOURCE.parent, [SOURCE.name]), SOURCE.parent)
    program = cache_root() / "bin" / f"kubelet-client-{key}"
    with locked("kubelet-client"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            fresh = program.with_name(f".{program.name}")
            command: list[str | Path] = [find_go(print), "build", "-mod=readonly", "-trimpath", "-o", fresh, "."]
            subprocess.run(command, cwd=SOURCE, env=build_environment(), check=True)
            fresh.replace(program)
    return program
