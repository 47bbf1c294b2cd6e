"""Sessions whose forward passes count now, innermost last. There is one compiler in a process, and one table of tickets."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kompakt_runtime.compiled import partitioner


class Region(Protocol):
    """A session, as far as the compiler's settings go."""

    @property
    def keeper(self) -> Any: ...
    def asked(self) -> None:
        """Somebody asks for a compiler. Never raises."""


class Active:
    """While there is one, torch.compile is ours: whoever asks for a compiler is met before it compiles."""

    def __init__(self) -> None:
        self._sessions: list[Region] = []
        self._theirs: Callable[..., Any] = torch.compile
        self._ours: Any = None
        self._tickets: Any = None

    def enter(self, session: Region) -> None:
        if not self._sessions:
            self._theirs = torch.compile
            self._ours = torch.compile = self._met(torch.compile)
        self._sessions.append(session)

    def leave(self, session: Region) -> None:
        """What others put in place of torch.compile meanwhile stays."""
        if session in self._sessions:
            self._sessions.remove(session)
            self.serve(self._sessions[-1].keeper if self._sessions else None)
        if self._sessions and partitioner.loaded():
            self._sessions[-1].asked()  # its settings may be others
        if not self._sessions:
            partitioner.remove()
            if torch.compile is self._ours:
                torch.compile = self._theirs

    def serve(self, keeper: Any) -> None:
        """Compiled code hands over to this keeper."""
        if keeper is not None and self._tickets is None:
            from kompakt_runtime.compiled.operators import TICKETS

            self._tickets = TICKETS
        if self._tickets is not None:
            self._tickets.keeper = keeper

    def stepped(self) -> None:
        """An optimizer step is over."""
        if self._tickets is not None:
            self._tickets.stepped()

    def _met(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(theirs)
        def compile_met(*arguments: Any, **keywords: Any) -> Any:
            if self._sessions:
                self._sessions[-1].asked()
            return theirs(*arguments, **keywords)

        return compile_met


ACTIVE = Active()
