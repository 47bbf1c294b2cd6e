"""Calls of modules that `torch.compile` made: what is compiled in them packs, where that can be."""

import sys
from collections.abc import Callable
from typing import Any

from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.compiled import partitioner
from kompakt_runtime.compiled.active import ACTIVE
from kompakt_runtime.compiled.owners import Owners
from kompakt_runtime.compiled.parts import SessionParts
from kompakt_runtime.compiled.running import Running
from kompakt_runtime.figures.counted import COMPILED, SWITCHED_OFF
from kompakt_runtime.scope.calls import Call, Thread


class Regions:
    """A session's part in them. Nothing of the compiler is loaded before somebody asks for it."""

    def __init__(
        self,
        parts: SessionParts,
        threads: Thread,
        off: Callable[[], bool],
    ) -> None:
        """threads: the calls in progress; off: are steps plain now?"""
        self._parts, self._threads, self._off = parts, threads, off
        self._config, self._figures, self._sites = parts.config, parts.figures, parts.sites
        self._keeper: Any = None  # once something can be packed
        self._owners = Owners()
        self._asked = False  # for a compiler, so far

    def begin(self) -> None:
        """Whatever asks for a compiler from now on, a function or `model.compile()`, is met before it compiles, and whatever did
        before, if it has not compiled yet.
        """
        if self._config.packs:
            ACTIVE.enter(self)
            if self._asked or "torch._dynamo" in sys.modules:
                self.asked()

    def asked(self) -> None:
        try:
            self.install()
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")

    def install(self) -> str:
        """From now on what is compiled packs; or why not."""
        self._asked = True
        config = self._config
        why_not = partitioner.install(config.min_tensor_bytes, config.lossy, config.bounds_activations, self._figures.count_raw)
        if not why_not and self._keeper is None and self._config.lossy:
            self._keeper = self._made()
        if not why_not:
            ACTIVE.serve(self._keeper)
        return why_not

    def enter(self, call: Call) -> None:
        """Before the call of a compiled module runs."""
        why_not = self.install() if self._config.packs else COMPILED
        call.given = self._given
        if not why_not:
            self._sites.name_all(call.outermost)
        elif why_not != COMPILED:
            self._figures.count_raw(why_not)

    def leave(self, call: Call) -> None:
        """What packed nothing counts as passed through."""
        if call.given == self._given:
            self._figures.count_raw(COMPILED)
        elif call.outermost is call.module:
            self._figures.forwards += 1

    def stop(self) -> None:
        """What is compiled already goes on, and packs nothing: its values are copied whole."""
        ACTIVE.leave(self)

    @property
    def _given(self) -> int:
        return 0 if self._keeper is None else int(self._keeper.given)

    @property
    def keeper(self) -> Any:
        return self._keeper

    def _made(self) -> Any:
        from kompakt_runtime.compiled.values import CompiledValues

        return CompiledValues(self._parts, self._running, self._owners.parameter)

    def _running(self, view: Any, begins: bool) -> Running:
        calls = self._threads.calls
        if calls:
            if begins:
                self._sites.name_all(calls[0].module)
            hooked = self._threads.entered and not any(call.suspended for call in calls)
            return Running(calls[-1].module, calls[0].module, self._reason(), hooked, exact=self._threads.exact)
        root = self._owners.model(view)
        if begins and root is not None:
            self._sites.name_all(root)
            self._figures.forwards += 1
        return Running(root, root, self._reason())

    def _reason(self) -> str:
        """Why nothing is compressed now, as without the compiler."""
        if self._off():
            return SWITCHED_OFF
        pair = innermost()
        return "" if pair is None or self._parts.owns(pair) else "UserHooks"
