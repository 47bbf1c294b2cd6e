"""Threads for answers that take longer than kube-scheduler should wait, and a bound on how many wait for them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Answer = TypeVar("Answer")
THREADS: Final = 2
WAITING: Final = 8


class Busy(Exception):
    """Too many questions at once."""


class BoundedExecutor:
    """Runs work on threads of its own: those that write to the API server must stay free for binds."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="explain")
        self._open = 0

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """The result of `work`.

        Raises:
            Busy: THREADS + WAITING pieces of work are not done yet.
        """
        if self._open >= THREADS + WAITING:
            raise Busy(f"{self._open} questions are being answered; ask again in a second")
        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._open -= 1
