"""What the figures say of entries: counted when a backward pass first reads one, compared with originals that are still there."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kompakt_runtime.codec.select import encoder
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.saved.compare import differences
from kompakt_runtime.saved.derived import Derived
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.lossless import Indices
from kompakt_runtime.saved.replay import Replay
from kompakt_runtime.uses.policy import HELD, WAITS

Tensor = Any


def _guarded(method: Callable[..., None]) -> Callable[..., None]:
    """Counting and comparing must not end a backward pass whose copies can be read."""

    @functools.wraps(method)
    def guarded(self: "Account", *what: Any) -> None:
        try:
            method(self, *what)
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")

    return guarded


class Account:
    """held: layers whose packed input somebody else still had; looked at again on measured steps."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self.held: set[str] = set()

    @_guarded
    def opened(self, entry: SavedStorage, held: bool) -> None:
        """A backward pass asked for this entry for the first time."""
        self._figures.count_storage(entry.nbytes, entry.kept_bytes, held or entry.demand.reason == HELD.reason)
        if entry.plain:
            reason = entry.demand.reason or WAITS.reason
            return self._figures.count_kept(reason, entry.nbytes, entry.layer, held=reason == HELD.reason)
        with self._figures.lock:
            self._figures.compressed += 1
        if entry.packed is not None:
            (self.held.add if held else self.held.discard)(entry.layer)
        if held:
            return None
        layer = self._figures.layer(entry.layer + kind(entry))
        layer.plain += entry.nbytes
        layer.saved += entry.kept_bytes
        layer.outliers += entry.packed.outliers if entry.packed is not None else 0
        return None

    @_guarded
    def read(self, entry: SavedStorage, flat: Tensor) -> None:
        """A copy was read whose original is still there."""
        if entry.original is not None:
            self.compare(entry, [(0, flat)], entry.original)

    def compare(self, entry: SavedStorage, copies: Iterable[tuple[int, Tensor]], original: Tensor) -> None:
        """Counts elements that differ by more than was promised. Waits for the device."""
        wrong, error = differences(entry, copies, original)
        self._figures.checked += original.numel()
        self._figures.violations += wrong
        if entry.bounded:
            row = self._figures.layer(entry.layer)
            row.error = max(row.error or 0.0, error)
            works = encoder(original.device, original.dtype)
            self._figures.encoder = f"{works.name} ({works.reason})" if works.reason else works.name


def kind(entry: SavedStorage) -> str:
    """What stands behind the module's name in the table of layers; nothing for error-bounded inputs."""
    if isinstance(entry.copy, Derived):
        return " [derived]"
    if entry.packed is not None:
        return ""
    if entry.copy is None:
        return " [not read]"
    if isinstance(entry.copy, Indices):
        return " [indices]"
    if isinstance(entry.copy, Replay):
        return " [replayed]"
    return " [mask]" if entry.same else " [signs]"
