"""Bounds outlive a process: as a value beside a checkpoint, and as a file for the next attempt."""

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kompakt_runtime.bounds.file import MOST_BYTES, BoundsFile, path_of
from kompakt_runtime.bounds.layer import Average, observed
from kompakt_runtime.bounds.remembered import VERSION
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session
from tests.support.runtime.small_training import batch, network, train_step, warm_up

ROOT = Path(__file__).parents[3]
STEPS = 20  # none of the next is one to measure


def with_norm() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(32, 4)
    )


def trained(running, model: nn.Module, **settings) -> dict:
    """What a session knows of the model after some steps; it has ended."""
    session = running(**settings)
    warm_up(model, STEPS, momentum=0.9)
    session.stop()
    return session.remembered.state()


def bounds_of(session) -> dict[str, float | None]:
    return {site.name: site.bound for site in session.sites}


def row_of(state: dict, name: str) -> dict:
    return next(row for row in state["layers"] if row["name"] == name)


def test_the_next_session_goes_on_with_the_bounds_of_the_last_from_its_first_step(running):
    model = with_norm()
    state = trained(running, model, activation_gradients="Bounded")
    assert {row["name"] for row in state["operations"]} >= {"1 [norm]", "2 [gelu]", "4 [gelu]"}
    session = running(activation_gradients="Bounded")
    session.remembered.load(state)
    model(batch())
    assert session.sites.known
    assert bounds_of(session) == {row["name"]: row["bound"] for row in state["layers"]}
    assert {one.name: one.bound for one in session.hooks.operations} == {r["name"]: r["bound"] for r in state["operations"]}
    # A bound from the input itself, as a first one is, would be noted here.
    assert not any(site.unmeasured for site in session.sites)


def test_its_first_step_is_measured_and_then_the_schedule_goes_on(running):
    model, before = network(), running()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(STEPS):
        train_step(model, optimizer, batch(step))
    before.stop()
    state, session = before.remembered.state(), running()
    session.remembered.load(state)
    measured = []
    for step in range(16):
        output = model(batch(step))
        measured.append(session.sites.observing())
        optimizer.zero_grad()
        output.square().sum().backward()
        optimizer.step()
    assert measured == [True, *(observed(STEPS + step) for step in range(1, 16))]
    assert all(site.steps == STEPS + 16 for site in session.sites)
    counted = row_of(session.remembered.state(), "2")["average"][1]
    assert counted > 16, "what was measured before still counts"


@pytest.mark.parametrize("carry", [lambda state: json.loads(json.dumps(state)), copy.deepcopy])
def test_it_is_a_plain_value(running, carry):
    state = trained(running, network())
    assert carry(state) == state
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == state


def test_a_state_that_nobody_used_yet_is_kept(running):
    state = trained(running, network())
    session = running()
    session.remembered.load(state)
    assert session.remembered.state() == state


def test_layers_of_another_shape_and_layers_that_share_a_name_begin_as_ever(running):
    state = trained(running, network())
    for row in state["layers"]:
        row["shape"][0] += 1
    session = running()
    session.remembered.load(state)
    model = network()
    model(batch())
    assert set(bounds_of(session).values()) == {None}
    session.stop()
    twins = running()
    models = network(), network()
    for model in models:
        warm_up(model)
    assert [site.bound is not None for site in twins.sites] == [True] * 6
    assert twins.remembered.state()["layers"] == []


def test_another_target_stretches_the_bounds(running):
    model = network()
    state = trained(running, model)
    session = running(target="0.05")
    session.remembered.load(state)
    model(batch())
    for site in session.sites:
        assert site.bound == pytest.approx(5 * row_of(state, site.name)["bound"], rel=1e-5)
        wide = site.average.after(1e9, STEPS)
        assert wide == pytest.approx(5 * Average.of(row_of(state, site.name)["average"]).after(1e9, STEPS), rel=1e-5)


def test_a_layer_that_was_found_too_inexact_stays_exact(running):
    model = network()
    state = trained(running, model)
    row_of(state, "2")["lossless"] = True
    session = running()
    session.remembered.load(state)
    model(batch())
    assert {site.name: (site.mode, site.observing) for site in session.sites}["2"] == ("Lossless", False)


@pytest.mark.parametrize(("best", "counts"), [(0.4, False), (0.6, True), (8.0, True)])
def test_what_was_saved_counts_unless_the_next_measurement_allows_less_than_half(best, counts):
    """A job without a checkpoint begins anew, where bounds may have to be ten times as tight."""
    before = Average()
    before.after(1.0, 100)
    average = Average.of(before.state())
    assert average.after(best, 101) == pytest.approx(before.after(best, 101) if counts else best)
    assert average.after(0.1, 102) > 0.1, "once is enough"


# Whatever is in the file.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
GOOD = {
    "version": VERSION,
    "target": 0.01,
    "seeds": 3,
    "layers": [
        {
            "name": "2", "shape": [8, 8, 3, 3], "steps": 3, "bound": 0.1, "average": [3, 3.0, 9.0], "tolerance": 0.1,
            "divisor": 1.0, "lossless": False,
        }
    ],
    "operations": [{"name": "1 [gelu]", "bound": 0.1}],
}  # fmt: skip


