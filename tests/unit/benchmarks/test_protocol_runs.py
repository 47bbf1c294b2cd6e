"""A run of the protocol that was stopped goes on, and never mixes figures of different code."""

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks import policies
from benchmarks.policies import BASE
from benchmarks.protocol import command, runs
from benchmarks.protocol.columns import BY_NAME, COLUMNS, ProtocolColumn, chosen
from benchmarks.protocol.entries import OURS, RIVALS, RUN
from benchmarks.protocol.runs import ColumnRun, ColumnTask, RunFolder, finished, had, opened, tasks
from kompakt_core.errors import Bug, InvalidInput
from kompakt_simulator.setting import Knowledge
from tests.support.simulator.protocol import pretended

TODO = [ColumnTask("muri-cluster-flat", 0), ColumnTask("made-64-load50-x4", 318_001), ColumnTask("made-64-load50-x4", 318_002)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ColumnTask]:
    """What was simulated, though nothing is."""
    found: list[ColumnTask] = []

    def noted(task: ColumnTask) -> ColumnRun:
        found.append(task)
        return pretended(task)

    monkeypatch.setattr(runs, "measured", noted)
    return found


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, asked: list[ColumnTask]) -> None:
    first = finished(TODO, RunFolder(tmp_path), 1)
    before = next(first)
    first.close()  # type: ignore[attr-defined]
    again = list(finished(TODO, RunFolder(tmp_path), 1))
    assert asked == TODO, "each was simulated once over both runs"
    assert again[0] == before
    assert [ColumnTask(run.column, run.seed) for run in again] == TODO
    assert list(finished(TODO, RunFolder(tmp_path), 1)) == again
    assert asked == TODO


