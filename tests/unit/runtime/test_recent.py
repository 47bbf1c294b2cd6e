"""The copy decoded last serves the next reader of the same storage: on the same thread and stream, and no longer than it must."""

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


def test_another_stream_decodes_for_itself(saved, monkeypatch):
    book, handles, decoded = saved
    streams = iter((1, 2, 1))
    monkeypatch.setattr(read_again, "stream_of", lambda t: next(streams))
    for handle in handles:
        book.open(handle)
    assert len(decoded) == 2
