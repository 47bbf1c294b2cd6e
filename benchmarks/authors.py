"""Our policies under the rules of their authors' simulator, against that simulator's figures.

    python -m benchmarks.authors --trace sense_500jobs_poisson_1proc-week.json [--policies dally,tiresias] [--runs 9]

The trace is a file of aakash-sharma/cluster-sim (configuration/jobs); it has no licence, so it is not here. Prints per policy and
network the authors' figure, ours under their rules, and the difference; then what each rule moves, by itself and as the last one.

Both simulators are chaotic: of jobs that stand alike the rounding of a floating-point number decides which goes first, and a job
on a bad place keeps it. So each of ours is also run with durations that are up to NUDGE_S longer; `range` is the smallest and the
largest of these figures, and what a rule moves is told for their median.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.authors_figures import FIGURES, RATIOS, THEIR_RULES, AuthorsFigure
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.figures import Summary, summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting, SimulationRules, parse_rules
from kompakt_simulator.simulation import simulate

OUTER = 1, 8  # X of the network table
RESTART = "restart=0"
CHUNK = 1000  # iterations, on each GPU
NUDGE_S = 12  # about a chunk of the slowest model, 11.8 s of computing


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One figure of the authors, and ours for it: as it is, and with durations a little longer."""

    figure: AuthorsFigure
    at: int  # of OUTER
    own: Summary
    others: tuple[float, ...]

    def cells(self) -> Iterator[str]:
        """One line of the table."""
        theirs = self.figure.jct_s[self.at]
        every = sorted((self.own.avg_jct_s, *self.others))
        yield from (self.figure.label, str(OUTER[self.at]), f"{theirs:,}", f"{self.own.avg_jct_s:,.0f}")
        yield from (signed(self.own.avg_jct_s, theirs), f"{median(every):,.0f}", f"{every[0]:,.0f} to {every[-1]:,.0f}")
        yield f"{self.figure.comm_s[self.at]:,} / {self.own.comm_s_per_job:,.0f}"


def jobs_in(text: str) -> tuple[TraceJob, ...]:
    """The jobs of a trace of cluster-sim: whole chunks of iterations, each CHUNK times the time of one, on all GPUs at once."""
    try:
        jobs = tuple(_job(entry) for entry in json.loads(text))
        if not jobs:
            raise ValueError("no jobs")
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise InvalidInput(
            f"{error!r}: expected a JSON list of jobs with job_id, arrival_time, max_parallelism (at least 1), total_iterations, "
            "time_per_iteration and model"
        ) from None
    return jobs


def read_jobs(path: Path) -> tuple[TraceJob, ...]:
    """The jobs of such a file. Raises InvalidInput, too where it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}; expected a trace of cluster-sim") from None
    return jobs_in(text)


def figures_for(count: int, policies: Sequence[str]) -> list[AuthorsFigure]:
    """The authors' figures for a trace of so many jobs. Raises InvalidInput where there are none for it or for a policy."""
    if count not in FIGURES:
        raise InvalidInput(f"{count} jobs; there are figures for a trace of {', '.join(map(str, FIGURES))} jobs")
    unknown = [policy for policy in policies if policy not in THEIR_RULES]
    if unknown:
        raise InvalidInput(f"{', '.join(map(repr, unknown))}; expected some of: {', '.join(THEIR_RULES)}")
    return [figure for figure in FIGURES[count] if figure.policy in policies]


def _job(entry: dict[str, str]) -> TraceJob:
    gpus, iterations = int(entry["max_parallelism"]), int(entry["total_iterations"])
    chunk_ms = CHUNK * float(entry["time_per_iteration"]) * 1000
    submit = Milliseconds(round(float(entry["arrival_time"]) * 1000))
    duration = Milliseconds(math.ceil(math.ceil(iterations / (CHUNK * gpus)) * chunk_ms))
    return TraceJob(int(entry["job_id"]), submit, duration, gpus, entry["model"], chunk_ms=chunk_ms)


def setting_of(figure: AuthorsFigure, outer: int, rules: Sequence[str]) -> Setting:
    """Ours, with these rules of theirs."""
    network = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 4 * outer}, RATIOS)
    switched = ",".join(rule for rule in rules if rule != RESTART)
    setting = Setting(network=network, timers=figure.timers, rules=parse_rules(switched) if switched else SimulationRules())
    return replace(setting, restart_s=0) if RESTART in rules else setting


def run(jobs: Sequence[TraceJob], policy: str, setting: Setting) -> Summary:
    cluster = ClusterState.of(ClusterShape.grid(4, 4, 8))
    return summarize(simulate(jobs, cluster, POLICIES[policy], PLACEMENTS["levels"], setting), setting.rules)


def nudged(jobs: Sequence[TraceJob], seed: int) -> tuple[TraceJob, ...]:
    """The same jobs, each by chance up to NUDGE_S longer."""
    chance = random.Random(seed)
    return tuple(replace(job, duration=Milliseconds(job.duration + chance.randrange(NUDGE_S * 1000))) for job in jobs)


def averages(jobs: Sequence[TraceJob], figure: AuthorsFigure, outer: int, rules: Sequence[str], runs: int) -> tuple[float, ...]:
    """Average completion times of nudged jobs; the seed is also that of the policy's own chance."""
    setting = setting_of(figure, outer, rules)
    return tuple(run(nudged(jobs, seed), figure.policy, replace(setting, seed=seed)).avg_jct_s for seed in range(1, runs + 1))


def signed(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.1f} %"


def table(*heads: str) -> None:
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")


def line(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def compare(jobs: Sequence[TraceJob], figures: Sequence[AuthorsFigure], runs: int) -> None:
    table("policy", "X", "authors, s", "ours by their rules", "difference", "median", "range", "comm s/job: theirs / ours")
    for figure in figures:
        for at, outer in enumerate(OUTER):
            rules = THEIR_RULES[figure.policy]
            own = run(jobs, figure.policy, setting_of(figure, outer, rules))
            line(*MeasuredRow(figure, at, own, averages(jobs, figure, outer, rules, runs)).cells())


def attribute(jobs: Sequence[TraceJob], figures: Sequence[AuthorsFigure], runs: int) -> None:
    table("policy", "X", "rule of theirs", "our rules and this one", "their rules without this one")
    for figure in figures:
        for outer in OUTER:
            rules = THEIR_RULES[figure.policy]
            ours, theirs = (median(averages(jobs, figure, outer, some, runs)) for some in ((), rules))
            for rule in rules:
                alone = median(averages(jobs, figure, outer, [rule], runs))
                without = median(averages(jobs, figure, outer, [one for one in rules if one != rule], runs))
                line(figure.label, str(outer), f"`{rule}`", signed(alone, ours), signed(without, theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="a file of configuration/jobs of cluster-sim")
    parser.add_argument("--policies", default=",".join(THEIR_RULES))
    parser.add_argument("--runs", type=int, default=9, help="with durations a little longer, for each figure")
    parser.add_argument("--no-attribution", action="store_true", help="the first table only")
    given = parser.parse_args()
    try:
        jobs = read_jobs(given.trace)
        figures = figures_for(len(jobs), given.policies.split(","))
    except InvalidInput as error:
        parser.error(str(error))
    compare(jobs, figures, given.runs)
    if not given.no_attribution:
        attribute(jobs, figures, given.runs)


if __name__ == "__main__":
    main()
