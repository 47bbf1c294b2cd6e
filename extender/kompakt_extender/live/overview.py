"""The cluster as the live page shows it: seen values in, models out, and the texts of events. Runs on a thread."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

import msgspec

from kompakt_core.contract import placement_annotations
from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import GpuUuid, mask_of
from kompakt_core.placement.model import Level
from kompakt_core.placement.seating import LEVEL_LABELS
from kompakt_core.topology.graph import HEALTHY, LinkGraph, SharedGraph
from kompakt_extender.counts_history import SAMPLES, CountsSample, at_rest
from kompakt_extender.explain.jobs import state_of
from kompakt_extender.explain.models import BestLeft, Holder
from kompakt_extender.explain.nodes import best_left, holders_of, why_not
from kompakt_extender.explain.survey import unhurried
from kompakt_extender.live.models import LiveCounts, LiveGang, LiveHolder, LiveMachine, LiveNode, LiveSample
from kompakt_extender.live.watch import SeenChanges, SeenGang, SeenNode, gang_key

NODES_NAMED: Final = 64
PLACED_AT_MOST: Final = 2000  # gangs with places that a page is told of at first; those that wait come all
STRETCH: Final = 1  # nodes put into words between two pauses
_SUMMED: Final = ("gpus", "free", "unhealthy")
Visible = frozenset[str] | None  # namespaces; None: all


class Overview:
    """All that the pages were told, kept so that a new page can be told it at once."""

    def __init__(self) -> None:
        self.nodes: dict[str, LiveNode] = {}
        self.gangs: dict[str, LiveGang] = {}
        self.samples: list[LiveSample] = []
        self.machines: dict[int, LiveMachine] = {}
        self._numbers: dict[SharedGraph, int] = {}
        self._left: dict[tuple[SharedGraph, int], list[BestLeft]] = {}
        self._uids: dict[str, str] = {}  # of gangs, by key
        self._keys: dict[str, str] = {}
        self._sums: Counter[str] = Counter()

    @property
    def namespaces(self) -> frozenset[str]:
        """All that gangs and holders are of."""
        of_holders = {one.namespace for node in tuple(self.nodes.values()) for one in node.holders}
        return frozenset({*(gang.namespace for gang in tuple(self.gangs.values())), *of_holders} - {""})

    def counts(self) -> LiveCounts:
        """As CountsHistory counts, from what pages were told."""
        gpus, free, unhealthy = (self._sums[one] for one in _SUMMED)
        waiting = sum(gang.waits for gang in self.gangs.values())
        running = sum(gang.state == State.RELEASED for gang in self.gangs.values())
        held = max(gpus - free - unhealthy, 0)
        return LiveCounts(
            nodes=len(self.nodes), gpus=gpus, free=free, held=held, unhealthy=unhealthy, waiting=waiting, running=running
        )

    def apply(self, seen: SeenChanges) -> "LiveChanges":
        """What becomes of it; answers what pages have to be told."""
        known = set(self.machines)
        nodes = [self._set_node(name, node) for name, node in unhurried(seen.nodes.items(), STRETCH)]
        gangs = [self._set_gang(uid, gang) for uid, gang in unhurried(seen.gangs.items())]
        samples = [_sample(one) for one in seen.samples]
        self.samples = [*self.samples, *samples][-SAMPLES:]
        return LiveChanges(
            [node for node in nodes if isinstance(node, LiveNode)],
            [gang for gang in gangs if isinstance(gang, LiveGang)],
            {number: machine for number, machine in self.machines.items() if number not in known},
            samples,
            [name for name in nodes if isinstance(name, str)],
            [key for key in gangs if isinstance(key, str)],
        )

    def everything(self, visible: Visible) -> "LiveChanges":
        """What a new page has to be told."""
        gangs = [gang for gang in self.gangs.values() if visible is None or gang.namespace in visible]
        placed = [gang for gang in gangs if not gang.waits]
        shown = [gang for gang in gangs if gang.waits] + placed[:PLACED_AT_MOST]
        return LiveChanges(list(self.nodes.values()), shown, self.machines, self.samples, more=len(gangs) - len(shown))

    def _set_node(self, name: str, seen: SeenNode | None) -> LiveNode | str | None:
        before = self.nodes.pop(name, None)
        self._sums.subtract(self._amounts(before))
        if seen is None:
            return name if before is not None else None
        self.nodes[name] = now = self._node(seen)
        self._sums.update(self._amounts(now))
        return now if now != before else None

    def _amounts(self, node: LiveNode | None) -> dict[str, int]:
        """What of a node is added up: for each round anew that would hold up kube-scheduler's questions."""
        if node is None or node.machine < 0:
            return {}
        masks = node.free_mask, node.unhealthy_mask
        return dict(zip(_SUMMED, (self.machines[node.machine].gpus, *(int(one, 16).bit_count() for one in masks)), strict=True))

    def _node(self, seen: SeenNode) -> LiveNode:
        state, graph = seen.state, seen.state.graph
        return LiveNode(
            name=state.name,
            machine=-1 if graph is None else self._machine(graph),
            free_mask=hex(state.free),
            unhealthy_mask=hex(mask_of([gpu.index for gpu in graph.gpus if gpu.health != HEALTHY]) if graph else 0),
            usable=not (why := why_not(state)),
            why_not=why,
            best_left=[] if graph is None else self._best_left(graph, state.free),
            holders=[] if graph is None else holders_by_pod(graph, holders_of(seen.users), seen.gangs),
            rack=state.labels.get(LEVEL_LABELS[Level.RACK], ""),
            block=state.labels.get(LEVEL_LABELS[Level.BLOCK], ""),
        )

    def _machine(self, graph: LinkGraph) -> int:
        if graph.shared not in self._numbers:
            number = self._numbers[graph.shared] = len(self._numbers)
            links = [(one.a, one.b, one.kind.value, one.lanes, one.megabytes_per_second) for one in graph.links]
            self.machines[number] = LiveMachine(gpus=graph.size, links=links)
        return self._numbers[graph.shared]

    def _best_left(self, graph: LinkGraph, free: int) -> list[BestLeft]:
        key = graph.shared, free
        if key not in self._left:
            if len(self._left) >= 4096:
                self._left.clear()
            self._left[key] = best_left(graph, free)
        return self._left[key]

    def _set_gang(self, uid: str, seen: SeenGang | None) -> LiveGang | str | None:
        """A gang that is over is told once, as it ended, and then forgotten."""
        if seen is None:
            key = self._keys.pop(uid, "")
            if self._uids.get(key) != uid:  # another one has its name by now
                return None
            del self._uids[key]
            return key if self.gangs.pop(key, None) is not None else None
        key = gang_key(seen.job)
        self._uids[key], self._keys[uid] = uid, key
        before, now = self.gangs.get(key), gang_of(seen)
        if at_rest(seen.job):
            return now if self.gangs.pop(key, None) is not None else None
        self.gangs[key] = now
        return now if now != before else None


