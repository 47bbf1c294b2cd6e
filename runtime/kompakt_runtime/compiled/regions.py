"""Calls of modules that `torch.compile` made: what is compiled in them packs, where that can be."""

from collections.abc import Callable
from typing import Any

from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.compiled import partitioner
from kompakt_runtime.compiled.running import Running
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures.counted import COMPILED, Figures
from kompakt_runtime.saved.account import Account
from kompakt_runtime.scope.calls import Call, Thread


class Regions:
    """A session's part in them. Nothing of the compiler is loaded before a compiled module is called."""

    def __init__(
        self,
        config: RuntimeConfig,
        figures: Figures,
        sites: Sites,
        account: Account,
        target: Callable[[], float],
        threads: Thread,
        off: Callable[[], bool],
    ) -> None:
        """threads: the calls in progress; off: are steps plain now?"""
        self._config, self._figures, self._sites, self._account = config, figures, sites, account
        self._target, self._threads, self._off = target, threads, off
        self._tickets: Any = None  # once something can be packed

    def enter(self, call: Call) -> None:
        """Before the call runs, and so before it is compiled. Raises nothing that a call of the user's should end with."""
        if self._config.lossy and partitioner.install(self._config.min_tensor_bytes, self._count):
            if self._tickets is None:
                self._tickets = self._serve()
            self._sites.name_all(call.outermost)
            call.given = self._tickets.given

    def leave(self, call: Call) -> None:
        """What packed nothing counts as passed through."""
        if self._tickets is None or call.given == self._tickets.given:
            self._figures.count_raw(COMPILED)
        elif call.outermost is call.module:
            self._figures.forwards += 1

    def stop(self) -> None:
        """What is compiled already goes on, and packs nothing."""
        if self._tickets is not None:
            self._tickets.keeper = self._tickets = None
            partitioner.remove()

    def _count(self, reason: str) -> None:
        self._figures.count_raw(reason)

    def _serve(self) -> Any:
        from kompakt_runtime.compiled.operators import TICKETS
        from kompakt_runtime.compiled.values import CompiledValues

        TICKETS.keeper = CompiledValues(self._config, self._figures, self._sites, self._account, self._target, self._running)
        return TICKETS

    def _running(self) -> Running:
        calls = self._threads.calls
        return Running(calls[-1].module, calls[0].module, self._off()) if calls else Running(None, None, self._off())
