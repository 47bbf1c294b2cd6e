"""`kompakt simulate` as a person calls it."""

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kompakt_core.errors import InvalidInput
from kompakt_simulator.figures import summarize
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import SimulationResult
from tests.support.simulator.command import call

KEYS = [
    *("avg_jct_s", "p50_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "comm_s_per_job", "restart_s_per_job"),
    *("gpu_utilization", "preemptions", "refused", "violations"),
]
NETWORK = {"levels": {"machine": 0.05, "rack": 1, "cluster": 4}, "unnamed": [0.6, 0.3]}


ONE_RACK = "1,0,16,100,,0.5,0\n"


def trace(folder: Path, rows: str) -> str:
    """A file in our own format."""
    path = folder / "jobs.csv"
    path.write_text(f"job_id,submit_s,gpus,duration_s,model,comm_ratio,priority\n{rows}")
    return str(path)


def network(folder: Path, **more: Any) -> str:
    path = folder / "net.json"
    path.write_text(json.dumps({**NETWORK, **more}))
    return str(path)


class Tags(HTMLParser):
    """The names of all elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def figures(*arguments: str) -> dict[str, Any]:
    shown = call(*arguments, "-o", "json")
    assert shown.exit_code == 0, shown.output
    answer: dict[str, Any] = json.loads(shown.stdout)
    return answer


def test_json_has_an_object_per_policy_with_the_agreed_keys_and_the_reference_numbers() -> None:
    told = figures("--format", "tiresias", "--cluster", "1x4x4", "--policy", "fifo,SRTF", "--placement", "count")
    assert list(told) == ["fifo", "srtf"]
    assert [list(each) for each in told.values()] == [KEYS, KEYS]
    assert (round(told["fifo"]["avg_jct_s"], 3), told["fifo"]["makespan_s"]) == (200.817, 3335)
    assert (round(told["srtf"]["avg_jct_s"], 3), told["srtf"]["violations"]) == (192.117, 0)


def test_one_policy_makes_one_line() -> None:
    shown = call("--cluster", "1x4x4", "--policy", "fifo", "--placement", "consolidated")
    assert "tiresias-60: 60 jobs on 1x4x4" in shown.output
    lines = [line.split() for line in shown.output.splitlines() if "fifo" in line]
    assert lines == [["fifo", "217.5", "177.0", "1870.0", "39.1", "3341.0", "0.0", "0.0", "49.8%", "0", "0"]]


def test_jobs_larger_than_the_cluster_are_counted_and_named_with_the_largest_possible() -> None:
    shown = call("--cluster", "1x1x4", "--policy", "fifo", "-o", "json")
    assert json.loads(shown.stdout)["fifo"]["refused"] > 0
    assert "refused: job 1 needs 8 GPUs; the largest possible is 4 (line 3 of the trace)" in shown.stderr
    with pytest.raises(InvalidInput, match="no job fits: the smallest needs 8 GPUs; the largest possible is 4"):
        summarize(SimulationResult((), (TraceJob(1, Milliseconds(0), Milliseconds(1), 8),), 4))


def test_a_network_and_unequal_racks_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "racks.json").write_text(json.dumps({"racks": [[8, 8], [4, 4]]}))
    net = network(tmp_path, models={"vgg19": 0.6, "vgg11": 0.6, "inception4": 0.2})
    flags = ("--network", net, "--cluster", str(tmp_path / "racks.json"), "--policy", "fifo")
    shown = call(*flags)
    assert isinstance(shown.exception, InvalidInput)
    assert "is not in the network file; known models: inception4, vgg11, vgg19" in str(shown.exception)
    told = figures("--trace", trace(tmp_path, ONE_RACK), *flags)["fifo"]
    assert (told["avg_jct_s"], told["comm_s_per_job"]) == (150, 50)  # one rack: 100 s * (1 + 0.5 * 1)


def test_files_may_be_compressed_and_the_network_may_describe_the_cluster(tmp_path: Path) -> None:
    files = {"net": {**NETWORK, "racks": [[8, 8], [4, 4]]}, "levels": NETWORK, "racks": {"racks": [[8, 8], [4, 4]]}}
    for name, content in files.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    flags = ("--trace", trace(tmp_path, ONE_RACK), "--policy", "fifo", "--network")
    told = figures(*flags, str(tmp_path / "net.gz"))
    assert told == figures(*flags, str(tmp_path / "levels.gz"), "--cluster", str(tmp_path / "racks.gz"))
    assert told["fifo"]["avg_jct_s"] == 150
    shown = call(*flags, str(tmp_path / "net.gz"), "--cluster", "1x4x4")
    assert "--cluster 1x4x4 and racks in" in str(shown.exception)


def test_each_format_says_what_counts_as_work_and_its_unit() -> None:
    told = " ".join(call("--help").output.replace("│", " ").split())
    for words in (
        "muri: duration, in milliseconds",
        "gavel: total_steps, in steps at the measured rate",
        "pollux: duration, in seconds",
    ):
        assert words in told
    assert (
        "tiresias-60: 60 jobs on 1x4x4; the trace gives a job's work as duration, in seconds" in call("--policy", "fifo").output
    )


def test_a_result_without_a_network_says_that_communication_is_free(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text('{"levels": {"machine": 0, "rack": 0, "cluster": 0}}')
    flags = ("--trace", trace(tmp_path, "1,0,2,100,,0.5,0\n"), "--policy", "fifo")
    networks = {"none": (), "zero": ("--network", str(tmp_path / "zero.json")), "net": ("--network", network(tmp_path))}
    shown = {name: " ".join(call(*flags, *more).output.split()) for name, more in networks.items()}
    assert shown["none"].endswith("Communication is free (no --network).")
    assert shown["zero"].endswith("Communication is free.")
    assert "is free" not in shown["net"]
    assert "<p>Communication is free (no --network).</p>" in call(*flags, "-o", "html").output


def test_times_of_days_are_shown_in_hours_and_programs_get_seconds(tmp_path: Path) -> None:
    day = (
        "--trace",
        trace(tmp_path, "1,0,16,90000,,0.5,0\n2,0,16,36,,0.5,0\n"),
        "--policy",
        "fifo",
        "--network",
        network(tmp_path),
    )
    lines = call(*day).output.splitlines()
    units, cells = (next(line.split() for line in lines if line.startswith(name)) for name in ("policy", "fifo"))
    assert units == ["policy", *["(h)"] * 6, "(s)"]
    assert cells[1:8] == ["37.51", "37.52", "37.52", "18.75", "37.52", "6.25", "0.0"]
    assert figures(*day)["fifo"]["avg_jct_s"] == 135_027
    short = call("--policy", "fifo").output.splitlines()
    assert ["policy", *["(s)"] * 7] in [line.split() for line in short]


def test_a_comparison_says_which_column_decides_and_who_knows_durations() -> None:
    flags = ("--cluster", "1x4x4", "--policy", "fifo,kompakt,sjf,srtf")
    shown = call(*flags).output
    assert re.findall(r"^(\w+)( \*)? +\d", shown, re.M) == [("fifo", ""), ("kompakt", ""), ("sjf", " *"), ("srtf", " *")]
    told = " ".join(shown.split())
    assert "Compare avg JCT for all jobs together, p50 JCT for the typical job" in told
    assert "* knows each job's duration in advance: compare it only with other policies marked *." in told
    assert "Stopping jobs costs srtf nothing" in told
    assert "<td>sjf *</td>" in call(*flags, "-o", "html").stdout
    assert "kompakt *" in call("--policy", "kompakt", "--knowledge", "declared").output
    assert "costs srtf nothing" not in call("--policy", "srtf", "--rules", "srtf=charged").output
    alone = " ".join(call("--policy", "fifo").output.split())
    assert "Compare" not in alone
    assert "knows" not in alone


def test_knowledge_says_who_may_run() -> None:
    assert call("--policy", "sjf", "--knowledge", "oracle").exit_code == 0
    shown = call("--policy", "sjf", "--knowledge", "none")
    assert "policy sjf orders jobs by their durations; it needs --knowledge declared" in str(shown.exception)


def test_manual_timers_differ_from_tuned_ones_and_leases_can_be_set(tmp_path: Path) -> None:
    rows = [f"{number},{number * 600},{(8, 6, 3, 2)[number % 4]},{3000 + number * 700},,," for number in range(40)]
    files = ("--trace", trace(tmp_path, "\n".join(rows)), "--network", network(tmp_path))
    flags = (*files, "--cluster", "2x2x8", "--policy", "dally", "--lease", "600")
    tuned, manual, short = figures(*flags), figures(*flags, "--timers", "1,2"), figures(*flags, "--lease", "300")
    assert len({each["dally"]["avg_jct_s"] for each in (tuned, manual, short)}) == 3


def test_the_page_has_table_curves_and_placements() -> None:
    page = call("--policy", "fifo,las", "-o", "html").stdout

    tags = Tags()
    tags.feed(page)
    assert (tags.found.count("svg"), tags.found.count("polyline")) == (4, 4)
    assert tags.found.count("rect") >= 120
    assert "Placement: las" in page
    assert "time from submission to completion (s)</text>" in page
    assert page.count("time since the trace began (s)</text>") == 3
    assert all(f'text-anchor="middle">{name}</text>' in page for name in ("share of jobs completed", "share of GPUs held"))
    assert "<script" not in page


def test_no_two_policies_share_a_colour() -> None:
    page = call("-o", "html").stdout
    legend = page.split('<p class="legend">')[1].split("</p>")[0]
    colours = re.findall(r"color:(#[0-9a-f]{6})", legend)
    assert len(colours) == len(set(colours)) == len(POLICIES)


def test_the_planner_of_the_cluster_gives_better_rings_than_counting() -> None:
    rings = {}
    for placement in ("count", "consolidated", "planned"):
        flags = ("--machine", "dgx1-v100", "--cluster", "1x2x8", "--policy", "fifo", "--placement", placement)
        line = next(line for line in call(*flags).output.splitlines() if line.startswith("fifo"))
        rings[placement] = float(line.split()[-1].rstrip("%"))
    assert rings["count"] < rings["consolidated"] < rings["planned"] <= 100


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--policy", "lifo"), "--policy lifo: unknown; expected one of: fifo, fifo-skip, sjf, srtf"),
        (("--placement", "best"), "--placement best: unknown; expected one of: count, consolidated, levels"),
        (("--placement", "planned"), "--placement planned: unknown; expected one of: count, consolidated, levels"),
        (("--machine", "dgx-9"), "unknown machine 'dgx-9'; known are"),
        (("--machine", "dgx1-v100"), "machines of 4 GPUs with a link graph of 8; expected equal numbers"),
        (("--cluster", "0x4x4"), "0 racks of 4 machines of 4 GPUs; expected at least one of each"),
        (("--cluster", "4x4"), "expected RACKSxMACHINESxGPUS such as 4x16x8, or a YAML or JSON file"),
        (("--cluster", "1000x1000x8"), "at most 1000000 GPUs in all"),
        (("--trace", "nowhere.csv"), "trace nowhere.csv: No such file"),
        (("--trace", "bad\x00name"), "embedded null byte"),
        (("--format", "swf"), "format 'swf' is unknown; expected one of: kompakt, tiresias"),
        (("--timers", "12"), "--timers 12: expected two numbers of leases, R,N, such as 12,24"),
        (("--timers", "-1,5"), "timers -1.0,5.0; expected two numbers of leases from 0"),
        (("--timers", "nan,5"), "expected two numbers of leases from 0"),
        (("--knowledge", "some"), "--knowledge some: expected one of: none, declared, oracle"),
        (("--restart-s", "-1"), "restart_s -1.0; expected a number from 0"),
        (("--lease", "20"), "lease 20.0 s; expected more than the restart of 30.0 s"),
        (("--lease", "nan"), "lease_s nan; expected a number from 0.001"),
        (("--overtaken-at-most", "-1"), "overtaken_at_most -1; expected a number from 0"),
        (("--history", "0"), "history 0.0; expected a number from 1"),
        (("--network", "nowhere.json"), "network nowhere.json: No such file"),
        (("--rules", "ties=first"), "--rules ties=first: expected some of ties=submit|id, passes=instant|event"),
        (("--rules", "too-large=error", "--cluster", "1x1x4"), "job 1 needs 8 GPUs; the largest possible is 4"),
    ],
)
def test_wrong_flags_are_refused_in_words(flags: tuple[str, ...], message: str) -> None:
    shown = call(*flags)
    assert isinstance(shown.exception, InvalidInput), shown.output
    assert message in str(shown.exception)
