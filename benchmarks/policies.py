"""How policies compare on real traces, in a flat and in a congested network, with one setting for all of them.

    python -m benchmarks.policies [--traces muri-cluster,philly-0e4a51] [--policies kompakt,dally] [--pages DIRECTORY]
    python -m benchmarks.policies --protocol [--quick] [--resume FOLDER] [--columns NAMES] [--processes 2] [--so-far]

Prints a Markdown table as it goes: average completion time in hours, its ratio to the best of the same class of knowledge, p99 of
the queue time, seconds of communication per job. Classes: without knowledge of durations; with declared totals, right or wrong
by a lognormal factor of 2; srtf, free of cost and with right totals, as a bound. With --pages an HTML page per column.

With --protocol thirty columns, by which no constant may be chosen but by those of the part `seen` (benchmarks/protocol); prints
which bars are failed, and where. A trace's figures lie in a file of FOLDER as soon as it is run, so that the same command goes on
where it was stopped. --quick takes three traces of each generated column instead of twenty.

Ratios of communication to computing are those of layer files published with a Dally simulator (all-reduce bytes per step over
compute time, scaled so that VGG has 0.6); models outside them are assumptions of ours, marked below. Traces without models: each
job gets one of the six by its number.
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.figures import summarize
from kompakt_simulator.html import html_of
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.report import PolicyRun
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import known_to, simulate
from kompakt_simulator.traces.reading import load_trace

SIX = (0.6, 0.5, 0.3, 0.15, 0.08, 0.06)  # VGG, AlexNet, BERT, MobileNet, ResNet-50, ResNet-18
MODELS = {
    "vgg11": 0.6,
    "vgg16": 0.6,
    "vgg19": 0.6,
    "bert": 0.3,
    "resnet18": 0.06,
    "ResNet-18": 0.06,
    "ResNet-50": 0.08,
    # Assumed by likeness: language models as BERT, small or unusual ones between ResNet and MobileNet, embeddings as AlexNet.
    "gpt2": 0.3,
    "Transformer": 0.3,
    "LM": 0.6,
    "Recommendation": 0.5,
    "CycleGAN": 0.15,
    "shufflenet_v2_x1_0": 0.15,
    "a2c": 0.08,
    "dqn": 0.08,
    "A3C": 0.08,
    "inception4": 0.08,
}
CLUSTERS = {
    "muri-cluster": "4x4x8",
    "philly-0e4a51": "4x2x8",
    "gavel-0e4a51": "4x2x8",
    "shockwave-900": "4x4x8",
    "muri-trace3-pr": "4x4x8",
    "philly-ee9e8c": "4x5x8",
    "muri-trace1": "4x4x8",
    "muri-trace4": "4x4x8",
}
NETWORKS = {
    name: Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: outer}, MODELS, SIX)
    for name, outer in (("flat", 4), ("congested", 32))
}
BASE = Setting()  # lease 3600 s, history 48, restart 30 s, checkpoint 1 s per GPU: the same for all


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy as it runs here, in its class of knowledge."""

    label: str
    policy: str
    group: str
    setting: Setting = BASE


ENTRIES = (
    *(Entry(name, name, "none") for name in ("fifo", "fifo-skip", "las", "tiresias", "gandiva", "dally")),
    *(Entry(name, name, "none") for name in ("never-relax", "no-wait", "kompakt")),
    Entry("dally 12,24", "dally", "none", replace(BASE, timers=(12, 24))),
    Entry("sjf", "sjf", "declared"),
    Entry("kompakt declared", "kompakt", "declared", replace(BASE, knowledge=Knowledge.DECLARED)),
    Entry("sjf 2x wrong", "sjf", "declared 2x", replace(BASE, declared_error=2)),
    Entry("kompakt 2x wrong", "kompakt", "declared 2x", replace(BASE, knowledge=Knowledge.DECLARED, declared_error=2)),
    Entry("srtf", "srtf", "bound"),
)
LABELS = tuple(entry.label.replace(",", "/") for entry in ENTRIES)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", help=f"some of: {','.join(CLUSTERS)} (all)")
    parser.add_argument("--policies", help=f"some of: {','.join(LABELS)} (all)")
    parser.add_argument("--pages", type=Path, help="folder for HTML pages")
    parser.add_argument("--protocol", action="store_true", help="the thirty columns and their bars instead")
    parser.add_argument("--quick", action="store_true", help="the protocol on fewer generated traces")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="of the protocol: where figures lie (.protocol)")
    parser.add_argument("--columns", metavar="NAMES", help="of the protocol: some columns (all)")
    parser.add_argument("--so-far", action="store_true", help="of the protocol: simulate nothing, judge what FOLDER has")
    parser.add_argument("--processes", type=int, help="of the protocol: traces simulated at a time (2)")
    return parser


