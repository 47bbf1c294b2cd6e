"""A measured run inside the training process: data replayed from memory, steps timed, figures left in a file."""

import itertools
import json
import os
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from kompakt_runtime.config import ConfigError
from kompakt_runtime.launch import pagecache, profiling
from kompakt_runtime.launch.profiling import AFTER, REPLAYED, Profiling, ProfilingRequest

PLAIN = DataLoader.__iter__


def read(text: str, **more: str) -> ProfilingRequest | None:
    told = {"PROFILE": text, "STATE_DIR": "/x", **more}
    return ProfilingRequest.from_env({f"KOMPAKT_{name}": value for name, value in told.items()})


def request(mode: str, folder: object = "", *, warm_up: int = 1, steps: int = 4, **more: Any) -> Profiling:
    return Profiling(ProfilingRequest(mode, warm_up, steps, str(folder), **more))


@pytest.mark.parametrize(
    "text", ["fast,5,20", "real", "real,5", "real,5,3", "real,0,20", "real,5,20,1", "real,a,20", "real,5,99999999"]
)
def test_a_request_that_cannot_be_is_rejected(text):
    with pytest.raises(ConfigError, match=r"KOMPAKT_PROFILE is .*such as synthetic,5,20"):
        read(text)


def test_a_request_is_read():
    assert ProfilingRequest.from_env({}) is None
    assert read("real,5,20") == ProfilingRequest("real", 5, 20, "/x")
    with pytest.raises(ConfigError, match="needs KOMPAKT_STATE_DIR"):
        ProfilingRequest.from_env({"KOMPAKT_PROFILE": "real,5,20"})


@pytest.mark.parametrize("text", ["", "[]", "/data", '["/data", 1]', '[""]', '{"a": 1}', "[" * 10_000])
def test_data_that_are_to_be_cold_have_to_be_named(text):
    with pytest.raises(ConfigError, match=r"KOMPAKT_PROFILE_DATA is .*must be a list of paths such as \[\"/data/train\"\]"):
        read("cold,5,20", PROFILE_DATA=text)
    assert read("real,5,20", PROFILE_DATA=text).paths == ()


def ready(folder, data, mode):
    """The share of the files in the page cache that the start-up hook left, with three processes of a pod."""
    for _ in range(3):
        request(mode, folder, paths=(str(data),))._ready_data()
    return json.loads((folder / profiling.CACHE).read_text())


def test_data_leave_the_page_cache_or_come_into_it_once_before_anybody_trains(tmp_path, monkeypatch):
    data, *folders = (tmp_path / name for name in ("data", "cold", "warm", "real"))
    for folder in (data, *folders):
        folder.mkdir()
    (data / "part.bin").write_bytes(b"x" * 100_000)
    calls = []
    for name in ("drop", "load"):
        plain = getattr(pagecache, name)
        monkeypatch.setattr(pagecache, name, lambda files, name=name, plain=plain: (calls.append((name, files)), plain(files))[1])
    shares = [ready(folder, data, mode) for folder, mode in zip(folders, ("cold", "warm"), strict=False)]
    assert calls == [("drop", [data / "part.bin"]), ("load", [data / "part.bin"])]
    assert shares[1] in (1.0, None), "None: this file system does not tell"
    assert shares[0] in (0.0, 1.0, None), "a file system in memory keeps what is dropped"
    request("real", folders[2])._ready_data()
    assert not list(folders[2].iterdir())


def test_data_that_are_not_there_end_the_run_before_it_trains(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: not there; give a file or folder"):
        request("cold", tmp_path, paths=(str(tmp_path / "nowhere"),)).start()
    assert DataLoader.__iter__ is PLAIN


class Endless(IterableDataset):
    def __iter__(self):
        return map(torch.tensor, itertools.count())


def test_synthetic_data_are_the_first_batches_again_in_every_epoch_and_as_many_as_the_loader_has():
    run = request("synthetic")
    loader = DataLoader(list(range(20)), batch_size=2, shuffle=True)
    epochs = [list(run._batches(loader, PLAIN)) for _ in range(2)]
    assert [len(epoch) for epoch in epochs] == [10, 10]
    assert all(epochs[0][i] is epochs[1][i] for i in range(10))
    assert len({id(batch) for batch in epochs[0]}) == REPLAYED
    without_length = list(itertools.islice(run._batches(DataLoader(Endless(), batch_size=1), PLAIN), 9))
    assert [int(batch) for batch in without_length] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_a_loader_without_a_batch_gives_none():
    assert list(request("synthetic")._batches(DataLoader([], batch_size=2), PLAIN)) == []


def test_real_data_come_as_they_are():
    batches = request("real")._batches(DataLoader([5, 6, 7], batch_size=2), PLAIN)
    assert [batch.tolist() for batch in batches] == [[5, 6], [7]]


def test_steps_are_timed_written_and_then_the_process_ends(tmp_path, monkeypatch):
    ends: list[Any] = []
    now = [0.0]
    monkeypatch.setattr(profiling.os, "_exit", ends.append)  # type: ignore[attr-defined]
    monkeypatch.setattr(profiling.time, "perf_counter", lambda: now[0])  # type: ignore[attr-defined]
    run = request("real", tmp_path, warm_up=2, steps=8)
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimizer, other = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
    for step in range(2 + 8 + AFTER):
        assert not ends
        now[0] += 0.5 if step < 6 else 1.5  # the second half is slower
        run._stepped(optimizer)
        run._stepped(other)
    assert ends == [0]
    (path,) = tmp_path.glob("profile-*.json")
    found = json.loads(path.read_text())
    assert (found["complete"], found["stepSeconds"], found["parts"]) == (True, 1.0, [0.5, 0.5, 1.5, 1.5])
    assert (found["gradientBytes"], found["ranks"], found["rank"]) == (24, 1, 0)
    run._ended(os.getpid())
    assert json.loads(path.read_text()) == found


def test_in_a_pod_the_slowest_rank_stands_in_the_termination_message(tmp_path):
    last_words = tmp_path / "termination-log"
    run = request("real", tmp_path, termination_log=str(last_words))
    figures = {"complete": True, "stepSeconds": 1.0, "parts": [1.0], "dataSeconds": 0.1, "loaders": 1, "gradientBytes": 8}
    figures["ranks"] = 2
    run._write(figures)
    assert not last_words.exists(), "outside a pod nothing is left behind"
    last_words.touch()
    (tmp_path / "profile-1.json").write_text(json.dumps({"rank": 1, **figures, "stepSeconds": 3.0}))
    run._write(figures)
    told = json.loads(last_words.read_text())
    assert "cached" not in told["run"]
    (tmp_path / profiling.CACHE).write_text("0.25")
    run._write(figures)
    assert json.loads(last_words.read_text())["run"]["cached"] == 0.25
    assert (told["kompakt"], told["reason"], told["run"]["processes"], told["run"]["stepSeconds"]) == (1, "Profile", 2, 3.0)


def test_a_script_that_ends_early_leaves_how_far_it_came(tmp_path):
    run = request("real", tmp_path, warm_up=2, steps=8)
    run._stepped(torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1))
    run._ended(os.getpid() + 1)
    assert not list(tmp_path.iterdir()), "a forked child says nothing"
    run._ended(os.getpid())
    (path,) = tmp_path.glob("profile-*.json")
    assert json.loads(path.read_text()) == {"rank": 0, "complete": False, "steps": 1}
