"""A placement on one machine, as sentences and as a document for programs."""

from dataclasses import dataclass, replace
from typing import Any

from kompakt_cli.words import gigabytes
from kompakt_core.ids import GpuMask, indices_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.table import MAX_GPUS
from kompakt_core.placement.baseline import random_choice
from kompakt_core.placement.choose import choose, requested_facts
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.mapa2021 import mapa2021
from kompakt_core.placement.model import Choice, GpuRequest, PlacementPolicy, Rejection
from kompakt_core.topology.graph import LinkGraph


@dataclass(frozen=True, slots=True)
class PlacementAnswer:
    """What was asked and what came of it. `ideal`: the best value of that size on the empty machine, MB/s; `preserved`:
    MB/s of the NVLink pairs among the GPUs that stay free.
    """

    graph: LinkGraph
    free: GpuMask
    gpu_request: GpuRequest
    policy: str
    choice: Choice | Rejection
    ideal: int
    preserved: int


def place_on(
    graph: LinkGraph, free: int, gpus: int, gpu_request: GpuRequest, must_include: int, *, mapa: bool
) -> PlacementAnswer:
    """Choose on one machine. `mapa`: by the published rules of MAPA instead of the request's policy."""
    choice = (
        mapa2021(graph, free, gpus, gpu_request) if mapa else choose(graph, free, gpus, gpu_request, must_include=must_include)
    )
    best = choose(graph, graph.all_gpus, gpus, replace(gpu_request, policy=PlacementPolicy.BEST))
    left = free if isinstance(choice, Rejection) else free & ~choice.mask
    preserved = requested_facts(graph, gpu_request.without_pattern()).fabric(left)
    ideal = best.value if isinstance(best, Choice) else 0
    return PlacementAnswer(
        graph, GpuMask(free), gpu_request, "mapa2021" if mapa else str(gpu_request.policy), choice, ideal, preserved
    )


def document(answer: PlacementAnswer) -> dict[str, Any]:
    """The answer for programs: GPU indices (`order` by rank), integers of MB/s one way. `bound` null: value is exact."""
    choice = answer.choice
    bound = None if isinstance(choice, Rejection) else choice.bound
    return {
        "gpus": [] if isinstance(choice, Rejection) else [int(i) for i in indices_of(choice.mask)],
        "order": [] if isinstance(choice, Rejection) else [int(i) for i in choice.order],
        "value": 0 if isinstance(choice, Rejection) else int(choice.value),
        "ideal": int(answer.ideal),
        "preserved": int(answer.preserved),
        "policy": answer.policy,
        "rejection": {"reason": choice.reason.value, "message": sentence(choice)} if isinstance(choice, Rejection) else None,
        "measure": str(answer.gpu_request.measure),
        "bound": None if bound is None else int(bound),
    }


def lines(answer: PlacementAnswer) -> list[str]:
    """What was chosen and how it compares, as sentences."""
    choice, gpu_request = answer.choice, answer.gpu_request
    if isinstance(choice, Rejection):
        return [sentence(choice)]
    how = "sensitive" if gpu_request.sensitive else "insensitive"
    out = [f"chosen    GPU {_order(choice, gpu_request)}   (policy {answer.policy}, {how})"]
    still = (answer.free & ~choice.mask).bit_count()
    left = f"left      {gigabytes(answer.preserved)} GB/s of NVLink among the {still} GPUs still free"
    if gpu_request.pattern is Pattern.NONE:
        return [*out, "value     none: pattern None asks for no bandwidth among the GPUs", left]
    if len(choice.order) == 1:
        return [*out, "value     none: a single GPU has nobody to talk to", left]
    return [*out, *_values(answer, choice), left]


def _order(choice: Choice, gpu_request: GpuRequest) -> str:
    size = len(choice.order)
    arrow = " -> " if gpu_request.pattern in (Pattern.RING, Pattern.CHAIN) and size > 1 else ", "
    closing = f" -> {choice.order[0]}" if gpu_request.pattern is Pattern.RING and size > 2 else ""
    return arrow.join(str(i) for i in choice.order) + closing


def _values(answer: PlacementAnswer, choice: Choice) -> list[str]:
    gpu_request, ideal = answer.gpu_request, answer.ideal
    share = f" ({choice.value / ideal:.0%} of {gigabytes(ideal)} on the empty machine)" if ideal else ""
    summed = gpu_request.measure is Measure.SUM
    what, other = (
        ("sum of links", "slowest   {} GB/s on the slowest link") if summed else ("slowest link", "all links {} GB/s together")
    )
    out = [
        f"value     {gigabytes(choice.value)} GB/s {gpu_request.pattern}, {what}{share}",
        f"{other.format(gigabytes(choice.second))}, in the order that is best for it",
    ]
    if choice.bound is not None:
        out.append(f"          best found; no set has more than {gigabytes(choice.bound)} GB/s")
    if gpu_request.pattern is not Pattern.CUSTOM and answer.graph.size <= MAX_GPUS:
        chance = random_choice(answer.graph, answer.free, len(choice.order), gpu_request.pattern, gpu_request.measure)
        size = len(choice.order)
        sets = f"these are the only {size} free" if chance.sets == 1 else f"any {size} free GPUs: {chance.sets} sets"
        out.append(f"by chance {gigabytes(chance.mean)} GB/s on average, {gigabytes(chance.worst)} at worst ({sets})")
    return out
