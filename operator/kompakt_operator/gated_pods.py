"""Counts pods of gangs that others made and that wait behind our scheduling gate.

The planner counts those that it knows. Where it knows fewer, it is away or does not see them, and nobody removes the gate: an
alert compares both. That is the operator's to count because it is another process, which reads pods anyway.
"""

from typing import Final

import msgspec

from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector, Source
from kompakt_core import contract
from kompakt_core.contract import gang_member
from kompakt_operator.api import PAGE, core_path
from kompakt_operator.observed import ChangeListener

OVER: Final = ("Succeeded", "Failed")


def read_gated(raw: bytes) -> bool | None:
    """True for a pod that waits behind our gate; None, so that nothing is kept, for all others."""
    pod = msgspec.json.decode(raw)
    gated = any(gate.get("name") == contract.GATE for gate in pod["spec"].get("schedulingGates") or ())
    over = pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") in OVER
    return True if gated and not over else None


class GatedPods:
    """Its length is how many there are."""

    def __init__(self, source: Source, namespace: str = "") -> None:
        """`namespace` "": all."""
        path = core_path("pods", namespace)
        kind = WatchedKind("gated pods", path, read_gated, {"labelSelector": gang_member.SELECTOR}, page=PAGE)
        listener: ChangeListener[bool] = ChangeListener(lambda changes: None)
        self._reflector: Reflector[bool] = Reflector(source, kind, listener)

    def start(self) -> None:
        """Begin to watch. Nobody waits for the first list: jobs do not depend on it."""
        self._reflector.start()

    def stop(self) -> None:
        """Stop watching."""
        self._reflector.stop()

    def __len__(self) -> int:
        with self._reflector.held() as store:
            return len(store)
