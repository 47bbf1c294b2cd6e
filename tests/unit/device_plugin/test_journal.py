"""The write-ahead file: what it keeps, when an entry ends, and what a broken file does."""

import contextlib
import json
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.errors import InvalidInput
from kompakt_device_plugin import journal as module
from kompakt_device_plugin.coalescing_writer import CoalescingWriter
from kompakt_device_plugin.journal import (
    FILE,
    MAX_ENTRIES,
    Journal,
    JournalEntry,
    read_entries,
    still_open,
    with_pending,
    write_entries,
)
from tests.support.device_plugin.pods import node_pod, takes

MATCHED = JournalEntry(("GPU-0", "GPU-1"), "uid-a", "ns", "a")
UNMATCHED = JournalEntry(("GPU-2",))


@pytest.fixture
def plugins(tmp_path):
    (tmp_path / "kompakt").mkdir()
    return tmp_path


@pytest.fixture
def journal(plugins):
    return Journal(plugins)


def loaded(plugins):
    """As the next process finds it."""
    journal = Journal(plugins)
    journal.load()
    return journal


@pytest.fixture
def busy_disk(monkeypatch):
    """Nothing is written before the test says so; it goes on in the end, however that comes."""
    ready = threading.Event()
    write = CoalescingWriter._replace
    monkeypatch.setattr(CoalescingWriter, "_replace", lambda file, content: ready.wait(30) and write(file, content))
    yield ready
    ready.set()


def test_what_was_handed_over_outlives_the_process(plugins, journal):
    journal.begin(MATCHED)
    journal.begin(UNMATCHED)
    after = loaded(plugins)
    assert after.entries == (MATCHED, UNMATCHED)
    after.end([MATCHED])
    assert after.flush(60)
    assert loaded(plugins).entries == (UNMATCHED,)


def test_a_set_that_kubelet_offers_again_was_handed_over_in_vain_until_it_ends_or_is_handed_over_once_more(journal):
    journal.begin(MATCHED)
    journal.begin(UNMATCHED)
    journal.offered({"GPU-1", "GPU-2", "GPU-7"})
    assert (journal.entries, journal.in_vain) == ((MATCHED, UNMATCHED), {MATCHED, UNMATCHED}), "who had it may still run"
    journal.begin(UNMATCHED)
    assert (journal.entries, journal.in_vain) == ((MATCHED, UNMATCHED), {MATCHED})
    journal.end([MATCHED])
    assert (journal.entries, journal.in_vain) == ((UNMATCHED,), frozenset())


def test_whoever_is_given_a_gpu_has_it_alone(journal):
    for entry in (MATCHED, UNMATCHED, JournalEntry(("GPU-1",))):
        journal.begin(entry)
    assert journal.entries == (UNMATCHED, JournalEntry(("GPU-1",)))


def test_a_busy_disk_holds_nobody_up_and_gets_the_newest_in_the_end(plugins, journal, busy_disk, monkeypatch):
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.02)
    began = time.monotonic()
    assert not journal.begin(MATCHED)
    journal.offered(MATCHED.gpus)
    journal.end([MATCHED])
    assert not journal.begin(UNMATCHED)
    assert time.monotonic() - began < 5, "the disk itself takes up to thirty"
    assert not (plugins / "kompakt" / FILE).exists()
    busy_disk.set()
    monkeypatch.setattr(module, "WRITE_SECONDS", 60)  # the disk of the tests may be truly busy
    assert journal.flush(60)
    assert read_entries((plugins / "kompakt" / FILE).read_bytes()) == (UNMATCHED,)
    assert journal.begin(MATCHED)


def test_a_disk_is_waited_for_a_tenth_of_a_second_at_most(journal, busy_disk, monkeypatch):
    seconds, changed = [], journal._file._changed
    for wait in ("wait", "wait_for"):
        monkeypatch.setattr(changed, wait, lambda *arguments: seconds.append(arguments[-1]))
    assert not journal.begin(MATCHED)
    journal.offered(MATCHED.gpus)
    journal.end([MATCHED])
    assert 0 < sum(seconds) <= 0.1


A, B = node_pod("a", size=2), node_pod("b", size=1)
BOTH = (MATCHED, UNMATCHED)


@pytest.mark.parametrize(
    ("listed", "pods", "still"),
    [
        pytest.param({}, [A, B], BOTH, id="until kubelet lists its GPUs"),
        pytest.param(takes(b=["GPU-1"]), [A, B], (), id="not when it lists them for another, and nobody waits for the other set"),
        pytest.param(takes(a=["GPU-4", "GPU-5"]), [A], (), id="not when it lists others for the pod"),
        pytest.param({}, [B], (UNMATCHED,), id="not when its pod is gone"),
        pytest.param({}, [replace(A, finished=True), node_pod("b", size=3)], (), id="not when nobody waits for so many"),
    ],
)
def test_an_entry_is_open(listed, pods, still):
    assert still_open(BOTH, listed, pods) == still


def test_each_gpu_is_held_once():
    held = (GpuHolder("GPU-0", "ns", "b", "uid-b"),)
    assert with_pending(held, [MATCHED, UNMATCHED, UNMATCHED]) == (
        held[0],
        GpuHolder("GPU-1", "ns", "a", "uid-a"),
        GpuHolder("GPU-2", "", "", ""),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON"),
        (b"\xff{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "version 1"),
        (b'{"version": 2, "entries": []}', "version 1"),
        (b'{"version": 1, "entries": [{"gpus": []}]}', "entry 0: gpus must be a list"),
        (b'{"version": 1, "entries": [{"gpus": ["x"], "pod": 3}]}', "must be texts"),
        (json.dumps({"version": 1, "entries": [0] * (MAX_ENTRIES + 1)}).encode(), "at most 1024"),
    ],
)
def test_a_broken_file_is_said_and_counts_as_empty(plugins, caplog, content, says):
    with pytest.raises(InvalidInput, match=says):
        read_entries(content)
    (plugins / "kompakt" / FILE).write_bytes(content)
    assert loaded(plugins).entries == ()
    assert "of no use" in caplog.text


@given(st.binary(max_size=200) | st.from_type(dict).map(lambda found: repr(found).replace("'", '"').encode()))
def test_any_bytes_give_entries_or_a_sentence(content):
    with contextlib.suppress(InvalidInput):
        read_entries(content)


TEXTS = st.text(max_size=5)
ENTRIES = st.builds(JournalEntry, st.lists(st.text(min_size=1, max_size=5), min_size=1).map(tuple), TEXTS, TEXTS, TEXTS)


@given(st.lists(ENTRIES, max_size=5).map(tuple))
def test_what_is_written_is_read_back(entries):
    assert read_entries(write_entries(entries)) == entries


def test_a_disk_that_takes_nothing_keeps_no_pod_from_starting(tmp_path, caplog):
    journal = Journal(tmp_path / "gone")
    journal.begin(MATCHED)
    assert journal.entries == (MATCHED,)
    assert "cannot write" in caplog.text
