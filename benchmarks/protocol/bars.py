"""The bars, and which of them a policy fails: ratios of paired runs, by column.

A ratio above 1 means that ours takes longer. A column of several traces has the geometric mean of their ratios, and a 90 %
interval of it (Student's t over logarithms). The rival of a column is the policy of the class that is best there, over all of its
traces: known only afterwards, so nobody could choose it. A column fails if its ratio is above the bar. It is doubtful if only the
upper end of its interval is: then more traces are needed to say.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

from benchmarks.protocol.entries import DECLARED, OURS, RIVALS, WRONG_2X, WRONG_4X
from benchmarks.protocol.figures import PolicyFigures
from benchmarks.protocol.runs import ColumnRun

LEAST_QUEUE_S: Final = 60.0  # of queue times as short as this nobody cares which is longer
# 95 % of Student's t lie below these, for 1 to 19 degrees of freedom: up to twenty traces, as many as a column has.
_T: Final = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729),
)

Figure = Callable[[PolicyFigures], float]
Runs = Mapping[str, Sequence[ColumnRun]]  # by column


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Of ours to the rival. `low`, `high`: the interval; the ratio itself for a single trace."""

    rival: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PolicyBar:
    """`mean`: no more than that over all columns, None = not asked; `most`: in none of them. `floored`: who is better is equal.

    A gain in one column does not make up for a loss in another where the rival is the best of a class. Against one rival it does.
    """

    name: str
    ours: str
    rivals: tuple[str, ...]
    figure: Figure
    mean: float | None
    most: float
    floored: bool = True


@dataclass(frozen=True, slots=True)
class JudgedBar:
    """`mean`: over columns, also where the bar asks for none. `failing`, `doubtful`: names of columns."""

    bar: PolicyBar
    ratios: Mapping[str, PairedRatio]
    mean: float
    failing: tuple[str, ...]
    doubtful: tuple[str, ...]

    @property
    def mean_held(self) -> bool:
        return self.bar.mean is None or self.mean <= self.bar.mean

    @property
    def held(self) -> bool:
        return self.mean_held and not self.failing


def completion(figures: PolicyFigures) -> float:
    return figures.avg_jct_s


def queue(figures: PolicyFigures) -> float:
    return max(figures.p99_queue_s, LEAST_QUEUE_S)


COMPLETION: Final = PolicyBar("completion time against the best of the class", OURS, RIVALS, completion, 1.01, 1.03)
QUEUE: Final = PolicyBar("p99 of queue time against the best of the class", OURS, RIVALS, queue, None, 1.1)
SHORTEST_FIRST: Final = PolicyBar("declared totals against sjf", DECLARED, ("sjf",), completion, 1.01, 1.03)
RIGHT: Final = PolicyBar("declared totals against none", DECLARED, (OURS,), completion, 1.0, 1.01, floored=False)
# What "graceful" means is ours to say: wrong totals are still no worse than none on average, and cost 3 % in no column.
TWICE: Final = PolicyBar("totals wrong by 2x against none", WRONG_2X, (OURS,), completion, 1.0, 1.03, floored=False)
FOURFOLD: Final = PolicyBar("totals wrong by 4x against none", WRONG_4X, (OURS,), completion, 1.0, 1.03, floored=False)
BARS: Final = (COMPLETION, QUEUE, SHORTEST_FIRST, RIGHT, TWICE, FOURFOLD)


def paired(runs: Sequence[ColumnRun], ours: str, rivals: Sequence[str], figure: Figure) -> PairedRatio:
    """Ours against the best of the rivals on these traces of one column."""
    totals = {rival: fmean(math.log(figure(run.figures[rival])) for run in runs) for rival in rivals}
    rival = min(totals, key=lambda name: (totals[name], name))
    logs = [math.log(figure(run.figures[ours]) / figure(run.figures[rival])) for run in runs]
    middle, half = fmean(logs), 0.0
    if len(logs) > 1:
        half = _T[len(logs) - 2] * stdev(logs) / math.sqrt(len(logs))
    return PairedRatio(rival, math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def judged(bar: PolicyBar, runs: Runs) -> JudgedBar:
    """A bar over all columns that were run; at least one."""
    ratios = {name: paired(each, bar.ours, bar.rivals, bar.figure) for name, each in runs.items()}
    failing = tuple(name for name, each in ratios.items() if each.ratio > bar.most)
    doubtful = tuple(name for name, each in ratios.items() if each.ratio <= bar.most < each.high)
    return JudgedBar(bar, ratios, mean_of(ratios.values(), bar.floored), failing, doubtful)


def mean_of(ratios: Iterable[PairedRatio], floored: bool) -> float:
    """Geometric mean over columns."""
    return math.exp(fmean(math.log(max(each.ratio, 1.0) if floored else each.ratio) for each in ratios))