def columns(traces: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((trace, network) for trace in traces for network in NETWORKS)


def run(trace: str, network: str, entry: Entry) -> PolicyRun:
    setting = replace(entry.setting, network=NETWORKS[network])
    cluster = ClusterState.of(read_shape(CLUSTERS[trace]))
    policy = POLICIES[entry.policy]
    outcome = simulate(load_trace(trace).jobs, cluster, policy, PLACEMENTS["levels"], setting)
    knows = known_to(policy, setting)
    return PolicyRun(entry.label, summarize(outcome), outcome, knows=knows, free_of_cost=policy.free_of_cost)


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    judges = given.protocol or given.quick
    theirs = ("traces", "policies", "pages") if judges else ("resume", "columns", "processes", "so_far")
    stray = [name.replace("_", "-") for name in theirs if getattr(given, name) != parser.get_default(name)]
    if stray:
        parser.error(f"--{stray[0]}: not {'with' if judges else 'without'} --protocol or --quick")
    try:
        if judges:
            judge(given)
        else:
            compare(_named("traces", given.traces, tuple(CLUSTERS)), _named("policies", given.policies, LABELS), given.pages)
    except InvalidInput as error:
        parser.error(str(error))


def judge(given: argparse.Namespace) -> None:
    from benchmarks.protocol.command import protocol  # here, since it imports what stands above

    protocol(given.columns, given.quick, given.resume, 2 if given.processes is None else given.processes, given.so_far)


def _named(flag: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    names = known if text is None else tuple(text.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(f"--{flag} {unknown[0]!r:.60}; expected some of: {', '.join(known)}")
    return names


def compare(traces: Iterable[str], labels: Iterable[str], pages: Path | None) -> None:
    """The table of each trace on both networks."""
    wanted = set(labels)
    entries = [entry for entry in ENTRIES if entry.label.replace(",", "/") in wanted]
    heads = ("trace, cluster, network", "policy", "knowledge", "avg JCT h", "of the best", "p99 queue h", "comm s/job")
    print(f"| {' | '.join((*heads, 'makespan h', 'stops', 'processor s'))} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for trace, network in columns(traces):
        column(trace, network, entries, pages)


def column(trace: str, network: str, entries: list[Entry], pages: Path | None) -> None:
    runs, took = [], []
    for entry in entries:
        began = time.process_time()
        runs.append(run(trace, network, entry))
        took.append(time.process_time() - began)
    for entry, done, seconds in zip(entries, runs, took, strict=True):
        alike = [other.summary.avg_jct_s for mate, other in zip(entries, runs, strict=True) if mate.group == entry.group]
        told, where = done.summary, f"{trace}, {CLUSTERS[trace]}, {network}"
        cells = (f"{told.avg_jct_s / 3600:.2f}", f"{told.avg_jct_s / min(alike):.3f}", f"{told.p99_queue_s / 3600:.1f}")
        rest = (f"{told.comm_s_per_job:.0f}", f"{told.makespan_s / 3600:.1f}", str(told.preemptions), f"{seconds:.1f}")
        print(f"| {where} | {entry.label} | {entry.group} | {' | '.join((*cells, *rest))} |", flush=True)
    if pages:
        pages.mkdir(parents=True, exist_ok=True)
        shape = read_shape(CLUSTERS[trace])
        page = html_of(f"{trace} on {CLUSTERS[trace]}, {network}", runs, shape)
        (pages / f"{trace}-{network}.html").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
