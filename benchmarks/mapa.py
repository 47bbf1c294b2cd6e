"""MAPA's experiment: a queue of ring jobs on one machine, under its policies and ours.

    python -m benchmarks.mapa [--jobs 300] [--seeds 20] [--communication 0.3]

After Ranganath et al., SC'21, and the generator in its published code: all jobs wait from the start, first come first
served, the head of the queue blocks; sizes 2 to 5, service times 5 to 24, both uniform; two of three jobs are sensitive
(AlexNet, Inception-v3, ResNet-50, VGG-16 against GoogleNet, CaffeNet). Its generator has no seed, so its own lists cannot be
rebuilt. Machines with its bandwidths: a pair without NVLink 10 GB/s, an NVLink 20 (P100) or 25 (V100), two lanes 50.

"ours" never lets a job wait that fits; "ours, NVLink" are the same jobs with requiredLink NVLink on the sensitive ones, which
then wait rather than cross PCIe (as MAPA's regression makes some wait without being asked). Last come two bounds for whoever
lets no job wait that fits: `foresight` and `lookahead` (mapa_bounds.py), each for shares by sum and by slowest link.

Model of execution time (ours; its job logs are not published): a sensitive job that spends the share c of its service time
in communication on the ideal ring takes service * (1 - c + c * ideal / achieved). Bandwidth is that of the ring's slowest
link, since all steps of a ring run at its pace. Insensitive jobs take their service time. Virtual time: load does not matter.
"""

import argparse
import heapq
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import mean, quantiles

from benchmarks.mapa_bounds import Lookahead, Start, foresight
from kompakt_core.ids import GpuIndex, GpuUuid, indices_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.placement.choose import choose
from kompakt_core.placement.mapa2021 import mapa2021
from kompakt_core.placement.model import Choice, GpuRequest, PlacementPolicy
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_core.topology.machines import machine

BAR = 0.993  # mean share of the ideal ring bandwidth that sensitive jobs must get under our policy
PCIE = 10_000


@dataclass(frozen=True, slots=True)
class Job:
    gpus: int
    service: int
    sensitive: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What one job got: shares of the ideal ring by sum and by slowest link, its execution time over its service time, and
    which earlier jobs ended between the start before and its own.
    """

    job: Job
    by_sum: float
    by_slowest: float
    slowdown: float
    ended: frozenset[int] = frozenset()


Pick = Callable[[LinkGraph, int, Job], int | None]  # the set it gets of the free GPUs, or None: it waits


def graph_of(size: int, lanes: Mapping[tuple[int, int], int], per_lane: int, socket: int) -> LinkGraph:
    """A machine with NVLinks of so many lanes, `socket` GPUs on each socket."""
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(f"gpu-{i}"), i // socket) for i in range(size))
    links = []
    for a, b in combinations(range(size), 2):
        count = lanes.get((a, b), 0)
        kind = LinkKind.NVLINK if count else LinkKind.SYS
        links.append(Link(GpuIndex(a), GpuIndex(b), kind, count, count * per_lane if count else PCIE))
    return LinkGraph(gpus, tuple(links))


def machines() -> dict[str, tuple[LinkGraph, int]]:
    """The three machines of MAPA's runs, and how many GPUs a socket has."""
    cube = {name: {(int(x.a), int(x.b)): x.lanes for x in machine(name).links} for name in ("dgx1-v100", "dgx1-p100")}
    triangles = {pair: 2 for one in ((0, 1, 2), (3, 4, 5)) for pair in combinations(one, 2)}
    return {
        "dgx-v": (graph_of(8, cube["dgx1-v100"], 25_000, 4), 4),
        "dgx-p": (graph_of(8, cube["dgx1-p100"], 20_000, 4), 4),
        "summit": (graph_of(6, triangles, 25_000, 3), 3),
    }


def first(graph: LinkGraph, free: int, job: Job) -> int | None:
    """MAPA's baseline: the first GPUs that are free."""
    return _lowest(free, job.gpus)


def _lowest(free: int, size: int) -> int | None:
    gpus = indices_of(free)[:size]
    return sum(1 << gpu for gpu in gpus) if len(gpus) == size else None


def socket_first(socket: int) -> Pick:
    """Its stand-in for topology-aware placement: inside one socket if possible, else as the baseline."""

    def pick(graph: LinkGraph, free: int, job: Job) -> int | None:
        sockets = [((1 << socket) - 1) << start for start in range(0, graph.size, socket)]
        inside = (_lowest(free & one, job.gpus) for one in sockets)
        return next((mask for mask in inside if mask is not None), _lowest(free, job.gpus))

    return pick