class LiveChanges:
    """What pages have to be told, and how that reads for those who may see only some namespaces."""

    def __init__(
        self,
        nodes: list[LiveNode],
        gangs: list[LiveGang],
        machines: Mapping[int, LiveMachine],
        samples: list[LiveSample],
        gone_nodes: Iterable[str] = (),
        gone_gangs: Iterable[str] = (),
        more: int = 0,
    ) -> None:
        self._nodes, self._gangs, self._machines, self._samples, self._more = nodes, gangs, machines, samples, more
        self._gone_nodes, self._gone_gangs = list(gone_nodes), list(gone_gangs)

    def __bool__(self) -> bool:
        return bool(self._nodes or self._gangs or self._samples or self._gone_nodes or self._gone_gangs)

    def text(self, visible: Visible, counts: LiveCounts, at: str) -> bytes:
        """The JSON of a LiveOverview."""
        gangs = [one for one in self._gangs if visible is None or one.namespace in visible]
        gone = [key for key in self._gone_gangs if visible is None or key.split("/")[1] in visible]
        return b"".join(
            (
                b'{"at":' + _json(at) + b',"counts":' + _json(counts),
                b',"machines":{' + b",".join(b'"%d":%b' % (key, _json(one)) for key, one in self._machines.items()) + b"}",
                b',"nodes":[' + b",".join(_json(shown(one, visible)) for one in unhurried(self._nodes, 4 * STRETCH)) + b"]",
                b',"gangs":[' + b",".join(map(_json, unhurried(gangs, 4 * STRETCH))) + b"]",
                b',"history":[' + b",".join(map(_json, self._samples)) + b"]",
                b',"goneNodes":' + _json(self._gone_nodes) + b',"goneGangs":' + _json(gone),
                b',"moreGangs":%d}' % self._more,
            )
        )


def _json(value: object) -> bytes:
    if isinstance(value, LiveNode | LiveGang | LiveCounts | LiveMachine):
        return value.model_dump_json(by_alias=True).encode()
    return msgspec.json.encode(value)


def shown(node: LiveNode, visible: Visible) -> LiveNode:
    """The node without names of pods that the reader may not be told of: their uids remain."""
    if visible is None or all(one.namespace in visible for one in node.holders):
        return node
    hidden = {"namespace": "", "name": "", "gang": ""}
    holders = [one if one.namespace in visible else one.model_copy(update=hidden) for one in node.holders]
    return node.model_copy(update={"holders": holders})


def holders_by_pod(graph: LinkGraph, holders: Mapping[GpuUuid, list[Holder]], gangs: Mapping[str, str]) -> list[LiveHolder]:
    """Who has GPUs of a node, those with the lowest indices first; each pod once, with all that it has."""
    found: dict[str, Holder] = {}
    masks: dict[str, int] = {}
    for gpu in graph.gpus:
        for one in holders.get(gpu.uuid, ()):
            found.setdefault(one.uid, one)
            masks[one.uid] = masks.get(one.uid, 0) | 1 << gpu.index
    return [LiveHolder(**vars(one), mask=hex(masks[uid]), gang=gangs.get(uid, "")) for uid, one in found.items()]


def gang_of(seen: SeenGang) -> LiveGang:
    """A gang as the page shows it."""
    job, record, plan = seen.job, seen.record, seen.record.plan
    state, message = state_of(job, record)
    bound = sum(pod.node is not None for pod in seen.pods)
    return LiveGang(
        key=gang_key(job),
        kind=job.kind.value,
        namespace=job.namespace,
        name=job.name,
        waits=not at_rest(job) and record.state is not State.RELEASED,
        state=state,
        reason=record.reason,
        message=message,
        since=record.waiting_since,
        waits_for=record.waits_for,
        until=record.until,
        attempt=job.attempt,
        workers=job.workers or len(seen.pods),
        bound=bound,
        gpus=sum(pod.gpus for pod in seen.pods) or job.asked.gpus,
        pattern=placement_annotations.readable(seen.pods[0].annotations).pattern.value if seen.pods else "",
        level=plan.level if plan else "",
        value=plan.value if plan else 0,
        ideal=plan.ideal if plan else 0,
        overtaken=record.overtaken,
        nodes=list(dict.fromkeys(seat.node for seat in plan.pods))[:NODES_NAMED] if plan else [],
    )


def _sample(one: CountsSample) -> LiveSample:
    return LiveSample(at=one.at, **asdict(one.counts))