def test_a_run_that_ended_while_it_wrote_leaves_no_half_of_a_file(
    tmp_path: Path, asked: list[ColumnTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", ended)
        with pytest.raises(KeyboardInterrupt):
            list(finished(TODO[:1], RunFolder(tmp_path), 1))
    assert RunFolder(tmp_path).read(TODO[0]) is None
    assert len(list(finished(TODO[:1], RunFolder(tmp_path), 1))) == 1


def test_figures_of_other_code_are_refused(tmp_path: Path, asked: list[ColumnTask], monkeypatch: pytest.MonkeyPatch) -> None:
    list(finished(TODO[:1], RunFolder(tmp_path), 1))
    monkeypatch.setattr(runs, "code", lambda: "another")
    with pytest.raises(InvalidInput, match=r"muri-cluster-flat-0\.json: measured with other code .* name another folder"):
        list(finished(TODO[:1], RunFolder(tmp_path), 1))


def test_files_of_others_are_refused(tmp_path: Path, asked: list[ColumnTask]) -> None:
    (run,) = finished(TODO[:1], RunFolder(tmp_path), 1)
    path = tmp_path / TODO[1].file
    path.write_bytes(msgspec.json.encode(run))
    with pytest.raises(InvalidInput, match="not of column made-64-load50-x4, seed 318001"):
        RunFolder(tmp_path).read(TODO[1])
    whole = msgspec.json.encode(run)
    for text in (b"", b"{", b"[]", b'{"column": 1}', b"\xff", whole[:-9], whole.replace(b":3600.0,", b":0.0,")):
        path.write_bytes(text)
        with pytest.raises(InvalidInput, match="expected what --resume wrote"):
            RunFolder(tmp_path).read(TODO[1])


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"--resume .*expected a folder"):
        opened(tmp_path / "file")
    with pytest.raises(InvalidInput, match="expected a file that can be read"):
        RunFolder(tmp_path / "file").read(TODO[0])


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_simulation(
    tmp_path: Path, asked: list[ColumnTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(InvalidInput, match=r"--resume .*: Permission denied; expected a folder that can be written"):
        command.protocol("muri-cluster-flat", True, tmp_path, 1)
    assert asked == []


def test_figures_that_cannot_be_written_end_the_run_with_the_reason(tmp_path: Path, asked: list[ColumnTask]) -> None:
    (tmp_path / TODO[0].file).with_suffix(".part").mkdir()
    with pytest.raises(InvalidInput, match=r"muri-cluster-flat-0\.json: Is a directory; expected a folder"):
        list(finished(TODO[:1], RunFolder(tmp_path), 1))


def test_the_quick_run_is_part_of_the_full_one_and_begins_with_every_column() -> None:
    columns = tuple(BY_NAME.values())
    quick, full = tasks(columns, quick=True), tasks(columns, quick=False)
    assert (len(quick), len(full)) == (22 + 8 * 3, 22 + 8 * 20)
    assert set(quick) < set(full)
    assert [task.column for task in full[:30]] == list(BY_NAME)


def test_every_column_has_one_setting_for_all_policies() -> None:
    assert next(entry.setting for entry in RUN if entry.label == OURS) == BASE
    assert len(RIVALS) == 9
    told = {entry.label: entry.setting for entry in RUN if entry.setting.knowledge is Knowledge.DECLARED}
    assert {label: setting.declared_error for label, setting in told.items()} == {
        "kompakt declared": 1,
        "kompakt 2x wrong": 2,
        "kompakt 4x wrong": 4,
    }


def test_a_column_is_simulated_under_all_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = BY_NAME["muri-cluster-flat"].trace(0)[:20]
    monkeypatch.setattr(ProtocolColumn, "trace", lambda _column, _seed: jobs)
    run = runs.measured(TODO[0])
    assert set(run.figures) == {entry.label for entry in RUN}
    assert all(figures.avg_jct_s > 0 for figures in run.figures.values())
    assert run.code == runs.code() != ""


def test_a_column_whose_jobs_do_not_fit_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = BY_NAME["muri-cluster-flat"].trace(0)[:20]
    monkeypatch.setattr(ProtocolColumn, "trace", lambda _column, _seed: (*jobs, replace(jobs[0], number=99, gpus=129)))
    with pytest.raises(Bug, match=r"muri-cluster-flat, seed 0, fifo: 0 broken rules, 1 jobs left out"):
        runs.measured(TODO[0])


def test_two_processes_write_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "measured", pretended)
    one, two = (set(map(str, finished(TODO, opened(tmp_path / str(count)), count))) for count in (1, 2))
    assert one == two
    assert len(had(TODO, RunFolder(tmp_path / "2"))) == 3


def test_the_command_prints_columns_and_bars(tmp_path: Path, asked: list[ColumnTask], capsys: pytest.CaptureFixture[str]) -> None:
    command.protocol("muri-cluster-flat,made-64-load50-x4", True, tmp_path / "new", 1)
    out = capsys.readouterr().out
    assert "| muri-cluster-flat | 1 |" in out
    assert "| made-64-load50-x4 | 3 |" in out
    assert len(asked) == 4
    assert len(chosen(None)) == 30


def test_what_was_run_so_far_is_judged_without_a_simulation(
    tmp_path: Path, asked: list[ColumnTask], capsys: pytest.CaptureFixture[str]
) -> None:
    list(finished(TODO[1:2], RunFolder(tmp_path), 1))
    command.protocol(None, True, tmp_path, 1, so_far=True)
    out = capsys.readouterr().out
    assert "| made-64-load50-x4 | 1 |" in out
    assert "muri-cluster-flat" not in out
    assert asked == TODO[1:2]
    with pytest.raises(InvalidInput, match="--so-far: no figures of these columns"):
        command.protocol("muri-cluster-flat", True, tmp_path, 1, so_far=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUN", tuple(replace(entry, setting=replace(entry.setting, lease_s=1800)) for entry in RUN)),
        ("COLUMNS", tuple(replace(column, outer=33) if column.outer == 32 else column for column in COLUMNS)),
        ("COLUMNS", tuple(replace(column, cluster="4x1x8") for column in COLUMNS)),
        ("MODELS", {**policies.MODELS, "bert": 0.4}),
        ("SIX", (0.6, 0.5, 0.4, 0.15, 0.08, 0.06)),
    ],
)
def test_figures_of_other_settings_networks_or_clusters_have_another_digest(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = runs.code.__wrapped__()
    assert runs.code.__wrapped__() == before
    monkeypatch.setattr(runs, name, value)
    assert runs.code.__wrapped__() != before


def test_seen_columns_have_the_clusters_and_networks_of_the_other_tables() -> None:
    for column in COLUMNS[:16]:
        trace, network = column.name.rsplit("-", 1)
        assert (column.source, column.cluster) == (trace, policies.CLUSTERS[trace])
        assert column.network() == policies.NETWORKS[network]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--so-far"], "--so-far: not without --protocol or --quick"),
        (["--columns", "muri-cluster-flat"], "--columns: not without --protocol or --quick"),
        (["--resume", "x"], "--resume: not without"),
        (["--processes", "0"], "--processes: not without"),
        (["--protocol", "--traces", "muri-cluster"], "--traces: not with --protocol"),
        (["--quick", "--columns", "muri"], "column 'muri'; expected some of"),
        (["--quick", "--processes", "0"], "--processes 0; expected a number from 1 to 64"),
        (["--traces", "muri"], "--traces 'muri'; expected some of: muri-cluster"),
        (["--policies", "kompact"], "--policies 'kompact'; expected some of: fifo"),
    ],
)
def test_flags_that_are_wrong_are_refused(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["policies", *flags])
    with pytest.raises(SystemExit) as ended:
        policies.main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
