"""Files of ranks become one summary; whoever ends last writes the complete one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures


def trained(plain: int, saved: int, **raw: int) -> Figures:
    figures = Figures(plain_bytes=plain, saved_bytes=saved, forwards=10, steps=10, compressed=5)
    figures.raw.update(raw)
    return figures


@pytest.fixture
def config(tmp_path):
    log = tmp_path / "termination-log"
    log.touch()
    return RuntimeConfig("ErrorBounded", state_dir=str(tmp_path), attempt=2, termination_log=str(log))


def last_words(config) -> dict:
    return json.loads(Path(config.termination_log).read_text())


@pytest.fixture
def told(config, monkeypatch):
    """Ranks that end one after another, each a process of its own; the last words after each."""

    def told(*ranks: Figures) -> Iterator[dict]:
        for pid, figures in enumerate(ranks, 11):
            monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
            export.write_words(config, export.report(figures))
            yield last_words(config)

    return told


def test_the_last_rank_completes_the_summary(told):
    *_, words = told(trained(1000, 200, Small=3), trained(3000, 200, Small=1, WarmUp=2))
    wanted = {"kompakt": 1, "attempt": 2, "ranks": 2, "active": True, "reason": "Active", "mode": "ErrorBounded"}
    assert wanted.items() <= words.items()
    assert (words["plainBytes"], words["savedBytes"], words["ratio"], words["steps"]) == (4000, 400, "10.00", 10)
    assert words["raw"] == {"Small": 4, "WarmUp": 2}


def test_the_smallest_suggestion_of_all_ranks_counts_and_none_is_made_up(told):
    ranks = [replace(trained(1000, 200), batch=16, suggested_batch=suggested) for suggested in (90, 40, 0)]
    found = [(words.get("batch"), words.get("suggestedBatch")) for words in told(*ranks)]
    assert found == [(16, 90), (16, 40), (None, None)]


def test_launchers_and_other_attempts_do_not_count(config):
    export.write_report(config.state_dir, 1, export.report(trained(5, 5)))
    (Path(config.state_dir) / "figures-2-1.json").write_text(json.dumps(export.report(Figures())))
    (Path(config.state_dir) / "figures-2-2.json").write_text("{broken")
    export.write_words(config, export.report(trained(1000, 100)))
    assert (last_words(config)["ranks"], last_words(config)["plainBytes"]) == (1, 1000)


@pytest.mark.parametrize(
    ("mode", "row", "reason"),
    [
        ("ErrorBounded", export.report(Figures()), "NoTraining"),
        ("None", export.report(Figures(forwards=3)), "ModeNone"),
        ("Lossless", export.report(Figures(forwards=3)), "NothingCompressed"),
        ("ErrorBounded", export.report(Figures(forwards=3)), "NothingCompressed"),
        ("ErrorBounded", export.report(Figures(), "UnsupportedTorch"), "UnsupportedTorch"),
    ],
)
def test_why_compression_was_not_active(mode, row, reason):
    words = export.merged(RuntimeConfig(mode), [row])
    assert (words["active"], words["reason"], words["ratio"]) == (False, reason, "1.00")


def test_the_summary_stays_below_two_kilobytes(config):
    raw = {f"PackFailed{'LongName' * 12}{number}": 10**12 for number in range(100)}
    export.write_words(config, export.report(trained(10**18, 1, **raw)))
    assert len(json.dumps(last_words(config))) <= export.MOST_BYTES


def test_nothing_is_created_where_no_termination_log_waits(tmp_path):
    path = tmp_path / "none"
    export.write_words(RuntimeConfig("ErrorBounded", termination_log=str(path)), export.report(Figures()))
    assert not path.exists()


def test_of_all_ranks_the_highest_overhead_is_told_where_each_has_one(told):
    costs = ({"percent": "9.9", "codecPercent": "9.0"}, {"percent": "10.0", "codecPercent": "8.0"}, {"codecPercent": "8.5"})
    ranks = [trained(1000, 200) for _ in costs]
    for figures, cost in zip(ranks, costs, strict=True):
        figures.overhead = lambda cost=cost: cost  # type: ignore[misc]
    found = [words["overhead"] for words in told(*ranks)]
    assert found == [costs[0], {"percent": "10.0", "codecPercent": "9.0"}, {"codecPercent": "9.0"}]


def test_what_waited_in_host_memory_is_summed_and_told_only_where_it_was_asked_for(config, monkeypatch):
    assert "offload" not in export.merged(config, [export.report(Figures(forwards=1))])
    rows = []
    for rank in range(2):
        figures = Figures(forwards=1)
        figures.away.left(1000)
        figures.away.count("NotHidden")
        figures.away.late = rank
        rows.append(export.report(figures))
    found = export.merged(config, [*rows, export.report(Figures(forwards=1))])["offload"]
    assert found == {"tensors": 2, "bytes": 2000, "late": 1, "reasons": {"NotHidden": 2}}
