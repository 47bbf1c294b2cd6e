"""What a training's own steps say: what is read, what the status shows, and what becomes of Auto."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kompakt_core import contract
from kompakt_core.job import measured
from kompakt_core.job.measured import Pace
from kompakt_core.job.model import Sensitivity, TrainingJob
from kompakt_core.job.spec import parse_job
from kompakt_core.profile.document import Profile, ProfiledRun
from tests.support.core.job_world import make_job
from tests.support.core.outcomes import refusal

PAGE = "# TYPE kompakt_ranks gauge\nkompakt_step_seconds 0.24771\nkompakt_gradient_bytes 531400000\nkompakt_ranks 16\n"
VGG = Pace(0.25, 531_400_000, 16)


def job(**communication: Any) -> TrainingJob:
    """Four workers of four GPUs."""
    return make_job(roles=[{"name": "worker", "replicas": 4, "gpusPerReplica": 4}], communication=communication)


def test_a_page_says_all_of_it_or_nothing() -> None:
    assert measured.read_page(PAGE) == VGG, "to two digits: a smaller change is no news"
    for name in measured.METRICS:
        assert measured.read_page(PAGE.replace(f"{name} ", "other ")) is None
        assert measured.read_page(PAGE.replace(f"{name} ", f"{name} -")) is None


@given(
    st.dictionaries(
        st.sampled_from(["stepSeconds", "gradientBytes", "ranks"]), st.floats() | st.integers() | st.text() | st.none()
    )
)
def test_whatever_a_pod_says_can_be_written_or_counts_as_not_said(values: dict[str, Any]) -> None:
    found = measured.read(values)
    if found is not None:
        written = measured.written(found, job(), "Rack")
        assert 0 <= float(written["communication"]) <= 1
        json.dumps(written, allow_nan=False)


def test_the_level_of_the_gang_is_taken_out_of_the_step() -> None:
    inside, spread = (measured.written(VGG, job(), level) for level in ("Machine", "Cluster"))
    figures = {"stepSeconds": "0.25", "gradientBytes": 531_400_000, "ranks": 16, "communication": "0.32", "sensitivity": "High"}
    assert inside == {"source": "Steps", "level": "Machine"} | figures
    assert spread["communication"] == "1", "a step that is mostly communication over the cluster's links"
    unknown = measured.written(VGG, job(), "")
    assert (unknown["communication"], "level" in unknown) == ("0.32", False)


def test_declared_gradients_count_before_what_was_seen() -> None:
    found = measured.written(VGG, job(gradientBytes="4M"), "Machine")
    assert (found["gradientBytes"], found["sensitivity"]) == (4_000_000, "None")


@pytest.mark.parametrize(
    ("declared", "profile", "used"),
    [
        ("Auto", {"sensitivity": "Low"}, "Low"),
        ("Auto", {"sensitivity": "High"}, "High"),
        ("High", {"sensitivity": "Low"}, "High"),
        ("Auto", {}, "Auto"),
        ("Auto", {"sensitivity": "Sometimes"}, "Auto"),
    ],
)
def test_auto_becomes_what_was_measured_and_a_declared_word_stays(declared: str, profile: dict[str, str], used: str) -> None:
    assert measured.resolved(job(bandwidthSensitivity=declared), profile).communication.sensitivity == used


def test_a_job_that_says_nothing_of_communication_stays_insensitive() -> None:
    assert measured.resolved(make_job(), {"sensitivity": "High"}).communication.sensitivity is Sensitivity.LOW


RUN = ProfiledRun(0.2, (0.2,), 0.0, 1, 531_400_000, 1)
PROFILED = Profile(
    "box", 4, "GPU", 5, 20, {"one": RUN, "all": replace(RUN, step_seconds=0.25, ranks=4), "warm": replace(RUN, step_seconds=0.4)}
)


def profiled(profile: Profile = PROFILED, **communication: Any) -> TrainingJob:
    return structs.replace(job(**communication), profile=profile)


def test_what_was_measured_beforehand_counts_until_the_job_has_steps_of_its_own() -> None:
    stalls = {"interconnect": {"seconds": "0.05", "percent": "20.0"}, "prep": {"seconds": "0.15", "percent": "37.5"}}
    first = measured.profile_of(profiled(), None, "", {})
    figures = {"stepSeconds": "0.2", "gradientBytes": 531_400_000, "ranks": 1, "communication": "0.4", "sensitivity": "High"}
    assert first == {"source": "Annotation", "stalls": stalls} | figures
    own = measured.profile_of(profiled(), VGG, "Rack", first)
    assert own == measured.written(VGG, job(), "Rack") | {"stalls": stalls}
    assert measured.profile_of(profiled(), None, "", own) == own, "the next attempt goes by the steps of the one before"
    assert measured.profile_of(job(), None, "", own) == measured.written(VGG, job(), "Rack"), "annotation taken away"
    assert measured.profile_of(job(), None, "", first) == {}
    slower = replace(PROFILED, runs={"all": replace(RUN, step_seconds=80.0, ranks=4)})
    assert measured.profile_of(profiled(slower), None, "", first)["sensitivity"] == "None", (
        "a new annotation takes the old one's place"
    )


def test_a_profile_of_one_device_tells_stalls_only() -> None:
    alone = replace(PROFILED, devices=1, runs={"all": RUN, "warm": replace(RUN, step_seconds=0.4)})
    found = measured.profile_of(profiled(alone), None, "", {})
    assert ("communication" in found, "sensitivity" in found) == (False, False)
    assert found["stalls"] == {"prep": {"seconds": "0.2", "percent": "50.0"}}
    assert measured.resolved(profiled(alone), {}).communication.sensitivity is Sensitivity.AUTO


def test_auto_is_what_was_profiled_already_in_the_first_attempt() -> None:
    assert measured.resolved(profiled(), {}).communication.sensitivity is Sensitivity.HIGH
    assert measured.resolved(profiled(bandwidthSensitivity="Low"), {}).communication.sensitivity is Sensitivity.LOW
    assert measured.resolved(profiled(gradientBytes="1k"), {}).communication.sensitivity is Sensitivity.NONE
    seen = measured.written(Pace(50.0, 1000, 16), job(), "Rack")
    assert measured.resolved(profiled(), seen).communication.sensitivity is Sensitivity.NONE


def test_a_broken_annotation_is_refused_by_its_name() -> None:
    roles = [{"name": "worker", "gpusPerReplica": 1, "template": {"spec": {"containers": [{"name": "t", "image": "i"}]}}}]
    annotations = {contract.ANN_PROFILE: '{"kompaktProfile": 1}'}
    said = refusal(parse_job, {"metadata": {"name": "j", "annotations": annotations}, "spec": {"roles": roles}})
    assert said.startswith("annotation kompakt.dev/profile: no profile of version 1; expected what kompakt profile")


def test_a_finished_gang_leaves_the_pace_of_its_slowest_worker_and_the_next_attempt_keeps_it(world_of: Any) -> None:
    world = world_of(communication={"pattern": "Ring"}).run()
    for seconds, name in zip((0.1, 0.3), sorted(world.pods), strict=True):
        said = {"kompakt": contract.TERMINATION_VERSION, "pace": {"stepSeconds": seconds, "gradientBytes": 10**6, "ranks": 4}}
        world.pods[name] = replace(world.pods[name], reports=(json.dumps(said),))
    world.settle()
    kept = world.stored["profile"]
    assert (kept["stepSeconds"], kept["gradientBytes"]) == ("0.3", 10**6)
    assert not world.suspend().pods
    assert world.stored["profile"] == kept