def places(value, path=()) -> list[tuple]:
    """Paths to all that is in there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def changed(value, path, new):
    if not path:
        return new
    made = copy.copy(value)
    made[path[0]] = changed(value[path[0]], path[1:], new)
    return made


@given(st.sampled_from(places(GOOD)), JSON)
def test_whatever_stands_in_there_is_taken_or_named(path, new):
    session = Session(RuntimeConfig(mode="ErrorBounded", min_tensor_bytes=0, activation_gradients="Bounded"))
    try:
        session.remembered.load(changed(GOOD, path, new))
    except ValueError:
        return
    session.start()
    try:
        model = network()
        model(batch()).square().sum().backward()
        torch.optim.SGD(model.parameters(), lr=1e-3).step()
    finally:
        session.stop()
    assert not [reason for reason in session.figures.raw if "Failed" in reason]
    assert json.loads(json.dumps(session.remembered.state())) == session.remembered.state()


@pytest.mark.parametrize(
    ("path", "new", "words"),
    [
        ((), [], "no error bounds of version 1"),
        (("version",), 2, "no error bounds of version 1"),
        (("target",), 0.0, "target is 0.0; it must be a number above"),
        (("layers",), {}, "layers must be a list"),
        (("layers", 0), {"name": "2"}, r"layers\[0\] must have exactly name, shape"),
        (("layers", 0, "bound"), -1.0, r"layers\[0\].bound cannot be -1.0"),
        (("layers", 0, "bound"), float("nan"), r"layers\[0\].bound cannot be nan"),
        (("layers", 0, "average"), [1, 0.0, 0.0], r"layers\[0\].average cannot be"),
        (("layers", 0, "steps"), True, r"layers\[0\].steps cannot be True"),
        (("operations", 0, "name"), "", r"operations\[0\].name cannot be ''"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_taken_over(running, path, new, words):
    session = running()
    with pytest.raises(ValueError, match=words):
        session.remembered.load(changed(GOOD, path, new))
    assert session.remembered.state()["layers"] == []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def kept(running, tmp_path):
    """A session and its file; `reasons` are what was counted."""

    def make(**settings):
        session, clock = running(**settings), Clock()
        file = BoundsFile(path_of(str(tmp_path), {}), session.remembered, session.figures.count_raw, clock)
        session.stepped = file.stepped
        return session, file, clock

    return make


def test_the_file_is_written_where_bounds_are_new_and_not_too_often(kept, tmp_path):
    session, _, clock = kept()
    path, model = tmp_path / "kompakt-bounds-0-of-1.json", network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    seen = []
    for step in range(12):
        clock.now += 5
        train_step(model, optimizer, batch(step))
        seen.append(path.stat().st_ino)
    # Steps 1, 2, 3, 5 and 9 are measured; ten seconds lie between two writings.
    assert [i + 1 for i in range(12) if i == 0 or seen[i] != seen[i - 1]] == [1, 3, 5, 9]
    assert [one.name for one in tmp_path.iterdir()] == [path.name], "nothing half is left"
    session.stop()
    next_session, file, _ = kept()
    file.read()
    model(batch())
    assert bounds_of(next_session) == {row["name"]: row["bound"] for row in json.loads(path.read_text())["layers"]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "SavedBoundsBroken"),
        (b'{"version": 1', "SavedBoundsBroken"),
        (b"\xff\xfe", "SavedBoundsBroken"),
        (b"[" * 100000, "SavedBoundsBroken"),
        (b'{"version": 7}', "SavedBoundsBroken"),
        (b" " * (MOST_BYTES + 1), "SavedBoundsBroken"),
        (json.dumps(GOOD).encode(), None),
        (None, None),
    ],
)
def test_a_file_that_is_broken_is_counted_and_written_over(kept, tmp_path, content, reason):
    path = path_of(str(tmp_path), {"RANK": "0", "WORLD_SIZE": "1"})
    if content is not None:
        path.write_bytes(content)
    session, file, _ = kept()
    file.read()
    assert dict(session.figures.raw) == ({reason: 1} if reason else {})
    warm_up(network())
    assert {row["name"] for row in json.loads(path.read_text())["layers"]} == {"0", "2", "5"}


@pytest.mark.parametrize("inside", ["nothing", "a folder"])
def test_a_folder_that_cannot_be_used_disturbs_nothing(kept, tmp_path, inside):
    session, file, _ = kept()
    file._path = tmp_path / "gone" / "file"
    if inside == "a folder":
        file._path.mkdir(parents=True)
    file.read()
    warm_up(network())
    assert session.figures.raw["SavedBoundsUnwritable"] >= 1
    assert session.figures.raw["SavedBoundsUnreadable"] == (inside == "a folder")
    assert all(bounds_of(session).values())


def test_each_rank_of_each_gang_has_a_file_of_its_own():
    names = {path_of("f", {"RANK": rank, "WORLD_SIZE": ranks}).name for rank in "01" for ranks in "24"}
    assert len(names) == 4
    assert path_of("f", {"RANK": "../x", "WORLD_SIZE": ""}) == path_of("f", {})


# Two processes load torch and its optimizers, one after the other.
@pytest.mark.timeout(300)
def test_the_next_attempt_goes_on_with_the_bounds_of_the_last(environ, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    ours = {**environ, "KOMPAKT_MIN_TENSOR_BYTES": "0", "KOMPAKT_BOUNDS_DIR": str(kept), "RANK": "1", "WORLD_SIZE": "2"}
    ours["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(ROOT / "runtime")])
    first_bounds = []
    for attempt in ("1", "2"):
        command = [sys.executable, ROOT / "tests" / "support" / "runtime" / "train.py", "8", "1"]
        subprocess.run(command, env={**ours, "KOMPAKT_ATTEMPT": attempt}, check=True, capture_output=True)
        (figures,) = (tmp_path / "state").glob(f"figures-{attempt}-*.json")
        first_bounds.append(json.loads(figures.read_text())["layers"]["2"]["first"])
    # What a bound from the input alone was worth is told only where there was one.
    assert first_bounds[0] is not None
    assert first_bounds[1] is None
    (file,) = kept.iterdir()
    assert file.name == "kompakt-bounds-1-of-2.json"
    assert all(row["steps"] == 2 for row in json.loads(file.read_text())["layers"])
