"""Processes that a training starts by multiprocessing, with the start-up hook: each counts what it trained itself, no more."""

import sys

import pytest

from kompakt_runtime import start

SCRIPT = """
import multiprocessing, sys
import torch
from torch import nn

def train(steps, stepping=True):
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3, 6, 6)).square().mean().backward()
        if stepping:
            optimizer.step()

def main(how, steps):
    multiprocessing.set_forkserver_preload(["torch"] if how == "preloaded" else [])
    context = multiprocessing.get_context("forkserver" if how == "preloaded" else how)
    train(steps)
    children = [context.Process(target=train, args=given) for given in [(2,), (2,), (3, False)]]
    for child in children:
        child.start()
    for child in children:
        child.join(200)
    print(*(child.exitcode for child in children))

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
"""


@pytest.fixture
def trained(pod, tmp_path):
    """Runs the script; the pod's summary and its processes' own figures."""
    (tmp_path / "train.py").write_text(SCRIPT)

    def trained(how, steps):
        command = [sys.executable, str(tmp_path / "train.py"), how, str(steps)]
        done, words, rows = pod(command, KOMPAKT_MIN_TENSOR_BYTES="0")
        assert done.stdout == "0 0 0\n", done.stderr
        assert done.stderr.count("kompakt:") == 1, done.stderr
        return words, rows

    return trained


# "preloaded": torch is imported by the fork server, before it forks: what CPython 3.14 does for a script that imports torch.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "preloaded"])
def test_each_process_counts_the_steps_that_it_trained(trained, how):
    words, rows = trained(how, 4)
    assert [(row["steps"], row["forwards"], row["ended"]) for row in rows] == [(4, 4, True), (2, 2, True), (2, 2, True)]
    # Steps of one shape: what plain autograd keeps is the same in each.
    assert {row["plainBytes"] // row["steps"] for row in rows} == {rows[0]["plainBytes"] // 4}
    assert (words["active"], words["ranks"], words["steps"], words["complete"]) == (True, 3, 4, True)
    assert words["plainBytes"] == sum(row["plainBytes"] for row in rows)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["forkserver", "preloaded"])
def test_a_program_that_only_starts_its_ranks_counts_for_nothing(trained, how):
    words, rows = trained(how, 0)
    assert [(row["steps"], row["ended"]) for row in rows] == [(2, True), (2, True)]
    assert (words["active"], words["ranks"], words["steps"], words["complete"]) == (True, 2, 2, True)


@pytest.mark.parametrize(
    ("words", "child"),
    [
        (["python", "-c", "from multiprocessing.forkserver import main; main(3, 5, [])"], True),
        (["python", "-B", "-c", "import sys; from multiprocessing.forkserver import main; main(3, 5, [])"], True),  # 3.14
        (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"], True),
        (["python", "-c", "from multiprocessing import Pool; train()"], False),
        (["python", "train.py"], False),
    ],
)
def test_processes_started_anew_are_known_by_their_command_line(monkeypatch, words, child):
    monkeypatch.setattr(sys, "orig_argv", words)
    assert start._child() == child
