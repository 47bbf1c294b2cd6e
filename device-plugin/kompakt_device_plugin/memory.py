"""Keeping the resident memory of a process of many threads small, by glibc (mallopt(3), malloc_trim(3)), and its pauses short."""

import ctypes
import gc
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h


def one_heap() -> None:
    """All threads share one heap, where glibc would give most of them one of their own. Call it before any thread begins."""
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit:
        limit(_ARENA_MAX, 1)


def trim() -> None:
    """Hands what is free on the heap back to the system. Reading modules and building tables leaves some ten megabytes there,
    which glibc would keep; other C libraries have no such call and need none.

    What is left lives as long as the process. Later collections pass it over (gc.freeze): looking at it takes them a tenth of a
    second, in which no other thread works.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back:
        give_back(0)
