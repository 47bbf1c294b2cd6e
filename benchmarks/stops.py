"""Whom kompakt stops for whom on a column of the protocol, by GPUs and by the ranks that both have at that moment.

    python -m benchmarks.stops --column philly-2869ce-flat [--top 6]

Two runs without declared totals: the order as it is learnt, and as it would be if it knew from the beginning how long jobs live.

The order serves who is likeliest to end for the GPU time given (kompakt_core.policy.order). It knows a job's service by bins, and
all jobs of a bin rank alike. So a stop is told by two questions: whether the ranks say at all that who comes is likelier to end
than who goes, and whether who goes has just entered a bin that ranks behind. Jobs of like service that stop each other at the
beginning of a bin take turns, whatever is true of their ends.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.authors import line, table
from benchmarks.losses import of_column
from benchmarks.policies import BASE
from benchmarks.protocol.columns import BY_NAME
from kompakt_core.policy.order import BINS, bin_of, ranks
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import SimulatedJob, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import SchedulingPolicy
from kompakt_simulator.schedulers.kompakt import LOOK_EVERY_MS, KompaktScheduler
from kompakt_simulator.schedulers.waiting_queue import CLASS, HOUR_MS, QueueEntry, WaitingQueue
from kompakt_simulator.simulation import FinishedJob, SimulationResult, simulate
from kompakt_simulator.world import SimulatedWorld

LOOK_HOURS: Final = LOOK_EVERY_MS / HOUR_MS


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two jobs of a stop. `service`: GPU-hours of running; lower ranks go first."""

    number: int
    gpus: int
    service: float
    rank: int

    @property
    def entered(self) -> bool:
        """Whether its bin began after the scheduler last looked for victims: then the bin's rank is why it is stopped now."""
        begun = BINS[bin_of(self.service)]
        return begun > 0 and self.service - begun <= self.gpus * LOOK_HOURS


@dataclass(frozen=True, slots=True)
class Stop:
    """`at`: milliseconds."""

    at: int
    stopped: Side
    comes: Side


class WatchedScheduler(KompaktScheduler):
    """The scheduler of `kompakt`, which also notes its stops. For jobs of one priority that declare nothing."""

    def __init__(self, stops: list[Stop], queue: WaitingQueue | None = None) -> None:
        """`queue`: another order than the one that is learnt."""
        super().__init__()
        self._stops = stops
        self._queue = queue or self._queue

    def _assign(self, world: SimulatedWorld, entry: QueueEntry, gpus: GpuSet, victims: Iterable[SimulatedJob] = ()) -> None:
        victims = tuple(victims)
        comes = self._side(world, entry[-1])
        self._stops += [Stop(world.now, self._side(world, victim), comes) for victim in victims]
        super()._assign(world, entry, gpus, victims)

    def _side(self, world: SimulatedWorld, task: SimulatedJob) -> Side:
        return Side(task.number, task.gpus, service(world, task), int(self._queue.key(world, task) // CLASS))


def service(world: SimulatedWorld, task: SimulatedJob) -> float:
    """GPU-hours of running until now."""
    return task.gpus * task.running(world.now) / HOUR_MS


class KnownLives(WaitingQueue):
    """The same order, but of the services that all jobs of the trace come to in the end: nothing is left to learn."""

    def __init__(self, services: Iterable[float]) -> None:
        super().__init__()
        self._ranks = ranks(services, ())

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """The lowest goes first."""
        return self._ranks[bin_of(service(world, task))] * CLASS + task.job.submit

    def learn(self, world: SimulatedWorld, ended: Sequence[SimulatedJob]) -> bool:
        """Never anything new."""
        return False


def services(finished: Iterable[FinishedJob]) -> list[float]:
    """What each job came to in GPU-hours, communication at the places that it had included."""
    return [done.job.gpus * (done.job.duration + done.comm) / HOUR_MS for done in finished]


def watched(
    jobs: Sequence[TraceJob], shape: ClusterShape, network: Network, queue: WaitingQueue | None = None
) -> tuple[SimulationResult, list[Stop]]:
    """What kompakt makes of these jobs in the setting of benchmarks.policies, and its stops; `queue`: see WatchedScheduler."""
    stops: list[Stop] = []
    policy = SchedulingPolicy("kompakt", lambda _place, _setting: WatchedScheduler(stops, queue))
    return simulate(jobs, ClusterState.of(shape), policy, PLACEMENTS["levels"], replace(BASE, network=network)), stops


def by_gpus(stops: Iterable[Stop]) -> dict[tuple[int, int], list[Stop]]:
    """By the GPUs of who is stopped and of who comes, the most first."""
    found: dict[tuple[int, int], list[Stop]] = {}
    for stop in stops:
        found.setdefault((stop.stopped.gpus, stop.comes.gpus), []).append(stop)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def report(stops: Sequence[Stop], top: int) -> None:
    """One table, of all stops and of the `top` commonest pairs of sizes."""
    table("stopped, for", "stops", "of equal rank", "in a bin just entered", "a job without service comes")
    pairs = {f"{gone} GPUs, for {comes}": those for (gone, comes), those in list(by_gpus(stops).items())[:top]}
    for name, those in {"all": list(stops), **pairs}.items():
        alike = sum(stop.stopped.rank == stop.comes.rank for stop in those)
        entered = sum(stop.stopped.entered and stop.stopped.rank > stop.comes.rank for stop in those)
        line(name, str(len(those)), str(alike), str(entered), str(sum(stop.comes.service == 0 for stop in those)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--column", choices=BY_NAME, metavar="NAME", required=True, help="of benchmarks.policies --protocol")
    parser.add_argument("--top", type=int, default=6, help="pairs of sizes")
    given = parser.parse_args()
    trace = of_column(given.column)
    learnt, stops = watched(*trace)
    known, others = watched(*trace, KnownLives(services(learnt.finished)))
    for name, result, those in (("learnt", learnt, stops), ("known", known, others)):
        print(f"\nhow long jobs live is {name}: {summarize(result).avg_jct_s:,.0f} s")
        report(those, given.top)


if __name__ == "__main__":
    main()
