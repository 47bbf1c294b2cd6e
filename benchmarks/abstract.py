"""In which setting waiting gains most: how far Dally's published maxima can be had from public facts.

    python -m benchmarks.abstract [--workers 1] [--rows FILE] [--traces ...] [--clusters ...] [--outer ...] [--load ...]
        [--mix ...]

The abstract (arXiv 2401.16492): up to 69 % shorter makespan, up to 83 % shorter average completion time and up to 98 % less
communication than the prevailing consolidation-based methods, in a congested network; simulated. Which cluster, load, network,
models and baseline each maximum belongs to, it does not say. So this sweeps what public facts leave open (traces, racks, how
much slower the network between racks is, load, models) over `tiresias` and `gandiva` as the methods compared with, and prints
for each figure the setting of its maximum, for `dally` (tuned, and 12,24 leases) and for `kompakt`, with median and least of
all settings beside it. Ratios of communication to computing: benchmarks.policies.

Load: `traced` = as the trace has it; `batch` = everything is submitted at once; `half` = at half the pace.
Mix: `six` = the model that the trace names, else one of the six by the job's number; `light` = ResNet-50 and ResNet-18 only,
which Tiresias lets spread anywhere; `heavy` = VGG and AlexNet only, which it makes wait for their best level.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.policies import BASE, MODELS, SIX
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate
from kompakt_simulator.traces.reading import load_trace

TRACES: Final = ("muri-cluster", "philly-0e4a51", "philly-ee9e8c", "gavel-0e4a51", "shockwave-900")
CLUSTERS: Final = ("2x8x8", "4x4x8", "8x2x8", "8x4x4")  # 128 GPUs each; 4x4x8 is the cluster of the published code's own runs
OUTER: Final = (4.0, 8.0, 32.0, 128.0)  # how many times slower than inside a rack it is between racks
LOADS: Final = {"traced": 1.0, "batch": 0.0, "half": 2.0}  # by what submissions are multiplied
MIXES: Final[dict[str, tuple[float, ...]]] = {"six": (), "light": (0.08, 0.06), "heavy": (0.6, 0.5)}  # c of all jobs; see SIX
OURS: Final = ("dally", "dally 12,24", "kompakt")
THEIRS: Final = ("tiresias", "gandiva")
FIGURES: Final = {  # published percent, words, seconds of a unit, its name
    "makespan_s": (69, "makespan", 3600, "h"),
    "avg_jct_s": (83, "average completion time", 3600, "h"),
    "comm_s_per_job": (98, "communication a job", 1, "s"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """One world to run policies in."""

    trace: str
    cluster: str
    outer: float
    load: str
    mix: str = "six"


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy reached in one world: seconds."""

    place: Place
    policy: str
    makespan_s: float
    avg_jct_s: float
    comm_s_per_job: float


@dataclass(frozen=True, slots=True)
class Saving:
    """A saving of `policy` against `baseline` in one figure, as a share of the baseline's; below 0 it costs more."""

    figure: str
    policy: str
    baseline: str
    saved: float
    ours: Row
    theirs: Row


def run(place: Place) -> list[Row]:
    """All policies in one world."""
    network = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: place.outer}, MODELS, MIXES[place.mix] or SIX)
    return [_row(place, label, network) for label in (*OURS, *THEIRS)]


def _row(place: Place, label: str, network: Network) -> Row:
    name, _, timers = label.partition(" ")
    setting = replace(BASE, network=network, timers=(12, 24) if timers else None)
    cluster = ClusterState.of(read_shape(place.cluster))
    told = summarize(simulate(_jobs(place.trace, place.load, place.mix), cluster, POLICIES[name], PLACEMENTS["levels"], setting))
    if told.violations:
        raise SystemExit(f"{place} {label}: {told.violations} rules were broken")
    return Row(place, label, told.makespan_s, told.avg_jct_s, told.comm_s_per_job)


@cache
def _jobs(trace: str, load: str, mix: str) -> tuple[TraceJob, ...]:
    jobs = (replace(job, submit=Milliseconds(round(job.submit * LOADS[load]))) for job in load_trace(trace).jobs)
    return tuple(replace(job, model="") if MIXES[mix] else job for job in jobs)


def savings(rows: Iterable[Row], figure: str, policy: str, baseline: str) -> list[Saving]:
    """What `policy` saves of this figure against `baseline` in the same world, least first."""
    by = {(row.place, row.policy): row for row in rows}
    found = [
        Saving(figure, policy, baseline, 1 - getattr(ours, figure) / getattr(theirs, figure), ours, theirs)
        for (place, name), ours in by.items()
        if name == policy
        if (theirs := by.get((place, baseline))) is not None and getattr(theirs, figure) > 0
    ]
    return sorted(found, key=lambda one: one.saved)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The answer in Markdown: for each published maximum what each of OURS reaches at most against each of THEIRS, and where."""
    yield "| figure | policy | at most | against | trace, cluster, load, mix | racks | from -> to | median | least | saves in |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for figure in FIGURES:
        for policy, baseline in product(OURS, THEIRS):
            found = savings(rows, figure, policy, baseline)
            if found:
                yield _line(found)


def _line(found: Sequence[Saving]) -> str:
    one = found[-1]
    published, words, unit, name = FIGURES[one.figure]
    place = one.ours.place
    values = [f"{getattr(row, one.figure) / unit:,.1f}" for row in (one.theirs, one.ours)]
    cells = (f"{words}, published -{published} %", one.policy, _percent(one), one.baseline)
    where = f"{place.trace}, {place.cluster}, {place.load}, {place.mix} | {place.outer:g}x | {' -> '.join(values)} {name}"
    saves = f"{sum(each.saved > 0 for each in found)} of {len(found)}"
    return f"| {' | '.join(cells)} | {where} | {_percent(found[len(found) // 2])} | {_percent(found[0])} | {saves} |"


def _percent(one: Saving) -> str:
    return f"{-one.saved * 100:+.1f} %"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, values in (("traces", TRACES), ("clusters", CLUSTERS), ("outer", OUTER), ("load", LOADS), ("mix", MIXES)):
        parser.add_argument(f"--{name}", default=",".join(map(str, values)))
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--rows", type=Path, help="a CSV file for every single run; runs that stand in it are not made again, but count"
    )
    return parser.parse_args()


def main() -> None:
    given = arguments()
    outer = map(float, given.outer.split(","))
    axes = product(given.traces.split(","), given.clusters.split(","), outer, given.load.split(","), given.mix.split(","))
    rows = _read(given.rows) if given.rows and given.rows.exists() else []
    ready = {row.place for row in rows}
    with ProcessPoolExecutor(given.workers) as pool:
        for done in pool.map(run, [place for place in (Place(*axis) for axis in axes) if place not in ready]):
            rows += done
            if given.rows:
                _write(given.rows, rows)
    print(*table(rows), sep="\n")


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        cells = list(csv.reader(file))[1:]
    return [Row(Place(c[0], c[1], float(c[2]), c[3], c[4]), c[5], *map(float, c[6:])) for c in cells]


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(field.name for field in fields(Place)), *(field.name for field in fields(Row)[1:])])
        writer.writerows([*astuple(row.place), *astuple(row)[1:]] for row in rows)


if __name__ == "__main__":
    main()
