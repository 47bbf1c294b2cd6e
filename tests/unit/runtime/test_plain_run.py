"""`kompakt run --compare`: gradients of a plain run beside those under compression, and what is said where that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from kompakt_runtime.report.gradient_errors import ALL, GradientComparison, GradientErrors
from kompakt_runtime.report.plain_run import FollowingRun, PlainRun, sample

SCRIPT = Path(__file__).parents[2] / "support" / "runtime" / "learn.py"
RUNTIME = Path(__file__).parents[3] / "runtime"


def kompakt_run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = Path(sys.executable).parent / "kompakt"
    environ = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    options = ("--min-tensor-bytes", "0", "--compare")
    return subprocess.run([command, "run", *options, *words], capture_output=True, text=True, env=environ)


@pytest.fixture
def processes(environ, tmp_path):
    """The two runs of a script, with the hook as it lies here; the second one's figures."""

    def both(steps: int, *words: str, wanted: int = 6):
        more = {"KOMPAKT_COMPARE": str(wanted), "KOMPAKT_COMPARE_DIR": str(tmp_path / "plain"), "KOMPAKT_MIN_TENSOR_BYTES": "0"}
        more["PYTHONPATH"] = os.pathsep.join((environ["PYTHONPATH"], str(RUNTIME)))  # not the one that is installed
        for mode in ("None", "ErrorBounded"):
            ours = {**environ, **more, "KOMPAKT_MODE": mode, "KOMPAKT_ATTEMPT": str(int(mode != "None"))}
            done = subprocess.run(
                [sys.executable, SCRIPT, str(steps), *words], env=ours, capture_output=True, text=True, timeout=500, check=False
            )
            assert done.returncode == 0, done.stderr
            assert ("trained" in done.stdout) == (mode != "None" or steps <= wanted)
        (path,) = (tmp_path / "state").glob("figures-1-*.json")
        return json.loads(path.read_text())

    return both


@pytest.mark.timeout(900)
def test_an_unmodified_script_s_gradients_are_compared_and_the_first_line_says_how_far_they_were_off():
    done = kompakt_run("4", "--", sys.executable, str(SCRIPT), "9", "closure")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained 9\n", "the plain run ends after its steps"
    lines = [line for line in done.stderr.splitlines() if line.startswith("kompakt: ")]
    assert lines[0] == (
        "kompakt: run 1 of 2, without compression: ends after 4 optimizer steps, whose gradients are kept to compare with"
    )
    headline = next(line for line in lines if "held" in line)
    assert headline.startswith("kompakt: activations held at most ")
    assert " MB instead of " in headline
    assert headline.endswith("% at most (||g' - g|| / ||g||, 4 steps against plain training)")
    assert "losses equal to the last bit in all 4 steps" in done.stderr


def test_layers_are_off_a_little_and_much_more_with_a_broken_bound(processes):
    """One folder each: steps of the plain run, weights that follow it."""
    said = processes(9, "clipped")["compared"]
    assert (said["steps"], said["reason"], said["equalLosses"], said["sampled"]) == (6, "", 6, False)
    assert set(said["layers"]) == {ALL, "0", "3", "5"}
    assert all(0 < median <= worst < 0.1 for median, worst in said["layers"].values())


def test_a_broken_bound_shows_as_a_large_error(processes):
    said = processes(6, "broken")["compared"]
    assert (said["steps"], said["reason"]) == (6, "")
    assert said["layers"][ALL][1] > 0.1


@pytest.mark.parametrize(("word", "reason"), [("restless", "WeightsDiffer"), ("unsteady", "LossesDiffer")])
def test_a_program_that_is_not_reproducible_gets_no_figures_and_is_told_so(processes, word, reason):
    said = processes(6, word)["compared"]
    assert (said["steps"], said["reason"], said["layers"]) == (0, reason, {})
    (sentence,) = GradientComparison.of([said]).sentences()
    assert "not reproducible" in sentence


