"""Keeping the resident memory of a process of many threads small, by glibc (mallopt(3), malloc_trim(3)), and its pauses short."""

import ctypes
import gc
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h
# By these (gc.set_threshold) all objects are looked at after ten million were made and kept, not after 70,000. On 5,000 nodes
# with 5,000 waiting gangs that took 0.08 s every three seconds.
_COLLECTIONS: Final = (10_000, 20, 50)


def one_heap() -> None:
    """All threads share one heap, where glibc would give most of them one of their own. Call it before any thread begins."""
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit:
        limit(_ARENA_MAX, 1)


def collect_seldom() -> None:
    """Has the collector of cycles look at all objects rarely: no other thread works while it does."""
    gc.set_threshold(*_COLLECTIONS)


def trim() -> None:
    """Collects what nobody refers to, and hands what is free on the heap back to the system.

    What is left is taken to live long: later collections pass it over (gc.freeze), since looking at it takes them a tenth of a
    second, in which no other thread works. Call it again when much of that is gone; nothing else ever collects it.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    give_back()


def give_back() -> None:
    """Hands what is free on the heap back to the system: reading modules and large objects leaves megabytes there, which glibc
    would keep. Other C libraries have no such call and need none.
    """
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call:
        call(0)
