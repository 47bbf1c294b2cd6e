"""The pair of functions that autograd calls for every tensor it saves and reads again."""

from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec import decode
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.config import Config
from kompakt_runtime.figures import Figures
from kompakt_runtime.ledger import Entry, Handle, Ledger, Plain, whole_storage
from kompakt_runtime.origin import is_input_of, is_own_relu_save, is_parameter
from kompakt_runtime.policy import HELD, WAITS, Facts, Lossy, Use, decide
from kompakt_runtime.sites import Site

Tensor = Any


@dataclass(eq=False)
class Call:
    """One module call in progress. `site` and `input` only for linear layers; `mode` as asked for this module.

    enters: our hooks were entered with it; refuses: they must not be, here or in any module below; suspended: they are
    left while it runs.
    """

    module: Any
    mode: Any
    site: Site | None = None
    input: Tensor = None
    enters: bool = False
    refuses: bool = False
    suspended: bool = False


class Hooks:
    """pack and unpack. `pack` never raises: what fails is kept as it is and counted."""

    def __init__(self, config: Config, figures: Figures) -> None:
        self._minimum = config.min_tensor_bytes
        self._figures = figures
        self.ledger = Ledger(self._closed)
        # Layers whose packed input somebody else still held; looked at again on measured steps.
        self._held: set[str] = set()

    def pack(self, t: Tensor, call: Call, buffers: frozenset[int]) -> Handle | Plain:
        """`call` is the innermost module call; `buffers` are the storages of the model's buffers."""
        try:
            return self._pack(t, call, buffers)
        except Exception as error:
            self._figures.count_raw(f"PackFailed{type(error).__name__}")
            return Plain(t)

    def _pack(self, t: Tensor, call: Call, buffers: frozenset[int]) -> Handle | Plain:
        if type(t) is not torch.Tensor or t.layout != torch.strided or t.is_conj() or t.is_neg() or not t.numel():
            return Plain(t)
        if is_parameter(t) or t.untyped_storage()._cdata in buffers:
            return Plain(t)
        use = self._use(t, call)
        entry = self.ledger.entry(t)
        handle = Handle(entry, t)
        site = call.site if use is Use.WEIGHT_GRADIENT else None
        if site is not None and site.observing:
            site.see_input(t.detach())
        facts = Facts(entry.nbytes, t.dtype in LOSSY, 2 * t.numel() * t.element_size() >= entry.nbytes)
        held = site is not None and site.name in self._held and not site.observing
        verdict = decide(use, facts, call.mode, self._minimum, site.bound if site else None, held)
        if isinstance(verdict, Lossy):
            assert site is not None
            self._compress(entry, t, verdict.bound, site)
        elif verdict is not WAITS:
            _keep(entry, t, verdict.reason)
        return handle

    def _use(self, t: Tensor, call: Call) -> Use:
        weight = call.module._parameters.get("weight") if call.input is not None else None
        if weight is not None and is_input_of(t, call.input, weight):
            return Use.WEIGHT_GRADIENT
        return Use.SIGN if is_own_relu_save(t) else Use.VALUES

    def _compress(self, entry: Entry, t: Tensor, bound: float, site: Site) -> None:
        if entry.exact or (entry.taken and entry.bound <= bound):
            return None
        if t.is_cuda and torch.cuda.is_current_stream_capturing():
            return _keep(entry, t, "GraphCapture")
        try:
            gained = self.ledger.compress(entry, t, bound, site.name, at_once=site.observing)
        except Exception as error:
            return _keep(entry, t, f"EncodeFailed{type(error).__name__}")
        if not gained:
            return _keep(entry, t, "NoGain")
        entry.layer = site.name
        self._figures.layer(site.name).bound = bound
        if site.observing:
            self._verify(entry, t, bound)
        return None

    def _verify(self, entry: Entry, t: Tensor, bound: float) -> None:
        """On measured steps: reads the copy back and compares every element with the original."""
        whole = whole_storage(t)
        error = (decode(entry.packed) - whole).abs()  # type: ignore[arg-type]
        # Rounding of this subtraction aside; what is not finite must be equal bit for bit or NaN in both.
        fine = (error <= bound * (1 + 1e-6)) | ~whole.isfinite()
        self._figures.checked += whole.numel()
        self._figures.violations += int((~fine).sum())

    def unpack(self, handle: Handle | Plain) -> Tensor:
        """Raises RuntimeError where plain autograd would: the tensor was changed in place meanwhile."""
        return self.ledger.open(handle)

    def _closed(self, entry: Entry, held: bool) -> None:
        """A backward pass asked for this entry for the first time."""
        self._figures.count_storage(entry.nbytes, entry.kept_bytes, held or entry.reason == HELD.reason)
        if entry.packed is None:
            return self._figures.count_raw(entry.reason or WAITS.reason)
        with self._figures.lock:
            self._figures.compressed += 1
        (self._held.add if held else self._held.discard)(entry.layer)
        layer = self._figures.layer(entry.layer)
        layer.plain += entry.nbytes
        layer.saved += entry.packed.nbytes
        layer.outliers += entry.packed.outliers
        return None


def _keep(entry: Entry, t: Tensor, reason: str) -> None:
    entry.keep(t)
    entry.exact = True
    entry.reason = entry.reason or reason
