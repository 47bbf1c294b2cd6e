"""Who is stopped for a waiting job of the policy `kompakt`.

By service: jobs behind it in the order that have run for a while, so that it gets its best level; with knowledge, jobs whose
rests together make that pay (core.policy.exchange). By priority: less important jobs, by the rules and the code that the cluster
goes by (core.policy.preempt); traces know no workers, so a job counts as single GPUs, as everywhere in the simulator but in
placement `planned`.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, GpuUuid, JobUid, MegabytesPerSecond, NodeName, PodUid, mask_of
from kompakt_core.job.run_policy import Preemption as PreemptionRules
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, Snapshot, Worker
from kompakt_core.placement.seating import LEVEL_LABELS
from kompakt_core.policy.exchange import stopping_pays
from kompakt_core.policy.preempt import NotBefore, PodHolding, PreemptionPlan, RunningGang, preempt
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_simulator.cluster import NOTHING, ClusterShape, ClusterState, GpuSet
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.consolidation import accepts, cost
from kompakt_simulator.schedulers.pool import Pool, members
from kompakt_simulator.schedulers.waiting_queue import QueueEntry, WaitingQueue
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.world import SimulatedWorld

MIN_RUN_MS = 7_200_000  # nobody is stopped earlier for another


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """Victims, and the machine, rack or block (as a mask) that has room for the waiting job without them."""

    tasks: Sequence[SimulatedJob]
    member: int

    def place(self, world: SimulatedWorld, task: SimulatedJob) -> GpuSet:
        """The GPUs for the waiting job; asked before the victims are stopped."""
        freed = NOTHING
        for victim in self.tasks:
            freed = GpuSet(freed | victim.held)
        pool = Pool(world.cluster.shape, GpuSet((freed | world.open_to(task)) & self.member))
        level = pool.level(task.gpus)
        assert level is not None
        return pool.best_fit(task.gpus, level)


class ServicePreemption:
    """Looks for victims at one moment, for one waiting job after the other."""

    def __init__(self, world: SimulatedWorld, queue: WaitingQueue) -> None:
        self._world = world
        running = (task for task in world.running.values() if world.now - task.begin >= MIN_RUN_MS)
        self._knows = world.knowledge is not Knowledge.NONE
        key = rest if self._knows else queue.key
        self._by_key = sorted(((key(world, task), task.number, task) for task in running), reverse=True)
        self._rests = {number: left / 1000 for left, number, _ in self._by_key}  # seconds; read with knowledge only
        # For which nothing was found, by priority and size: those behind of that kind may stop no others.
        self._hopeless = set[tuple[int, int]]()

    def for_entry(self, entry: QueueEntry) -> VictimChoice | None:
        """Whose GPUs would give this job its best level; None where nobody's would."""
        task = entry[-1]
        kind = task.job.priority, task.gpus
        allowed = [] if kind in self._hopeless else self._allowed(entry)
        found = _cheapest(self._world, task, allowed, self._pays_for(task)) if allowed else None
        if found is None:
            self._hopeless.add(kind)
        return found

    def stopped(self) -> None:
        """Some have been: those who wait are looked at anew."""
        self._hopeless.clear()

    def _allowed(self, entry: QueueEntry) -> list[SimulatedJob]:
        """Who may be stopped for a waiting job: the first by key, the highest first; nobody of higher priority.

        With knowledge all may: what each set of victims still needs decides (`_pays_for`).
        """
        _, key, *_, task = entry
        end = len(self._by_key) if self._knows else bisect_left(self._by_key, True, key=lambda one: one[0] <= key)
        return [victim for _, _, victim in self._by_key[:end] if victim.held and victim.job.priority <= task.job.priority]

    def _pays_for(self, task: SimulatedJob) -> Callable[[Sequence[SimulatedJob]], bool]:
        """Whether stopping these for it pays: without knowledge the order has decided; with it the victims' rests do."""
        if not self._knows:
            return lambda _: True
        own, rests, world = rest(self._world, task) / 1000, self._rests, self._world
        return lambda victims: stopping_pays(
            own, [rests[victim.number] for victim in victims], max(cost(world, victim) for victim in victims)
        )


def rest(world: SimulatedWorld, task: SimulatedJob) -> float:
    """Milliseconds that a job still runs at its best level, by what it declares."""
    shape = world.cluster.shape
    slowdowns = world.setting.network.slowdowns(task.ratio, shape, task.gpus)
    return max(0.0, world.remaining(task)) * (1 + slowdowns.get(shape.levels.ideal(task.gpus), 0.0))


