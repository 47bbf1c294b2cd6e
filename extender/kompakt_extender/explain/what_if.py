"""What-if: which nodes could take a request that nobody has made."""

from typing import Any, Final

import msgspec

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import JobUid, PodUid
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.gang_placement import ideal_value, plan_gang
from kompakt_core.placement.model import Gang, GpuRequest, Reason, Rejection, Snapshot, Worker
from kompakt_extender.explain.models import WhatIf, WhatIfAnswer, WhatIfNode
from kompakt_extender.explain.survey import NodeFinding, asked_of, survey
from kompakt_extender.gangs import worker_of
from kompakt_extender.objects import Pod
from kompakt_extender.placement_annotations import gpu_request_of
from kompakt_extender.project import pod_view
from kompakt_extender.rejections import TEXTS
from kompakt_extender.scores import scores_of

_POD: Final = msgspec.json.Decoder(Pod)
# Fields of the request that stand for a pod annotation each.
_ANNOTATIONS: Final = {
    "pattern": contract.ANN_PATTERN,
    "edges": contract.ANN_EDGES,
    "policy": contract.ANN_POLICY,
    "sensitivity": contract.ANN_SENSITIVITY,
    "required_link": contract.ANN_REQUIRED_LINK,
}


def read(body: WhatIf, resource: str = contract.RESOURCE) -> tuple[Worker, GpuRequest]:
    """The pod that is asked about and how its GPUs are to be chosen; manifests ask for GPUs by the name `resource`.

    Raises:
        InvalidInput: neither or both of `gpus` and `pod`, a word that is not known, a pod that could never be served.
    """
    if (body.gpus is None) == (body.pod is None):
        raise InvalidInput("give either gpus (a number, with pattern and the like) or pod (a manifest)")
    if body.pod is not None:
        return _of_pod(body, body.pod, resource)
    notes = {annotation: value for field, annotation in _ANNOTATIONS.items() if (value := getattr(body, field)) is not None}
    assert body.gpus is not None
    worker = Worker(index=0, pod="what-if", uid=PodUid(""), gpus=body.gpus)
    return worker, gpu_request_of(notes, same_numa_node=body.same_numa_node)


def _of_pod(body: WhatIf, manifest: dict[str, Any], resource: str) -> tuple[Worker, GpuRequest]:
    if given := sorted(body.model_fields_set - {"pod", "limit"}):
        raise InvalidInput(f"{', '.join(given)}: with a pod these stand in its annotations and requests")
    try:
        pod = pod_view(_waiting(_POD.decode(msgspec.json.encode(manifest))), resource)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"pod: not a pod's manifest: {error}") from error
    if pod.problem:
        raise InvalidInput(pod.problem)
    if pod.gpus == 0:
        raise InvalidInput(TEXTS[Reason.NO_GPUS])
    return worker_of(pod), gpu_request_of(pod.annotations)


def _waiting(pod: Pod) -> Pod:
    """The same as if it waited for us, wherever the manifest comes from."""
    spec = msgspec.structs.replace(pod.spec, scheduler_name=contract.SCHEDULER_NAME, node_name=None)
    return Pod(pod.metadata, spec)


def answer(snapshot: Snapshot, worker: Worker, gpu_request: GpuRequest, limit: int) -> WhatIfAnswer:
    """Ask all nodes; the `limit` best are listed."""
    seen = survey(snapshot.nodes.values(), worker, gpu_request)
    ideal = ideal_value(snapshot, worker.gpus, gpu_request)
    best = [one.grant.value for one in seen.found if one.rank == seen.found[0].rank]
    scores = scores_of((one.rank for one in seen.found), ideal=min(best, default=0) >= ideal)
    return WhatIfAnswer(
        asked=asked_of(worker.gpus, gpu_request),
        ideal=ideal,
        nodes=len(snapshot.nodes),
        fits=len(seen.found),
        offers=[_offer(one, scores[one.rank]) for one in seen.found[:limit]],
        rejections=seen.rejections(),
        rooms=[room for room in seen.rooms() if not room.takes],
        never="" if seen.found else _never(snapshot, worker, gpu_request),
    )


def _never(snapshot: Snapshot, worker: Worker, gpu_request: GpuRequest) -> str:
    """Why not even the empty cluster could take it, as the planner would say; empty when it could."""
    found = plan_gang(snapshot, Gang(JobUid(""), 0, (worker,), gpu_request))
    return sentence(found) if isinstance(found, Rejection) and found.reason is Reason.NEVER_FITS else ""


def _offer(one: NodeFinding, score: int) -> WhatIfNode:
    after = (one.state.free & ~one.grant.mask).bit_count()
    return WhatIfNode(node=one.state.name, gpus=list(one.grant.order), value=one.grant.value, score=score, free_after=after)
