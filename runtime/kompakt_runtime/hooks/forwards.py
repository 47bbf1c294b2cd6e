"""Forward passes: where they begin and end, and that our saved-tensor hooks are entered for them and for nothing else."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.compat.graph import in_backward, noting
from kompakt_runtime.compat.hooks import Pair, innermost, untraced
from kompakt_runtime.compat.tensors import device_of
from kompakt_runtime.compiled.active import ACTIVE
from kompakt_runtime.compiled.parts import SessionParts
from kompakt_runtime.compiled.regions import Regions
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.cost.headroom import Headroom
from kompakt_runtime.cost.overhead import Overhead
from kompakt_runtime.figures.counted import COMPILED, SWITCHED_OFF, Figures
from kompakt_runtime.hooks.pair import Hooks
from kompakt_runtime.saved.handle import Handle, PlainTensor
from kompakt_runtime.saved.replay import state_before
from kompakt_runtime.scope.calls import Call, Thread, calls_on_the_stack, keywords, wants_gradient
from kompakt_runtime.scope.evaluation import InEvaluation
from kompakt_runtime.scope.obstacles import compiled, obstacle
from kompakt_runtime.scope.origin import is_plain, own_storages, saved_by_compiled_code

Tensor = Any


class Forwards:
    """What torch calls around each module call, and autograd for each tensor that is saved in one.

    Our hooks are entered with the outermost call in training mode and left when it returns or raises; what is saved outside of
    it (a loss computed on the model's output) stays as it is and is not counted.
    """

    def __init__(
        self,
        config: RuntimeConfig,
        figures: Figures,
        sites: Sites,
        hooks: Hooks,
        overhead: Overhead,
        watch: Callable[..., None],
        target: Callable[[], float],
    ) -> None:
        """watch: tells the watcher of memory of one of its moments, if there is one; target: that of one layer, now."""
        self._figures, self._sites, self._hooks = figures, sites, hooks
        self._overhead, self._watch = overhead, watch
        self._replay, self._bounds_activations = config.replay, config.bounds_activations
        self._threads = Thread()
        parts = SessionParts(config, figures, sites, hooks.account, hooks.budget, hooks.operations, target, self._owns)
        self._regions = Regions(parts, self._threads, self._plain)
        self._asked = False  # for the gradient of an input, in the last forward pass that was no recomputation
        self._in_evaluation = InEvaluation()
        # The same objects always: they are known again on autograd's stack.
        self._pair = (untraced(self._pack), untraced(noting(self._unpack)))
        self._handles: list[Any] = []
        self._active = False

    def start(self) -> None:
        """They count from now on. Hooks of modules stay between two passes: by their numbers code is known that was compiled."""
        if self._active:
            return
        self._active = True
        self._handles = self._handles or [
            module_hooks.register_module_forward_pre_hook(self._before),
            module_hooks.register_module_forward_hook(self._after, always_call=True),
        ]
        self._regions.begin()
        # Ours fire once more for a compiled module and do nothing there; nobody should be warned (or stopped) for it.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self._disable = torch.autograd.graph.disable_saved_tensors_hooks
        # torch.func refuses to run while saved-tensor hooks are active, and asks through this function.
        torch.autograd.graph.disable_saved_tensors_hooks = self._without_ours

    def pause(self) -> None:
        """They do not count until `start` is called again."""
        if self._active:
            torch.autograd.graph.disable_saved_tensors_hooks = self._disable
            self._regions.stop()
        self._active = False
        self._abandon()

    def stop(self) -> None:
        self.pause()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _owns(self, pair: Pair) -> bool:
        return pair[0] is self._pair[0]

    def _plain(self) -> bool:
        return self._figures.switched_off or self._overhead.off

    def _before(self, module: Any, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or not self._active:
            return
        try:
            self._enter_call(module, args)
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")

    def _enter_call(self, module: Any, args: tuple[Any, ...]) -> None:
        here = self._threads
        if here.calls and here.calls[0].module is module and calls_on_the_stack(module) == 1:
            self._abandon()
        call = Call(module, "None", outermost=here.calls[0].module if here.calls else module)
        here.calls.append(call)
        refused = any(outer.refuses for outer in here.calls)
        if not here.entered and not refused and not self._overhead.off and torch.is_grad_enabled() and self._trains(module):
            self._enter(call, args)
        if not here.entered:
            return
        self._watch(Headroom.inside, args)
        if compiled(module):
            self._regions.enter(call)
            call.suspended = self._suspend()
        call.exact = here.exact
        call.name = self._sites.name(module)
        call.mode = self._sites.mode_of(call.name, module)
        if self._replay and call.mode != "None":
            # The last before the module's own function: nothing of ours may come between this and the draw.
            call.state = state_before(module, args)

    def _trains(self, module: Any) -> bool:
        outermost = len(self._threads.calls) == 1
        return self._in_evaluation.trains(module) if outermost else module.training

    def stepped(self, optimizer: Any) -> None:
        """An optimizer step is over."""
        ACTIVE.stepped()
        if self._in_evaluation.stepped(optimizer):
            self._figures.count_raw("EvaluationMode")

    def _enter(self, call: Call, args: tuple[Any, ...]) -> None:
        self._hooks.budget.given(call.module, args, keywords(call.module))
        self._suspend()  # hooks of the user's, entered inside the last forward pass and left after it, lay on ours
        if reason := SWITCHED_OFF if self._figures.switched_off else obstacle(call.module):
            call.refuses = True
            return self._enter_compiled(call, args) if reason == COMPILED else self._figures.count_raw(reason)
        here = self._threads
        self._sites.name_all(call.module)
        self._watch(Headroom.entered, call.module, args)
        here.own, here.gathers = own_storages(call.module)
        self._overhead.entered(call.module)
        self._hooks.budget.entered(device_of(call.module))
        if self._hooks.offloading is not None:
            self._hooks.offloading.entered(call.module)
        here.exact = self._exactly(call.module, args)
        self._hooks.ledger.forget_recent()
        self._push()
        here.entered = call.enters = True
        self._figures.forwards += 1
        return None

    def _enter_compiled(self, call: Call, args: tuple[Any, ...]) -> None:
        self._threads.exact = self._exactly(call.module, args)
        self._regions.enter(call)

    def _exactly(self, module: Any, args: tuple[Any, ...]) -> bool:
        """Must gradients of activations be exact in the forward pass that begins? What is asked for by a leaf is used itself.

        What a backward pass computes again is given leaves in any case, and is what the last forward pass was.
        """
        if not self._bounds_activations:
            return False
        if not in_backward():
            self._asked = wants_gradient(args) or wants_gradient(keywords(module))
            if self._asked:
                self._figures.count_raw("InputGradient")
        return self._asked or self._hooks.exact

    def _abandon(self) -> None:
        """Forgets forward passes of this thread that ended without our hooks: an Exception calls them, KeyboardInterrupt not."""
        self._threads.calls.clear()
        self._hooks.readers.abandon()
        self._threads.entered = False
        self._suspend()

    def _after(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or not self._active:
            return
        try:
            self._leave_call(module, output)
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")

    def _leave_call(self, module: Any, output: Any) -> None:
        here = self._threads
        while here.calls:
            call = here.calls.pop()
            if compiled(call.module) and (call.refuses or call.suspended):
                self._regions.leave(call)
            if call.suspended:
                self._push()
            if here.entered:
                self._settle(call, output if call.module is module else None)
            if call.enters:
                self._suspend()
                here.entered = False
            # Calls above this one were cut off before their hooks ran; their places go with them.
            if call.module is module:
                return

    def _settle(self, call: Call, output: Any) -> None:
        """Decides what was left open while a module ran, as far as that can be known.

        Never raises: our hooks must be left in order.
        """
        try:
            with torch.no_grad(), self._overhead.codec():
                self._hooks.returned(output, outermost=call.enters)
                self._offload(call)
        except Exception as error:
            self._figures.count_raw(f"SettleFailed{type(error).__name__}")

    def _offload(self, call: Call) -> None:
        if self._hooks.offloading is None or not call.leaving:
            return
        left = self._hooks.offloading.settled(call.leaving, everything=call.enters)
        if not call.enters:
            self._threads.calls[-1].leaving += left

    def _pack(self, t: Tensor) -> Any:
        """Never raises: what fails is kept as it is and counted."""
        here, ours = self._threads, sys._getframe().f_back
        if not here.calls:
            # A thread of autograd's own: hooks are handed on to it, module calls are not.
            return PlainTensor(t)
        try:
            if saved_by_compiled_code(ours and ours.f_back):
                # All of a compiled region is unpacked before its first gradient: packing would raise the peak.
                return self._hooks.passed(t, COMPILED, here.own, here.calls[-1].name)
            with self._overhead.codec():
                if here.gathers and t.grad_fn is None and not t.requires_grad and t.is_floating_point():
                    self._gathered(t)
                return self._hooks.pack(t, here.calls[-1], here.own)
        except Exception as error:
            self._figures.count_raw(f"PackFailed{type(error).__name__}")
            return PlainTensor(t)

    def _gathered(self, t: Tensor) -> None:
        """FSDP2 may have put whole parameters in place since the forward pass began; a detached one has no other mark."""
        here = self._threads
        if is_plain(t) and self._hooks.ledger.known(t) is None:
            here.own |= own_storages(next(call.module for call in here.calls if call.enters))[0]

    def _unpack(self, handle: Any) -> Tensor:
        if self._hooks.trials.substitutes.running:
            return self._hooks.during_trial(handle)
        self._watch(Headroom.unpacking)
        with self._overhead.codec():
            t = self._hooks.unpack(handle)
        if isinstance(handle, Handle):
            self._watch(Headroom.unpacked, handle.use, handle.dtype)
        return t

    def _push(self) -> None:
        torch._C._autograd._push_saved_tensors_default_hooks(*self._pair)

    def _suspend(self) -> bool:
        """Leaves our hooks if they are the innermost; never pops anybody else's."""
        top = innermost()
        if top is None or top[0] is not self._pair[0]:
            return False
        torch._C._autograd._pop_saved_tensors_default_hooks()
        return True

    @contextlib.contextmanager
    def _without_ours(self, error_message: str) -> Iterator[None]:
        """Stands in for torch.autograd.graph.disable_saved_tensors_hooks: ours are no reason to refuse."""
        suspended = self._threads.entered and self._suspend()
        try:
            with self._disable(error_message):
                yield
        finally:
            if suspended:
                self._push()
