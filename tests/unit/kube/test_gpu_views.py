"""The watcher of GPU accounts: two pods hold one GPU only if both lived at one moment."""

import itertools
import os
import subprocess
import sys
import time

import pytest

from tools.kube.gpu_views import Inside, Watcher, _inside

GPU, OTHER = frozenset({"GPU-a"}), frozenset({"GPU-b"})


class Closed:
    """Eyes that see nothing: these tests hand over what was seen."""

    def look(self):
        time.sleep(60)


@pytest.fixture
def watcher(monkeypatch):
    monkeypatch.setattr(Watcher, "_run", lambda self: None)
    return Watcher(Closed())


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        (Inside(GPU, 1.0, 5.0), Inside(GPU, 2.0, 6.0), True),
        (Inside(GPU, 1.0, 5.0), Inside(GPU, 5.5, 6.0), False),  # the second began after the first was last seen
        (Inside(GPU, 1.0, 5.0), Inside(OTHER, 2.0, 6.0), False),
    ],
)
def test_one_gpu_in_two_lives_is_wrong_where_they_overlap(watcher, first, second, wrong):
    for one, other in itertools.permutations((first, second)):
        watcher.wrong.clear()
        watcher._no_gpu_twice("n", {"p": one, "q": other})
        assert bool(watcher.wrong) is wrong


def test_a_process_tells_its_gpus_and_its_life():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    command = [sys.executable, "-c", "print('on', flush=True); input()"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = _inside(str(process.pid))
        process.communicate("\n")
    assert found is not None
    assert found.gpus == {"GPU-a", "GPU-b"}
    assert before <= found.began <= found.seen + 0.02
    assert _inside(str(process.pid)) is None