def by_request(gpu_request: GpuRequest) -> Pick:
    """Our choice for a request; the job says whether it is sensitive."""

    def pick(graph: LinkGraph, free: int, job: Job) -> int | None:
        found = choose(graph, free, job.gpus, replace(gpu_request, sensitive=job.sensitive))
        return found.mask if isinstance(found, Choice) else None

    return pick


def waiting(graph: LinkGraph, free: int, job: Job) -> int | None:
    """Ours for a job with requiredLink NVLink, where the empty machine can do that: it waits rather than crossing PCIe."""
    ring = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=job.sensitive)
    strict = replace(ring, required_link="NVLink")
    able = job.sensitive and isinstance(choose(graph, graph.all_gpus, job.gpus, strict), Choice)
    found = choose(graph, free, job.gpus, strict if able else ring)
    return found.mask if isinstance(found, Choice) else None


@cache
def _mapa(graph: LinkGraph, free: int, size: int, sensitive: bool) -> int | None:
    found = mapa2021(graph, free, size, GpuRequest(Pattern.RING, sensitive=sensitive))
    return found.mask if isinstance(found, Choice) else None


def mapa(graph: LinkGraph, free: int, job: Job) -> int | None:
    """Its preserve policy with the published regression."""
    return _mapa(graph, free, job.gpus, job.sensitive)


def looking_ahead(all_gpus: int, shares: list[float]) -> Pick:
    """The best policy for jobs drawn as these are; it remembers what it gave out."""
    lookahead = Lookahead(all_gpus, shares)
    given: list[int] = []

    def pick(graph: LinkGraph, free: int, job: Job) -> int | None:
        given[:] = [mask for mask in given if not mask & free]
        given.append(lookahead.choose(given, job.gpus, job.sensitive))
        return given[-1]

    return pick


def policies(socket: int) -> dict[str, Pick]:
    """All policies, the baseline first."""
    ring = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE)
    return {
        "first": first,
        "socket-first": socket_first(socket),
        "greedy": by_request(replace(ring, policy=PlacementPolicy.BEST, measure=Measure.SUM)),
        "mapa2021": mapa,
        "ours": by_request(ring),
        "ours, NVLink": waiting,
        "ours, by sum": by_request(replace(ring, measure=Measure.SUM)),
    }


def job_list(count: int, seed: int) -> list[Job]:
    """Jobs as the generator draws them."""
    rng = random.Random(seed)
    return [Job(rng.randint(2, 5), rng.randint(5, 24), rng.randrange(6) < 4) for _ in range(count)]


def play(graph: LinkGraph, pick: Pick, jobs: Iterable[Job], share: float) -> tuple[list[Run], float]:
    """All jobs through the machine, in order; their runs and the time when the last one ends."""
    free, now, last = int(graph.all_gpus), 0.0, 0.0
    ends: list[tuple[float, int, int]] = []
    runs: list[Run] = []
    for job in jobs:
        ended = []
        while (mask := pick(graph, free, job) if free.bit_count() >= job.gpus else None) is None:
            if not ends:
                sys.exit(f"{job} is never placed, not even on the empty machine")
            now, back, number = heapq.heappop(ends)
            free |= back
            ended.append(number)
        run = replace(rate(graph, mask, job, share), ended=frozenset(ended))
        end = now + job.service * run.slowdown
        heapq.heappush(ends, (end, mask, len(runs)))
        runs.append(run)
        free, last = free & ~mask, max(last, end)
    return runs, last


def rate(graph: LinkGraph, mask: int, job: Job, share: float) -> Run:
    """What a set gives a job."""
    by_sum, by_slowest = (_share(graph, mask, job.gpus, measure) for measure in (Measure.SUM, Measure.BOTTLENECK))
    return Run(job, by_sum, by_slowest, 1 - share + share / by_slowest if job.sensitive else 1.0)


def _share(graph: LinkGraph, mask: int, size: int, measure: Measure) -> float:
    table = table_for(graph, Pattern.RING, measure=measure)
    return table.value(mask) / table.value(table.best(graph.all_gpus, size))


