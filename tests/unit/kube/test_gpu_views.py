"""The watcher of GPU accounts: two pods hold one GPU only if both lived at one moment."""

import itertools
import os
import subprocess
import sys
import time

import pytest

from tools.kube.gpu_views import AGREE_SECONDS, GpuViews, GpuViewWatcher, Inside, _inside

GPU, OTHER = frozenset({"GPU-a"}), frozenset({"GPU-b"})


class Closed:
    """Eyes that see nothing: these tests hand over what was seen."""

    def look(self):
        time.sleep(60)


@pytest.fixture
def watcher(monkeypatch):
    monkeypatch.setattr(GpuViewWatcher, "_run", lambda self: None)
    return GpuViewWatcher(Closed())


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


def sight(at, *nodes):
    """One look at which a pod of each node finds a GPU that nobody else knows of."""
    pods = {f"uid-{name}": {"metadata": {"name": name, "namespace": "default"}} for name in nodes}
    inside = {name: {f"uid-{name}": Inside(GPU, 0.0, at)} for name in nodes}
    nothing = {name: {} for name in nodes}
    return GpuViews(at, pods, inside, nothing, nothing, dict.fromkeys(nodes, frozenset()))


def test_a_node_that_comes_back_gives_time_to_its_own_pods_only(watcher):
    now = time.monotonic()
    watcher.judge(sight(now - AGREE_SECONDS * 2, "one", "other"))
    watcher.down("one")
    watcher.up("one")
    watcher.judge(sight(now, "one", "other"))
    (said,) = watcher.wrong
    assert said.startswith("other: pod uid-other differs")


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