def trained(model, steps, scale=1.0):
    """Its weights after some steps; scale: of the gradients, as an error would change them."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        for weight in model.parameters():
            weight.grad.mul_(scale)
        optimizer.step()
    return [weight.detach().clone() for weight in model.parameters()]


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))


def plainly(folder, steps, **more):
    run = PlainRun(folder, steps, **more)
    try:
        with pytest.raises(SystemExit):
            trained(model(), steps + 1)
    finally:
        run._watched.end()


def test_weights_follow_the_plain_run_and_errors_are_shares_of_its_gradients(tmp_path):
    plainly(str(tmp_path), 3)
    following = FollowingRun(str(tmp_path), 3)
    assert all(map(torch.equal, trained(model(), 3, scale=1.25), trained(model(), 3)))
    said = following.errors.said()
    assert (said["steps"], said["reason"], said["equalLosses"]) == (3, "", 3)
    assert said["layers"] == {name: [pytest.approx(0.25), pytest.approx(0.25)] for name in (ALL, "0", "1")}


def test_of_gradients_that_find_no_room_a_sample_of_the_first_step_is_compared(tmp_path):
    whole = 4 * (64 + 8 + 16 + 2)
    run = PlainRun(str(tmp_path), 5, most=whole // 2)
    with pytest.raises(SystemExit):
        trained(model(), 2)
    run._watched.end()
    following = FollowingRun(str(tmp_path), 5)
    trained(model(), 2, scale=1.25)
    assert (following.errors.steps, following.errors.sampled, following.errors.reason) == (1, True, "")
    assert following.errors.layers[ALL] == [pytest.approx(0.25)]


def test_so_many_steps_are_kept_as_find_room(tmp_path):
    run = PlainRun(str(tmp_path), 5, most=2 * 4 * 90)
    with pytest.raises(SystemExit):
        trained(model(), 3)
    run._watched.end()
    assert len(list(tmp_path.glob("rank-0/[0-9]*.pt"))) == 2
    following = FollowingRun(str(tmp_path), 5)
    trained(model(), 4)
    assert GradientComparison.of([following.errors.said()]).sentences()[-1].startswith("2 of 5 steps")


def test_a_second_process_of_a_rank_ends_the_comparison(tmp_path):
    (tmp_path / "rank-0").mkdir()
    (tmp_path / "rank-0" / "owner").touch()
    plainly(str(tmp_path), 0)
    following = FollowingRun(str(tmp_path), 3)
    trained(model(), 1)
    assert following.errors.reason == "SeveralTrainers"


def test_nothing_is_left_behind_when_the_comparison_is_over(tmp_path):
    backward = torch.autograd.backward
    plainly(str(tmp_path), 1)
    following = FollowingRun(str(tmp_path), 1)
    assert torch.autograd.backward is not backward
    trained(model(), 1)
    assert following.errors.steps == 1
    assert torch.autograd.backward is backward


def test_the_same_elements_are_sampled_each_time():
    t = torch.arange(1000.0)
    assert torch.equal(sample(t, 0.1), sample(t, 0.1))
    assert len(sample(t.view(10, 100), 0.1)) == 100


def test_losses_may_differ_by_the_order_of_additions_and_no_more():
    errors = GradientErrors(2)
    assert errors.losses_agree([1.0, float("nan")], [1.0 + 1e-7, float("nan")])
    assert errors.losses_agree([2.0], [2.0])
    assert errors.losses_agree([], []), "nobody saw a loss"
    assert (errors.equal, len(errors.losses), max(errors.losses)) == (1, 2, pytest.approx(1e-7, rel=0.1))
    assert not errors.losses_agree([1.0], [1.001])
    assert not errors.losses_agree([1.0], [1.0, 1.0])
    assert not errors.losses_agree([1.0], [float("nan")])


def test_what_is_rounding_of_zero_is_no_layer_s_error():
    errors = GradientErrors(1)
    errors.add({"a": (1.0, 1e-4), "key.bias": (1e-14, 1e-14)})
    assert errors.said()["layers"] == {ALL: [pytest.approx(0.01)] * 2, "a": [pytest.approx(0.01)] * 2}


def test_of_several_ranks_the_one_that_was_off_most_is_shown():
    ranks = []
    for error in (1e-4, 4e-4, 1e-6):
        errors = GradientErrors(1)
        errors.losses_agree([1.0], [1.0])
        errors.add({"a": (1.0, error), "b": (1.0, error / 4)})
        ranks.append(errors.said())
    found = GradientComparison.of([{}, *ranks])
    assert found is not None
    assert [(layer.name, layer.worst) for layer in found.layers] == [("a", pytest.approx(0.02)), ("b", pytest.approx(0.01))]
    assert GradientComparison.of([{}]) is None