def report(name: str, graph: LinkGraph, socket: int, jobs: list[list[Job]], share: float) -> dict[str, float]:
    """Print a machine's table; returns each policy's mean share by sum."""
    print(f"\n{name}: sensitive jobs; execution time in units of the service time, and how much less than first's")
    print(f"{'policy':14} {'sum':>6} {'slowest':>8}   {'p50':>12} {'p75':>12} {'p90':>12} {'worst':>12}   {'all jobs done':>14}")
    baseline: list[float] = []
    done_first, shares = 0.0, {}
    for policy, pick in policies(socket).items():
        plays = [play(graph, pick, one, share) for one in jobs]
        runs = [run for found, _ in plays for run in found if run.job.sensitive]
        done = mean(last for _, last in plays)
        times = _quantiles([run.slowdown for run in runs])
        baseline, done_first = baseline or times, done_first or done
        cells = " ".join(f"{time:5.2f} {1 - time / base:5.1%}".rjust(12) for time, base in zip(times, baseline, strict=True))
        by_sum, by_slowest = mean(run.by_sum for run in runs), mean(run.by_slowest for run in runs)
        print(f"{policy:14} {by_sum:6.3f} {by_slowest:8.3f}   {cells}   {done:6.0f} {1 - done / done_first:6.1%}")
        shares[policy] = by_sum
    return shares


def bounds(name: str, graph: LinkGraph, jobs: list[list[Job]], share: float) -> None:
    """Print the best with foresight and the best of a model without it, beside ours with either measure first."""
    ring = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE)
    ours, by_sum = (
        [play(graph, by_request(gpu_request), one, share) for one in jobs]
        for gpu_request in (ring, replace(ring, measure=Measure.SUM))
    )
    print(f"{name:8} {'ours':30} {_cells(ours)}")
    print(f"{name:8} {'ours, by sum':30} {_cells(by_sum)}")
    for measure, words in ((Measure.SUM, "sum"), (Measure.BOTTLENECK, "slowest")):
        shares = [_share(graph, mask, mask.bit_count(), measure) if mask & (mask - 1) else 0.0 for mask in range(1 << graph.size)]
        pick = looking_ahead(int(graph.all_gpus), shares)
        print(f"{name:8} {f'lookahead, by {words}':30} {_cells([play(graph, pick, one, share) for one in jobs])}")
        known = sum(foresight(int(graph.all_gpus), _starts(runs), shares) for runs, _ in ours)
        most = known / sum(run.job.sensitive for runs, _ in ours for run in runs)
        print(f"{name:8} {f'foresight, by {words}':30} " + (f"{most:6.4f}" if measure is Measure.SUM else f"{'':6} {most:8.4f}"))


def _starts(runs: list[Run]) -> list[Start]:
    return [Start(run.job.gpus, run.job.sensitive, run.ended) for run in runs]


def _cells(plays: list[tuple[list[Run], float]]) -> str:
    runs = [run for one, _ in plays for run in one if run.job.sensitive]
    by_sum, by_slowest = mean(run.by_sum for run in runs), mean(run.by_slowest for run in runs)
    return f"{by_sum:6.4f} {by_slowest:8.4f} {mean(last for _, last in plays):14.0f}"


def _quantiles(values: list[float]) -> list[float]:
    hundredths = quantiles(values, n=100)
    return [hundredths[49], hundredths[74], hundredths[89], max(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--communication", type=float, default=0.3, help="share of a sensitive job's service time on the ideal ring"
    )
    arguments = parser.parse_args()
    jobs = [job_list(arguments.jobs, seed) for seed in range(arguments.seeds)]
    print("Shares of the ideal ring of the job's size on the empty machine, by sum of links and by slowest link: means.")
    print(
        "MAPA's abstract: 12.4 % faster at the 75th percentile, worst case up to 35 % less, against its baseline, as it ran them."
    )
    shares = {}
    for name, (graph, socket) in machines().items():
        shares[name] = report(name, graph, socket, jobs, arguments.communication)
    print(f"\nmean share by sum, bar {BAR}:")
    for policy in ("ours", "ours, NVLink"):
        words = (
            f"{name} {one[policy]:.3f} ({'reached' if one[policy] >= BAR else 'not reached'})" for name, one in shares.items()
        )
        print(f"  {policy:14} " + ", ".join(words))
    print("\nbounds where no job waits that fits; foresight with the starts and ends of 'ours'")
    print(f"{'':39} {'sum':>6} {'slowest':>8} {'all jobs done':>14}")
    for name, (graph, _) in machines().items():
        bounds(name, graph, jobs, arguments.communication)


if __name__ == "__main__":
    main()
