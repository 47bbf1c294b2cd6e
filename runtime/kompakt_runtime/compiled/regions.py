"""Calls of modules that `torch.compile` made: what is compiled in them packs, where that can be."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.compiled import partitioner
from kompakt_runtime.compiled.owners import Owners
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
        self._owners, self._compile = Owners(), torch.compile
        self._asked = False  # for a compiler, so far

    def begin(self) -> None:
        """Whatever asks for a compiler from now on, a function or `model.compile()`, is met before it compiles."""
        if not self._config.lossy:
            return
        if self._asked:
            self._installed()

        @functools.wraps(torch.compile)
        def compile_met(*arguments: Any, **keywords: Any) -> Any:
            try:
                self._installed()
            except Exception as error:
                self._figures.count_raw(f"HookFailed{type(error).__name__}")
            return self._compile(*arguments, **keywords)

        torch.compile = compile_met

    def _installed(self) -> str:
        """From now on what is compiled packs; or why not."""
        self._asked = True
        why_not = partitioner.install(self._config.min_tensor_bytes, self._figures.count_raw)
        if not why_not and self._tickets is None:
            self._tickets = self._serve()
        return why_not

    def enter(self, call: Call) -> None:
        """Before the call of a compiled module runs."""
        why_not = self._installed() if self._config.lossy else COMPILED
        if not why_not:
            self._sites.name_all(call.outermost)
            call.given = self._tickets.given
        elif why_not != COMPILED:
            self._figures.count_raw(why_not)

    def leave(self, call: Call) -> None:
        """What packed nothing counts as passed through."""
        if self._tickets is None or call.given == self._tickets.given:
            self._figures.count_raw(COMPILED)
        elif call.outermost is call.module:
            self._figures.forwards += 1

    def stop(self) -> None:
        """What is compiled already goes on, and packs nothing."""
        torch.compile = self._compile
        if self._tickets is not None:
            self._tickets.keeper = self._tickets = None
            partitioner.remove()

    def _serve(self) -> Any:
        from kompakt_runtime.compiled.operators import TICKETS
        from kompakt_runtime.compiled.values import CompiledValues

        TICKETS.keeper = CompiledValues(
            self._config, self._figures, self._sites, self._account, self._target, self._running, self._owners.parameter
        )
        return TICKETS

    def _running(self, view: Any, begins: bool) -> Running:
        calls = self._threads.calls
        if calls:
            hooked = self._threads.entered and not any(call.suspended for call in calls)
            return Running(calls[-1].module, calls[0].module, self._off(), hooked)
        root = self._owners.model(view)
        if begins and root is not None:
            self._sites.name_all(root)
            self._figures.forwards += 1
        return Running(root, root, self._off())
