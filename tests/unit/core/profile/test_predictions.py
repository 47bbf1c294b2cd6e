"""What is told of hardware that nobody measured: a range that holds the truth where the model does, else why there is none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.profile.document import Profile, ProfiledRun
from kompakt_core.profile.measurements import Hardware, Measured, measured, replaced
from kompakt_core.profile.predictions import StepEstimate, Unpredictable, estimate, ring_share

RUN = ProfiledRun(0.2, (0.19, 0.2, 0.2, 0.21), 0.0, 2, 531_400_000, 2)
ONE = replace(RUN, ranks=1)
ALL = replace(RUN, step_seconds=0.25, parts=(0.24, 0.26))
WARM = replace(RUN, step_seconds=0.4, parts=(0.38, 0.42))
HALVES = replace(RUN, step_seconds=0.5, parts=(0.48, 0.53))
PROFILE = Profile("box", 8, "GPU", 5, 20, {"one": ONE, "all": ALL, "halves": HALVES})


def known(hardware: Hardware, *profiles: Profile) -> StepEstimate:
    found = estimate(hardware, [one for each in profiles for one in measured(each)])
    assert isinstance(found, StepEstimate), found
    return found


def test_between_one_and_all_the_step_is_between_their_quarters() -> None:
    found = known(Hardware("box", 4), PROFILE)
    assert (found.measured, found.least_seconds, found.most_seconds) == (False, 0.19, 0.26)
    assert found.least[0].what == "fastest quarter of run one on 1 GPU"
    assert found.sources == (Hardware("box", 1), Hardware("box", 8))


def test_the_closest_measurements_count() -> None:
    four = Profile("box", 4, "GPU", 5, 20, {"all": replace(RUN, step_seconds=0.22, parts=(0.21, 0.23))})
    assert (known(Hardware("box", 2), PROFILE, four).most_seconds, known(Hardware("box", 6), PROFILE, four).least_seconds) == (
        0.23,
        0.21,
    )


def test_the_parts_of_a_measured_step_are_computing_and_stalls() -> None:
    found = known(Hardware("box", 8), replace(PROFILE, runs={"one": ONE, "all": ALL, "warm": WARM}))
    assert found.measured
    assert [part.what for part in found.most] == ["run one", "interconnect", "prep"]
    assert [part.seconds for part in found.most] == [0.2, pytest.approx(0.05), pytest.approx(0.15)]
    assert [part.what for part in known(Hardware("box", 8, 2), PROFILE).most] == ["run one", "interconnect", "network"]
    apart = replace(PROFILE, runs={"one": ONE, "all": replace(ALL, ranks=1)})
    assert [part.what for part in known(Hardware("box", 8), apart).most] == ["run all"], "they did not train together"


def test_a_run_with_data_from_memory_is_the_least_where_real_data_took_longer() -> None:
    real = replace(PROFILE, runs={"one": ONE, "all": ALL, "warm": WARM, "halves": HALVES})
    one = known(Hardware("box", 1), real)
    assert (one.measured, one.least_seconds, one.most_seconds, one.real_data) == (False, 0.19, 0.42, True)
    assert not known(Hardware("box", 4), PROFILE).real_data, "its upper end is that of a run from memory"
    halves = known(Hardware("box", 8, 2), real)
    assert (halves.measured, halves.least_seconds) == (False, 0.48)
    assert halves.most_seconds == pytest.approx(0.53 + 0.42 - 0.24), "the prep stall of one machine comes on top"


def test_where_no_data_could_be_replaced_each_run_is_a_measurement_on_real_data() -> None:
    runs = {"one": ONE, "all": ALL, "warm": ALL, "halves": HALVES}
    unseen = replace(PROFILE, runs={mode: replace(run, loaders=0) for mode, run in runs.items()})
    for hardware, seconds in ((Hardware("box", 1), 0.2), (Hardware("box", 8), 0.25), (Hardware("box", 8, 2), 0.5)):
        found = known(hardware, unseen)
        assert (found.measured, found.real_data, found.most_seconds) == (True, True, pytest.approx(seconds))


def test_twice_the_gpus_on_as_many_machines_take_the_network_stall_that_a_ring_has() -> None:
    found = known(Hardware("box", 16, 2), PROFILE)
    assert found.least_seconds == 0.48, "at least what half of them take"
    factor = (2 * 15 / 16) / (2 * 7 / 8)
    assert found.most_seconds == pytest.approx(0.26 + (0.53 - 0.19) * factor), "what the network adds to one machine's step"
    assert ring_share(16) / ring_share(8) == pytest.approx(factor)
    assert known(Hardware("box", 4, 2), PROFILE).most_seconds == 0.53, "fewer need no rule but the first"


def test_the_ring_is_followed_to_twice_the_gpus_and_no_further() -> None:
    halves = Measured("box", 4, 0.5, 2, run="halves")
    seen = [*measured(replace(PROFILE, runs={"one": ONE, "all": ALL})), halves]
    assert isinstance(estimate(Hardware("box", 8, 2), seen), StepEstimate)
    assert estimate(Hardware("box", 10, 2), seen) is Unpredictable.BEYOND


def test_what_the_network_adds_is_counted_from_steps_without_real_data_as_its_own() -> None:
    four = Profile("box", 4, "GPU", 5, 20, {"all": replace(RUN, step_seconds=0.2, parts=()), "warm": WARM})
    assert known(Hardware("box", 16, 2), PROFILE, four).most_seconds == known(Hardware("box", 16, 2), PROFILE).most_seconds


def test_halves_that_did_not_train_together_say_nothing() -> None:
    apart = replace(PROFILE, runs={mode: replace(run, ranks=1) for mode, run in PROFILE.runs.items()})
    assert [one.run for one in measured(apart)] == ["all", "one"]


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        (Hardware("other", 8), Unpredictable.NO_PROFILE),
        (Hardware("box", 9), Unpredictable.BEYOND),
        (Hardware("box", 24, 3), Unpredictable.BEYOND),
        (Hardware("box", 18, 2), Unpredictable.BEYOND),
    ],
)
def test_beyond_what_was_measured_nothing_is_told(hardware: Hardware, reason: Unpredictable) -> None:
    assert estimate(hardware, measured(PROFILE)) is reason


def test_what_is_smaller_than_all_that_was_measured_has_no_least() -> None:
    only = measured(replace(PROFILE, runs={"all": ALL}))
    assert estimate(Hardware("box", 4), only) is Unpredictable.BELOW


def test_a_network_stall_is_not_carried_to_machines_of_another_name() -> None:
    other = replace(PROFILE, half_machine="half")
    assert estimate(Hardware("box", 8, 2), measured(other)) is Unpredictable.BEYOND
    found = known(Hardware("half", 8, 2), other)
    assert (found.measured, found.most_seconds) == (True, pytest.approx(0.5))
    odd = replace(PROFILE, half_machines=3)
    assert [one.run for one in measured(odd)] == ["all", "one"], "8 devices are not equally many on 3 machines"


def test_where_more_gpus_took_shorter_steps_the_model_does_not_hold() -> None:
    """As in a script that divides a batch of fixed size among its processes."""
    shorter = replace(PROFILE, runs={"one": ONE, "all": replace(RUN, step_seconds=0.1, parts=())})
    assert estimate(Hardware("box", 4), measured(shorter)) is Unpredictable.CONTRADICTED


def test_a_fresh_measurement_replaces_an_earlier_one_of_the_same_hardware() -> None:
    old, new = Measured("box", 2, 0.3), Measured("box", 2, 0.2)
    assert replaced([old, Measured("box", 4, 0.4)], [new]) == [Measured("box", 4, 0.4), new]


def rising(steps: list[float]) -> list[float]:
    return sorted(steps)


TRUTH = st.lists(st.floats(0.01, 10), min_size=8, max_size=8).map(rising)


@given(TRUTH, st.sets(st.integers(1, 8), min_size=1), st.integers(1, 8))
def test_where_steps_grow_with_gpus_the_range_holds_the_truth(truth: list[float], sizes: set[int], wanted: int) -> None:
    found = estimate(Hardware("box", wanted), [Measured("box", size, truth[size - 1]) for size in sizes])
    if isinstance(found, Unpredictable):
        assert wanted < min(sizes) or wanted > max(sizes)
        return
    assert found.least_seconds <= truth[wanted - 1] <= found.most_seconds
    assert found.measured == (wanted in sizes)
    if found.measured:
        assert found.least_seconds == found.most_seconds == truth[wanted - 1]


@given(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_a_ring_of_two_machines_is_inside_the_range(computing: float, inside: float, network: float, each: int) -> None:
    """Truth: computing, a stall inside machines and one between them, both in proportion to what a ring moves."""

    def step(gpus: int, machines: int) -> float:
        return computing + inside * ring_share(gpus // machines) + (network * ring_share(gpus) if machines > 1 else 0)

    seen = [Measured("box", 1, step(1, 1), run="one"), Measured("box", 4, step(4, 1))]
    found = estimate(Hardware("box", 2 * each, 2), [*seen, Measured("box", 4, step(4, 2), 2, run="halves")])
    assert isinstance(found, StepEstimate)
    assert found.least_seconds * (1 - 1e-9) <= step(2 * each, 2) <= found.most_seconds * (1 + 1e-9)