def _cheapest(
    world: SimulatedWorld, task: SimulatedJob, allowed: Sequence[SimulatedJob], pays: Callable[[Sequence[SimulatedJob]], bool]
) -> VictimChoice | None:
    """Victims, most service or work first, whose GPUs make room at the best level, where they leave the fewest GPUs idle.

    None where no member of that level would have room.
    """
    shape, now, gpus = world.cluster.shape, world.open_to(task), task.gpus
    best: tuple[int, int, VictimChoice] | None = None
    for index, member in enumerate(members(shape, shape.levels.ideal(gpus))):
        room = (now & member).bit_count()
        chosen, freed = [], 0
        for victim in allowed:
            if room >= gpus:
                break
            here = (victim.held & member).bit_count()
            if here:
                room += here
                freed += victim.gpus
                chosen.append(victim)
        better = room >= gpus and chosen and (best is None or (freed, index) < best[:2])
        if better and pays(chosen):
            best = freed, index, VictimChoice(chosen, member)
    return None if best is None else best[2]


MOST_GPUS = 64  # of a machine, for kompakt_core.placement
MIN_RUN_S = PreemptionRules().min_runtime_seconds  # what a TrainingJob has that says nothing


class PriorityPreemption:
    """Finds victims by priority, by the cluster's own rules; keeps what is the same from moment to moment."""

    def __init__(self, shape: ClusterShape) -> None:
        """Raises InvalidInput for machines larger than core plans on."""
        if max(shape.sizes) > MOST_GPUS:
            raise InvalidInput(
                f"machines of {max(shape.sizes)} GPUs: jobs of different priority stop each other on machines of at most "
                f"{MOST_GPUS}; leave the column priority empty"
            )
        graphs = {size: _alike(size) for size in set(shape.sizes)}
        self._shape = shape
        self._graphs = [graphs[size] for size in shape.sizes]
        self._labels = [self._labels_of(machine) for machine in range(len(shape.sizes))]

    def _labels_of(self, machine: int) -> dict[str, str]:
        labels = {LEVEL_LABELS[Level.RACK]: str(self._shape.racks[machine])}
        if self._shape.blocks is not None:
            labels[LEVEL_LABELS[Level.BLOCK]] = str(self._shape.blocks[machine])
        return labels

    def victims(self, world: SimulatedWorld, task: SimulatedJob) -> tuple[list[SimulatedJob], GpuSet] | float | None:
        """Whom to stop for a job that has no place, and the GPUs that it then gets; or from which second on that would help, as
        nobody is stopped before a minimum run time; None where it would not.
        """
        lower = [one for one in world.running.values() if one.job.priority < task.job.priority]
        if world.open_to(task).bit_count() + sum(one.gpus for one in lower) < task.gpus:
            return None

        def takes(level: Level) -> bool:
            return any(level is one for one, _ in self._shape.levels.sizes) and accepts(world, task, level)

        gangs = [self._running(one) for one in lower]
        found = preempt(self._snapshot(world.open_to(task)), _gang(task), task.job.priority, gangs, takes, world.now / 1000)
        if isinstance(found, NotBefore):
            return found.at
        return None if found is None else self._chosen(world, found)

    def _chosen(self, world: SimulatedWorld, found: PreemptionPlan) -> tuple[list[SimulatedJob], GpuSet]:
        gpus = (world.cluster.on_machine(int(seat.node), mask_of(seat.gpus)) for seat in found.plan.seats)
        return [world.running[int(one.job_uid)] for one in found.victims], GpuSet(sum(gpus))

    def _running(self, task: SimulatedJob) -> RunningGang:
        held = ClusterState.of(self._shape, task.held)
        pods = (PodHolding(_name(machine), held.free_of(machine)) for machine in self._shape.per_machine(task.held))
        since = task.begin / 1000
        return RunningGang(JobUid(str(task.number)), 1, task.job.priority, since, since + MIN_RUN_S, tuple(pods))

    def _snapshot(self, gpus: GpuSet) -> Snapshot:
        open_ = ClusterState.of(self._shape, gpus)
        parts = enumerate(zip(self._graphs, self._labels, strict=True))
        states = (
            NodeState(_name(machine), graph, GpuMask(graph.all_gpus & ~open_.free_of(machine)), labels)
            for machine, (graph, labels) in parts
        )
        return Snapshot({state.name: state for state in states})


def _alike(size: int) -> LinkGraph:
    """A machine of which the trace tells no links."""
    gpus = tuple(Gpu(GpuIndex(index), GpuUuid(f"GPU-{index}")) for index in range(size))
    pairs = combinations((gpu.index for gpu in gpus), 2)
    return LinkGraph(gpus, tuple(Link(a, b, LinkKind.SYS, 0, MegabytesPerSecond(1)) for a, b in pairs))


def _name(machine: int) -> NodeName:
    return NodeName(f"{machine:06}")


def _gang(task: SimulatedJob) -> Gang:
    workers = tuple(Worker(index, f"worker-{index}", PodUid(str(index)), 1) for index in range(task.gpus))
    return Gang(JobUid(str(task.number)), 1, workers, GpuRequest())
