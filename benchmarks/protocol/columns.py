"""The thirty columns, as data: on which traces, clusters, loads and networks policies are compared, and by which seeds.

Constants of a policy may be chosen with the first part in sight, never with the other two. Whoever chooses on generated traces
takes seeds of their own, never these.

`seen`: all traces of benchmarks/policies.py. kompakt's constants were chosen with ten of these columns and the flat ones of three
more traces in sight (decisions 0096 and 0097). `held out`: virtual clusters of the Philly trace that no constant was chosen on,
drawn by HELD_OUT_SEED from POOL: those with submissions in October and November 2017 that keep at least 20 GPUs busy on average
and have at most 10,000 jobs, without the two that are seen. `generated`: drawn by GENERATED_SEEDS from distributions that are
fitted to a trace of the first part (generator.py).
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from benchmarks.policies import CLUSTERS, MODELS, NETWORKS, SIX
from benchmarks.protocol.generator import WantedTrace, fitted, generated
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.jobs import TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.traces.reading import load_trace

HELD_OUT_SEED: Final = 318  # the number of the decision, so that nobody picked it by its results
GENERATED_SEEDS: Final = tuple(range(318_001, 318_021))
QUICK_TRACES: Final = 3  # of each generated column, instead of all seeds
POOL: Final = ("103959", "2869ce", "6c71a0", "7f04ca", "b436b2")
HELD_OUT: Final = tuple(sorted(random.Random(HELD_OUT_SEED).sample(POOL, 3)))
# Four racks of machines of 8 GPUs, as many as bring the load nearest to 0.85.
_HELD_OUT_CLUSTERS: Final = {"103959": "4x1x8", "2869ce": "4x2x8", "6c71a0": "4x2x8", "7f04ca": "4x2x8", "b436b2": "4x1x8"}
_OUTER: Final = {name: network.levels[Level.CLUSTER] for name, network in NETWORKS.items()}  # by the network's name
_FOLDER: Final = Path(__file__).parent / "data"


class Part(StrEnum):
    SEEN = "seen"
    HELD_OUT = "held out"
    GENERATED = "generated"


@dataclass(frozen=True, slots=True)
class ProtocolColumn:
    """`source`: the trace, or the one that it is fitted to. `outer`: level factor of the cluster, 1 being a rack's.

    `jobs`, `load`, `gang_factor`: of a generated column, see WantedTrace; 0 and 1 otherwise.
    """

    name: str
    part: Part
    source: str
    cluster: str
    outer: float
    jobs: int = 0
    load: float = 0.0
    gang_factor: int = 1

    def seeds(self, quick: bool = False) -> tuple[int, ...]:
        """One for each trace of the column; a trace that is read, not generated, has the seed 0."""
        if self.part is not Part.GENERATED:
            return (0,)
        return GENERATED_SEEDS[:QUICK_TRACES] if quick else GENERATED_SEEDS

    def trace(self, seed: int) -> tuple[TraceJob, ...]:
        """The jobs of one trace of the column."""
        if self.part is Part.HELD_OUT:
            return load_trace(str(_FOLDER / f"philly_{self.source}_oct_nov.csv.gz")).jobs
        jobs = load_trace(self.source).jobs
        if self.part is Part.SEEN:
            return jobs
        wanted = WantedTrace(self.jobs, read_shape(self.cluster).gpus, self.load, self.gang_factor)
        return generated(fitted(jobs), wanted, seed)

    def network(self) -> Network:
        return Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: self.outer}, MODELS, SIX)


def _seen() -> tuple[ProtocolColumn, ...]:
    pairs = [(trace, name) for trace in CLUSTERS for name in _OUTER]
    return tuple(ProtocolColumn(f"{trace}-{name}", Part.SEEN, trace, CLUSTERS[trace], _OUTER[name]) for trace, name in pairs)


def _held_out() -> tuple[ProtocolColumn, ...]:
    pairs = [(vc, name) for vc in HELD_OUT for name in _OUTER]
    return tuple(
        ProtocolColumn(f"philly-{vc}-{name}", Part.HELD_OUT, vc, _HELD_OUT_CLUSTERS[vc], _OUTER[name]) for vc, name in pairs
    )


def _made(name: str, source: str, cluster: str, outer: float, jobs: int, load: float, gang_factor: int = 1) -> ProtocolColumn:
    return ProtocolColumn(name, Part.GENERATED, source, cluster, outer, jobs, load, gang_factor)


COLUMNS: Final = (
    *_seen(),
    *_held_out(),
    _made("made-64-load50-x4", "philly-ee9e8c", "2x4x8", 4, 500, 0.5),
    _made("made-64-load120-x32", "philly-ee9e8c", "2x4x8", 32, 500, 1.2),
    _made("made-128-load90-x4", "muri-trace4", "4x4x8", 4, 700, 0.9),
    _made("made-128-load100-x128", "shockwave-900", "4x4x8", 128, 900, 1.0),
    _made("made-256-load100-x8", "muri-trace1", "4x8x8", 8, 700, 1.0),
    _made("made-512-load70-x32", "muri-cluster", "8x8x8", 32, 700, 0.7, 2),
    _made("made-1024-load90-x4", "philly-0e4a51", "8x16x8", 4, 800, 0.9, 16),
    _made("made-4096-load110-x32", "philly-ee9e8c", "16x32x8", 32, 900, 1.1, 16),
)
BY_NAME: Final = {column.name: column for column in COLUMNS}


def chosen(names: str | None) -> tuple[ProtocolColumn, ...]:
    """The columns of these names, comma-separated; all for None. Raises InvalidInput with the names that there are."""
    if names is None:
        return COLUMNS
    unknown = [name for name in names.split(",") if name not in BY_NAME]
    if unknown:
        raise InvalidInput(f"column {unknown[0]!r:.60}; expected some of: {', '.join(BY_NAME)}")
    return tuple(column for column in COLUMNS if column.name in names.split(","))
