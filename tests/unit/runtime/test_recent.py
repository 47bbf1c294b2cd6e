"""Copies decoded last serve the next readers of the same storage: on the same thread and stream, and no longer than they must."""

import gc
import threading

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.saved import decoded as read_again
from kompakt_runtime.saved.handle import Handle
from kompakt_runtime.session import Session


@pytest.fixture
def saved(monkeypatch):
    """The ledger, three handles of one packed storage, and which copies were decoded."""
    book = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0)).hooks.ledger
    t = torch.randn(4096).relu()
    entry = book.entry(t)
    handles = [Handle(entry, t) for _ in range(3)]
    assert book.later.compress(entry, t, 0.1, "layer", at_once=True)
    decoded: list[StorageWeakRef] = []

    def watched(packed):
        copy = decode(packed)
        decoded.append(StorageWeakRef(copy.untyped_storage()))
        return copy

    decode = read_again.decode  # type: ignore[attr-defined]
    monkeypatch.setattr(read_again, "decode", watched)
    return book, handles, decoded


def test_readers_in_a_row_share_one_copy(saved):
    book, handles, decoded = saved
    for handle in handles:
        book.open(handle)
    assert len(decoded) == 1


def test_what_another_thread_has_decoded_is_let_go_too(saved):
    """As backward passes of GPUs do it, on threads of autograd's own."""
    book, handles, decoded = saved
    kept, done = threading.Event(), threading.Event()

    def read() -> None:
        book.open(handles[0])
        kept.set()
        done.wait(60)

    reader = threading.Thread(target=read)
    reader.start()
    assert kept.wait(60)
    assert not decoded[0].expired()
    book.forget_recent()
    gone = decoded[0].expired()
    done.set()
    reader.join()
    assert gone


def packed(book, size: int = 4096) -> tuple[torch.Tensor, list[Handle]]:
    t = torch.randn(size)
    entry = book.entry(t)
    handles = [Handle(entry, t), Handle(entry, t)]
    assert book.later.compress(entry, t, 0.1, "layer", at_once=True)
    return t, handles


ONE = 4 * 4096  # bytes of a copy


@pytest.fixture
def room(saved, monkeypatch):
    """Lets so many bytes of copies wait."""
    book, _, _ = saved

    def of(nbytes: int) -> None:
        waiting = book.decoded.recent.values()
        monkeypatch.setattr(book.decoded, "_room", lambda: nbytes - sum(ONE * len(recent._copies) for recent in waiting))

    return of


def test_a_copy_waits_while_others_are_read(saved, room):
    book, handles, decoded = saved
    room(3 * ONE)
    _, others = packed(book)
    for handle in (handles[0], others[0], handles[1], others[1], handles[2]):
        book.open(handle)
    assert len(decoded) == 2
    assert all(copy.expired() for copy in decoded)


def test_a_copy_waits_for_what_is_computed_from_it(saved, room):
    book, handles, decoded = saved
    room(4 * ONE)
    _result, waiting = packed(book)
    handles[0].entry.gives(waiting[0].entry)
    for handle in handles:
        book.open(handle)
    book.source(handles[0])
    assert len(decoded) == 1
    for handle in waiting:
        book.open(handle)
    assert not book.source(handles[0])[1]  # it lies there until something else is read
    another = packed(book)
    book.open(another[1][0])
    assert decoded[0].expired()


def test_the_oldest_copies_go_where_there_is_no_room(saved, room):
    book, handles, decoded = saved
    room(2 * ONE)
    every = [handles, *(packed(book)[1] for _ in range(3))]
    for some in every:
        book.open(some[0])
    assert [copy.expired() for copy in decoded] == [True, True, False, False]


def test_without_room_a_copy_waits_for_the_next_reader_alone(saved, room):
    book, handles, decoded = saved
    room(0)
    book.open(handles[0])
    assert not decoded[0].expired()
    _, others = packed(book)
    book.open(others[0])
    assert [copy.expired() for copy in decoded] == [True, False]


def test_what_is_being_computed_has_its_room_before_its_sources(saved, room):
    book, handles, decoded = saved
    room(ONE)
    recent = book.decoded._here(handles[0].entry)
    with recent.making(packed(book)[1][0].entry):
        assert book.source(handles[0])[1]
    assert decoded[0].expired()
    assert not book.source(handles[0])[1]
    assert not decoded[1].expired()


def test_a_copy_dies_with_what_it_is_a_copy_of(saved):
    book, handles, decoded = saved
    book.open(handles[0])
    assert not decoded[0].expired()
    handles.clear()
    gc.collect()
    assert decoded[0].expired()


def test_another_stream_decodes_for_itself(saved, monkeypatch):
    book, handles, decoded = saved
    streams = iter((1, 2, 1))
    monkeypatch.setattr(read_again, "stream_of", lambda t: next(streams))
    for handle in handles:
        book.open(handle)
    assert len(decoded) == 2
