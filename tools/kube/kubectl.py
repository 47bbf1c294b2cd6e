"""kubectl against one cluster, and waiting for what it shows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kube.command import CommandFailed, output
from tools.kube.processes import wait_until


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`program` signs in with `kubeconfig`."""

    program: Path
    kubeconfig: Path

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints; CommandFailed where it fails."""
        return output([self.program, f"--kubeconfig={self.kubeconfig}", *words], stdin=stdin)

    def apply(self, manifest: str) -> None:
        self("apply", "--filename=-", stdin=manifest)

    def get(self, kind: str, *words: str) -> Any:
        """An object, or a List where no name is given."""
        return json.loads(self("get", kind, *words, "--output=json"))

    def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(kind, *words)["items"]
        return found


def await_state(ready: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until `ready` holds; a failing look counts as not yet.

    Raises:
        TimeoutError: names what did not come.
    """

    def looked() -> bool:
        try:
            return ready()
        except (CommandFailed, LookupError):
            return False

    if not wait_until(looked, seconds):
        raise TimeoutError(f"{what} did not come within {seconds:.0f} s")


def condition(thing: dict[str, Any], kind: str) -> bool:
    """Whether a condition of an object is True."""
    conditions = thing.get("status", {}).get("conditions", [])
    return any(entry["type"] == kind and entry["status"] == "True" for entry in conditions)
