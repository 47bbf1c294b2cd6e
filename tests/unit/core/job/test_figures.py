"""status.compression: what rank 0's pod says while the job runs, what all leave at the end, what stays where nothing is left."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kompakt_core.job import to_do as do
from kompakt_core.job.reports import LIMIT, PAGE_MARK, ReceivedReport, is_news, merged, read_page

SAID = {
    "kompakt": 1,
    "ranks": 2,
    "active": True,
    "reason": "Active",
    "complete": False,
    "plainBytes": 600,
    "savedBytes": 100,
    "denominator": "unique storages",
    "steps": 5,
    "raw": {"TooSmall": 3},
    "violations": 0,
}


def left(**fields: Any) -> tuple[str, ...]:
    """The termination message of a worker that ended by itself."""
    return (json.dumps(SAID | {"complete": True} | fields),)


def heard(world: Any, **fields: Any) -> Any:
    """Rank 0 of the current attempt has said so."""
    pod = next(pod for pod in world.pods.values() if pod.worker_index == 0)
    world.heard = ReceivedReport(pod.uid, SAID | fields)
    return world


@pytest.fixture
def running(world_of: Any) -> Any:
    return world_of(activationCompression={}, runPolicy={"cleanPodPolicy": "None"}).run()


def test_a_running_job_shows_what_rank_0_s_pod_saves_so_far(running: Any) -> None:
    assert "compression" not in running.stored
    found = heard(running).settle().stored["compression"]
    assert (found["ratio"], found["ranks"], found["attempt"], found["complete"]) == ("6.00", 2, 1, False)
    assert running.condition("CompressionActive") == ("True", "Active")
    message = running.status.conditions["CompressionActive"].message
    assert message.startswith("so far, of 2 ranks: 100 bytes kept in place of 600: ratio 6.00 of unique storages; ")


@pytest.mark.parametrize(
    ("sums", "told"),
    [
        ({}, "so far, of 2 ranks: 100 bytes kept in place of 600"),
        ({"plainBytes": 0, "savedBytes": 0}, "nothing was compressed"),
    ],
)
def test_the_condition_of_a_job_that_is_switched_off_names_the_file(running: Any, sums: dict[str, int], told: str) -> None:
    heard(running, active=False, reason="SwitchedOff", **sums).settle()
    assert running.condition("CompressionActive") == ("False", "SwitchedOff")
    message = running.status.conditions["CompressionActive"].message
    assert message.startswith(f"a pod has the file /var/run/kompakt/off, which switches compression off; {told}")


BUDGET = {
    "asked": "1000", "bytes": 1000, "reached": True, "peakBytes": 990, "leastBytes": 700, "plainBytes": 2000,
    "milliseconds": 12.5, "allMilliseconds": 40.0, "moreMilliseconds": 0.0, "packed": 3, "layers": 9, "sharded": {"2": 500},
}  # fmt: skip


@pytest.fixture
def within(world_of: Any) -> Any:
    return world_of(activationCompression={"memoryBudget": "1000"}, runPolicy={"cleanPodPolicy": "None"}).run()


def test_the_status_tells_what_a_budget_of_memory_costs(within: Any) -> None:
    running = within
    assert "BudgetNotReached" not in running.status.conditions
    found = heard(running, budget=BUDGET).settle().stored["compression"]
    assert found["memoryBudget"] == {
        "bytes": 1000, "peakBytes": 990, "leastBytes": 700, "plainBytes": 2000,
        "milliseconds": "12.500", "allMilliseconds": "40.000", "moreMilliseconds": "0.000",
    }  # fmt: skip
    assert running.condition("BudgetNotReached") == ("False", "WithinBudget")


def test_a_budget_that_is_too_small_is_a_condition_that_names_one_that_works(within: Any) -> None:
    running = within
    heard(running, budget=BUDGET | {"peakBytes": 1100, "leastBytes": 1100}).settle()
    assert running.condition("BudgetNotReached") == ("True", "AllPacked")
    message = running.status.conditions["BudgetNotReached"].message
    assert message == (
        "a step takes 1100 bytes, of 1000 of memoryBudget, with all packed; a budget of 1100 bytes is sure to work"
    )


def test_the_worker_counts_that_needs_most_of_its_budget() -> None:
    reports = [SAID | {"budget": BUDGET | {"peakBytes": peak}} for peak in (800, 999, 900)]
    assert merged(reports)["memoryBudget"]["peakBytes"] == 999


@pytest.mark.parametrize(
    "wrong", [{"bytes": 0}, {"bytes": "1"}, {"peakBytes": -1}, {"leastBytes": 1 << 60}, {"plainBytes": None}]
)
def test_a_budget_that_cannot_be_is_left_out(wrong: dict[str, Any]) -> None:
    assert "memoryBudget" not in merged([SAID | {"budget": BUDGET | wrong}])


@pytest.mark.parametrize("wrong", [-1, "12", True, None, 1e300, float("nan"), [1]])
def test_a_time_that_cannot_be_is_left_out(wrong: Any) -> None:
    found = merged([SAID | {"budget": BUDGET | {"milliseconds": wrong}}])["memoryBudget"]
    assert "milliseconds" not in found
    assert found["allMilliseconds"] == "40.000"


def test_a_job_without_a_budget_has_no_condition_whatever_its_pods_say(running: Any) -> None:
    heard(running, budget=BUDGET | {"peakBytes": 1100}).settle()
    assert "BudgetNotReached" not in running.status.conditions


def test_that_a_budget_is_reached_or_not_is_news_and_what_it_costs_is_none() -> None:
    below, above = ({**SAID, "budget": BUDGET | {"peakBytes": peak}} for peak in (990, 1100))
    assert is_news(SAID, below)
    assert is_news(below, above)
    assert not is_news(below, {**SAID, "budget": BUDGET | {"peakBytes": 980, "milliseconds": 13.0}})


def test_the_condition_tells_the_peak_and_without_one_only_what_was_kept(running: Any) -> None:
    heard(running, peak={"bytes": 4000, "plainBytes": 9000}).settle()
    told = running.status.conditions["CompressionActive"].message
    assert told.endswith("ratio 6.00 of unique storages; at most 4000 bytes held at a time in place of 9000")
    heard(running, peak={"bytes": 4000}).settle()
    assert running.status.conditions["CompressionActive"].message.endswith("; at most 4000 bytes held at a time")
    heard(running, peak={}).settle()
    assert running.status.conditions["CompressionActive"].message.endswith("ratio 6.00 of unique storages")


def test_a_page_that_calls_itself_complete_is_not_believed(running: Any) -> None:
    assert heard(running, complete=True).settle().stored["compression"]["complete"] is False


def test_last_words_of_all_take_the_place_of_what_was_heard(running: Any) -> None:
    heard(running).settle()
    found = running.succeed(reports=left(plainBytes=900)).stored["compression"]
    assert (found["plainBytes"], found["savedBytes"], found["ranks"], found["complete"]) == (1800, 200, 4, True)


@pytest.mark.parametrize("gone", [False, True], ids=["its pod stands there", "its pod is gone"])
def test_where_rank_0_left_no_word_what_was_heard_counts_and_is_not_called_complete(running: Any, gone: bool) -> None:
    heard(running).settle()
    running.job = structs.replace(running.job, run_policy=structs.replace(running.job.run_policy, backoff_limit=0))
    running.change_one(1, phase="Failed", reports=left(plainBytes=900)).change_one(0, phase="Failed")
    if gone:
        del running.pods["j-worker-0-a1"]
        running.job = structs.replace(running.job, suspend=True)
    running.settle()
    found = running.stored["compression"]
    assert (found["plainBytes"], found["savedBytes"], found["ranks"], found["complete"]) == (1500, 200, 4, False)
    if not gone:
        assert "as last heard" in running.status.conditions["CompressionActive"].message


def test_a_worker_without_a_word_leaves_the_figures_incomplete(running: Any) -> None:
    running.change(phase="Succeeded").fail(0, reports=left())
    assert running.stored["compression"]["complete"] is False


def test_a_new_operator_that_has_heard_nothing_yet_changes_nothing(running: Any) -> None:
    stored = heard(running).settle().stored
    running.heard = None
    assert running.settle().stored == stored


def test_after_a_restart_the_last_figures_stay_until_the_new_attempt_speaks(running: Any) -> None:
    heard(running).settle()
    heard(running, plainBytes=700)  # not written yet when the pods go
    running.pods.clear()
    running.look()
    for action in running.look():
        if isinstance(action, do.WriteStatus):
            running.perform(action)
    running.heard = None
    running.settle()
    assert (running.stored["attempt"], running.stored["compression"]["attempt"]) == (2, 1)
    assert running.stored["compression"]["ratio"] == "7.00"
    assert running.condition("CompressionActive") == ("Unknown", "NoReportYet")
    found = heard(running, plainBytes=200).settle().stored["compression"]
    assert (found["attempt"], found["ratio"]) == (2, "2.00")


PEAK = {"bytes": 4000, "plainBytes": 9000, "step": 2, "tensor": "a, read", "reservedBytes": 20000}
SAID["peak"] = PEAK
STEPS = SAID | {"plainBytes": 6030, "savedBytes": 1000, "steps": 50, "raw": {"TooSmall": 30}, "rawBytes": {"TooSmall": 90}}
STEPS["peak"] = PEAK | {"bytes": 4040, "plainBytes": 9100, "tensor": "b, packed"}
NEWS = [
    {"peak": PEAK | {"bytes": 4041}},
    {"plainBytes": 610},
    {"raw": {"TooSmall": 3, "NotDense": 1}},
    {"active": False},
    {"violations": 1},
]


@pytest.mark.parametrize("change", [*NEWS, {"overhead": {"percent": "17.2"}}], ids=str)
def test_a_change_is_news(change: dict[str, Any]) -> None:
    assert is_news(SAID, SAID | change)


def test_first_words_are_news_and_that_training_goes_on_is_none() -> None:
    assert is_news(None, SAID)
    assert is_news(SAID | {"savedBytes": 0}, SAID)
    assert not any(is_news(before, now) for before, now in ((None, None), (SAID, None), (SAID, SAID), (SAID, STEPS)))


def test_the_peak_is_of_the_rank_that_held_most_and_bytes_by_reason_are_summed() -> None:
    lower = PEAK | {"bytes": 3000, "plainBytes": 99000, "reservedBytes": 0}
    found = merged([SAID | {"peak": lower, "rawBytes": {"Small": 1}}, SAID | {"rawBytes": {"Small": 2, "Compiled": 3}}])
    wanted = {"peakBytes": 4000, "plainPeakBytes": 9000, "peakStep": 2, "peakTensor": "a, read", "reservedBytes": 20000}
    assert wanted.items() <= found.items()
    assert found["rawBytes"] == {"Compiled": 3, "Small": 3}
    bare = merged([SAID | {"peak": {"bytes": "many", "tensor": ["x"]}}])
    assert not {"peakBytes", "peakTensor", "reservedBytes", "rawBytes"} & set(bare)


def test_the_summary_is_one_line_of_the_page() -> None:
    page = f"# HELP x y\nx 1\n{PAGE_MARK}{json.dumps(SAID)}\nkompakt_progress_step 1\n"
    assert read_page(page) == SAID
    assert read_page("kompakt_progress_step 1\n") is None
    assert read_page(f"{PAGE_MARK}{{}}\n") is None, "of no version"
    assert read_page(f"{PAGE_MARK}{json.dumps(SAID | {'reason': 'x' * LIMIT})}\n") is None, "longer than a termination message"


def test_what_a_stranger_writes_is_stored_as_it_is_read_back() -> None:
    strange = SAID | {"reason": "\ud800a\x00b\n", "mode": "x" * 5000, "active": False, "raw": {"\udfff": 1, "y" * 999: 2}}
    found = merged([strange])
    assert (found["reason"], len(found["mode"]), sorted(map(len, found["raw"]))) == ("ab", 256, [0, 64])


def test_what_is_nested_too_deeply_to_be_written_out_is_no_word() -> None:
    """A page is read with fewer calls under way than the status is decided with: what just passed there would not pass here."""
    deep: list[Any] = []
    for _ in range(2 * sys.getrecursionlimit()):
        deep = [deep]
    found = merged([SAID | {"active": False, "reason": deep, "mode": {"a": deep}}])
    assert (found["reason"], found["mode"]) == ("Unreadable", "Unreadable")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(sorted(SAID)) | st.text(max_size=9), x, max_size=5),
)


@settings(deadline=None)
@given(st.text() | JSON.map(json.dumps), st.dictionaries(st.sampled_from([*sorted(SAID), "overhead", "batch"]), JSON))
def test_no_page_breaks_the_reader_nor_makes_the_status_large(line: str, fields: dict[str, Any]) -> None:
    read_page(PAGE_MARK + line)
    found = read_page(PAGE_MARK + json.dumps({"kompakt": 1, **fields}))
    if found is not None:
        assert is_news(found, found) is False
        assert len(json.dumps(merged([found]))) < 8 * LIMIT


def of_one(**fields: Any) -> dict[str, Any]:
    return merged([SAID | fields])


@pytest.mark.parametrize(
    ("fields", "ratio"),
    [
        ({"plainBytes": 1 << 50, "savedBytes": 1}, "2048.00"),
        ({"plainBytes": (1 << 60) + 1, "savedBytes": 1 << 50}, "0.00"),
        ({"plainBytes": 2048 << 40, "savedBytes": 1 << 40}, "2048.00"),
        ({"plainBytes": 2047 << 40, "savedBytes": 1 << 40}, "2047.00"),
    ],
)
def test_a_ratio_is_never_more_than_the_codec_can_do(fields: dict[str, int], ratio: str) -> None:
    assert of_one(**fields)["ratio"] == ratio


def test_a_training_of_weeks_on_whole_machines_is_still_counted() -> None:
    """8 ranks that keep 80 GB in each of a million steps, in a thousand pods: more than the field holds, and still a ratio."""
    plain = 8 * 80 * 10**9 * 10**6
    assert of_one(plainBytes=plain, savedBytes=plain // 4)["plainBytes"] == plain
    found = merged([SAID | {"plainBytes": plain, "savedBytes": plain // 4}] * 1024)
    assert (found["plainBytes"], found["ratio"]) == ((1 << 63) - 1, "4.00")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"ranks": 1025}, "ranks"),
        ({"steps": (1 << 60) + 1}, "steps"),
        ({"peak": {"bytes": (1 << 44) + 1}}, "peakBytes"),
        ({"peak": {"bytes": 1, "plainBytes": (1 << 44) + 1}}, "plainPeakBytes"),
        ({"peak": {"bytes": 1, "reservedBytes": (1 << 44) + 1}}, "reservedBytes"),
        ({"overhead": {"percent": "-100.1"}}, "overheadPercent"),
    ],
)
def test_what_cannot_be_counts_as_not_said(fields: dict[str, Any], name: str) -> None:
    assert not of_one(**fields).get(name)


def test_what_just_can_be_is_shown() -> None:
    peak = {"bytes": 1 << 44, "plainBytes": 1 << 44, "step": 1 << 53}
    found = of_one(ranks=1024, peak=peak, overhead={"percent": "-100.0"})
    assert (found["ranks"], found["peakBytes"], found["peakStep"]) == (1024, 1 << 44, 1 << 53)
    assert found["overheadPercent"] == "-100.0"


def test_reasons_and_offloaded_bytes_of_many_pods_fit_their_fields() -> None:
    claims = SAID | {
        "raw": {"Small": 1 << 60},
        "rawBytes": {"Small": 1 << 60},
        "offload": {"bytes": 1 << 60, "reasons": {"x": 1 << 60}},
    }
    found = merged([claims] * 1024)
    most = (1 << 63) - 1
    assert (found["raw"]["Small"], found["rawBytes"]["Small"], found["offloadedBytes"]) == (most, most, most)
    assert found["offloadReasons"]["x"] == most
