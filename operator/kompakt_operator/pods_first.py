"""Why a gang's pods are created before it has places. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kompakt_core import contract

MOST_BYTES: Final = 64 << 10  # of a job's status that what its pods ask for may take; the planner reads 32 KiB of a pod


def reason(pods: Iterable[Mapping[str, Any]]) -> str:
    """In words; "" where the planner can find places for them first. `pods`: trimmed, one of each role."""
    pods = tuple(pods)
    if other := next(filter(None, map(_other_gate, pods)), ""):
        return f"scheduling gate {other} is for another controller"
    size = len(msgspec.json.encode(pods))
    return f"what the pods ask for takes {size} bytes, and at most {MOST_BYTES} are written" if size > MOST_BYTES else ""


def _other_gate(pod: Mapping[str, Any]) -> str:
    names = (str(gate.get("name", "")) for gate in pod["spec"].get("schedulingGates") or ())
    return next((name for name in names if name != contract.GATE), "")
