"""From Gangs, which the planner makes of pods that others made, to what it keeps of them."""

import msgspec

from kompakt_core.contract.conditions import Type
from kompakt_core.placement.model import Level
from kompakt_extender.objects import GangObject
from kompakt_extender.views import ONLY_ATTEMPT, JobKind, JobView, gang_uid

_GANG = msgspec.json.Decoder(GangObject)


def read_gang(raw: bytes) -> JobView:
    """A Gang's JSON."""
    gang = _GANG.decode(raw)
    meta, spec, status = gang.metadata, gang.spec, gang.status
    placed = next((one for one in status.conditions or () if one.type == Type.PLACED), None)
    return JobView(
        uid=gang_uid(meta.namespace, meta.name),
        object_uid=meta.uid,
        kind=JobKind.GANG,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        generation=meta.generation,
        workers=spec.size,
        attempt=ONLY_ATTEMPT,
        suspended=False,
        finished=False,
        ours=True,
        required_level=Level(spec.required_level or Level.CLUSTER),
        same_numa_node=False,
        scheduling=status.scheduling or {},
        placed=None if placed is None else (placed.status, placed.last_transition_time or ""),
    )
