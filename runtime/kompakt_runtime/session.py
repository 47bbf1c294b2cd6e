"""Switches compression on for every training-mode module call of this process, and counts what it did."""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from kompakt_runtime.autograd_state import innermost, noting, untraced
from kompakt_runtime.calls import Call
from kompakt_runtime.config import RAISING, Config, Mode
from kompakt_runtime.figures import COMPILED, Figures
from kompakt_runtime.headroom import Headroom
from kompakt_runtime.hooks import Hooks
from kompakt_runtime.ledger import Handle, Plain
from kompakt_runtime.nonlinear import Operations
from kompakt_runtime.observe import after_step, renew_operations
from kompakt_runtime.offload import Offloading
from kompakt_runtime.origin import saved_by_compiled_code
from kompakt_runtime.overhead import Overhead
from kompakt_runtime.raising import Raising
from kompakt_runtime.replay import state_before
from kompakt_runtime.sites import Site, Sites

Tensor = Any

# A dry run ends after the second step, the first whose bounds were measured, or after so many if none is compressed.
DRY_RUN_STEPS = 8
CALL: Final = torch.nn.Module._call_impl.__code__


class Session:
    """One process's compression. `start` puts the global hooks in place, `stop` removes them.

    Saved-tensor hooks are entered at the outermost module call in training mode and left when it returns or raises;
    what is saved outside of it (a loss computed on the model's output) stays as it is and is not counted.
    """

    def __init__(
        self,
        config: Config,
        stepped: Callable[[], None] = lambda: None,
        offloading: Callable[[Figures], Offloading] | None = None,
    ) -> None:
        """stepped: called after each optimizer step, when all of it is counted; offloading: another link than a GPU's."""
        self.config = config
        self.figures = Figures()
        self.sites = Sites(self._mode_of, self.figures.count_raw)
        operations = Operations(self.sites, self.figures.count_raw) if config.nonlinear == "Bounded" else None
        self.offloading = (offloading or Offloading)(self.figures) if config.offload == "Auto" else None
        self.hooks = Hooks(config, self.figures, operations, self.offloading)
        self.stepped = stepped
        self._headroom = Headroom(self.figures) if config.batch != "Keep" else None
        # A raised batch does not fit without compression.
        self._overhead = Overhead(self.figures, plain=config.overhead and config.batch not in RAISING, timed=config.overhead)
        self.figures.overhead = self._overhead.said
        self._raising = Raising(config, self.figures) if config.batch in RAISING else None
        self._target = config.layer_target
        self._lossy = "ErrorBounded" in (config.mode, *(override.mode for override in config.overrides))
        self._modes: dict[tuple[str, str], Mode] = {}
        self._threads = _Thread()
        # The same objects always: they are known again on autograd's stack.
        self._pair = (untraced(self._pack), untraced(noting(self._unpack)))
        self._handles: list[Any] = []
        self._step_handles: list[Any] = []

    def _mode_of(self, name: str, module: Any) -> Mode:
        key = (name, type(module).__name__)
        if key not in self._modes:
            self._modes[key] = self.config.mode_of(*key)
        return self._modes[key]

    def start(self) -> None:
        """Forward passes count from now on, and optimizer steps."""
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._before),
            module_hooks.register_module_forward_hook(self._after, always_call=True),
        ]
        if not self._step_handles:
            self._step_handles = [register_optimizer_step_post_hook(self._stepped)]
            if self._headroom is not None:
                self._step_handles.append(register_optimizer_step_pre_hook(self._stepping))
        # Ours fire once more for a compiled module and do nothing there; nobody should be warned (or stopped) for it.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self._disable = torch.autograd.graph.disable_saved_tensors_hooks
        # torch.func refuses to run while saved-tensor hooks are active, and asks through this function.
        torch.autograd.graph.disable_saved_tensors_hooks = self._without_ours

    def pause(self) -> None:
        """Forward passes do not count any more; optimizer steps still do."""
        for handle in self._handles:
            handle.remove()
        if self._handles:
            torch.autograd.graph.disable_saved_tensors_hooks = self._disable
        self._handles = []
        self._abandon()

    def stop(self) -> None:
        self.pause()
        for handle in self._step_handles:
            handle.remove()
        self._step_handles = []

    def _before(self, module: Any, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return
        try:
            self._enter_call(module, args)
        except Exception as error:
            self.figures.count_raw(f"HookFailed{type(error).__name__}")

    def _enter_call(self, module: Any, args: tuple[Any, ...]) -> None:
        here = self._threads
        if here.calls and here.calls[0].module is module and _calls_on_the_stack(module) == 1:
            self._abandon()
        call = Call(module, "None", since=torch.autograd._get_sequence_nr())
        here.calls.append(call)
        refused = any(outer.refuses for outer in here.calls)
        if not here.entered and not refused and not self._overhead.off and module.training and torch.is_grad_enabled():
            self._enter(call, args)
        if not here.entered:
            return
        self._watch(Headroom.inside, args)
        if _compiled(module):
            self.figures.count_raw(COMPILED)
            call.suspended = self._suspend()
        call.site = self.sites.of(module)
        call.name = self.sites.name(module)
        call.mode = call.site.mode if call.site else self._mode_of(call.name, module)
        if (call.site is not None or self.sites.frozen(module)) and args and isinstance(args[0], torch.Tensor):
            call.input = args[0]
        if self.config.replay and call.mode != "None":
            # The last before the module's own function: nothing of ours may come between this and the draw.
            call.state = state_before(module, args)

    def _enter(self, call: Call, args: tuple[Any, ...]) -> None:
        self._suspend()  # hooks of the user's, entered inside the last forward pass and left after it, lay on ours
        obstacle = _obstacle(call.module)
        if obstacle:
            call.refuses = True
            return self.figures.count_raw(obstacle)
        here = self._threads
        self.sites.name_all(call.module)
        self._watch(Headroom.entered, call.module, args)
        here.own, here.gathers = _own_storages(call.module)
        self._overhead.entered(call.module)
        if self.offloading is not None:
            self.offloading.entered(call.module)
        self.hooks.ledger.forget_recent()
        self._push()
        here.entered = call.enters = True
        self.figures.forwards += 1
        return None

    def _abandon(self) -> None:
        """Forgets forward passes of this thread that ended without our hooks: an Exception calls them, KeyboardInterrupt not."""
        self._threads.calls.clear()
        self._threads.entered = False
        self._suspend()

    def _after(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return
        try:
            self._leave_call(module, output)
        except Exception as error:
            self.figures.count_raw(f"HookFailed{type(error).__name__}")

    def _leave_call(self, module: Any, output: Any) -> None:
        here = self._threads
        while here.calls:
            call = here.calls.pop()
            if call.suspended:
                self._push()
            if here.entered:
                self._settle(call, output if call.module is module else None)
            if call.enters:
                self._suspend()
                here.entered = False
            # Calls above this one were cut off before their hooks ran; their places go with them.
            if call.module is module:
                if call.site is not None and call.site.observing:
                    call.site.see_output(output)
                return

    def _settle(self, call: Call, output: Any) -> None:
        """Decides what was left open while a module ran; what cannot be decided yet is handed to the call around it.

        Never raises: our hooks must be left in order.
        """
        try:
            with torch.no_grad(), self._overhead.codec():
                left = self.hooks.settle_pools(call, output) if call.pools else []
                self.hooks.settle_operations(call, output, self.sites.observing)
                self.hooks.ledger.settle_waiting(everything=call.enters)
                self._offload(call)
            if left and not call.enters:
                self._threads.calls[-1].pools += left
        except Exception as error:
            self.figures.count_raw(f"SettleFailed{type(error).__name__}")

    def _offload(self, call: Call) -> None:
        if self.offloading is None or not call.leaving:
            return
        left = self.offloading.settled(call.leaving, everything=call.enters)
        if not call.enters:
            self._threads.calls[-1].leaving += left

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.figures.steps += 1
        if not self.figures.forwards and not self.figures.raw and _compiled_something():
            # model.compile() leaves our hooks out of the calls it makes.
            self.figures.count_raw(COMPILED)
        self.hooks.ledger.forget_recent()
        if self._lossy:
            self._renew(optimizer)
        self._watch(Headroom.stepped, optimizer)
        self._overhead.stepped(optimizer, self.sites.observing())
        if self.offloading is not None:
            self.offloading.stepped(optimizer, self.sites.observing())
        if self._raising is not None:
            self._raising.stepped(optimizer)
        self.stepped()
        if self.config.dry_run:
            self._dry_step()

    def _stepping(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._watch(Headroom.stepping)

    def _watch(self, moment: Callable[..., None], *what: Any) -> None:
        """Tells the watcher of memory, if there is one; steps that run plainly are none to learn from."""
        if self._headroom is None or self._overhead.disturbed:
            return
        try:
            moment(self._headroom, *what)
        except Exception as error:
            self.figures.count_raw(f"SuggestFailed{type(error).__name__}")

    def _dry_step(self) -> None:
        if self.figures.steps == 1:
            self.figures.forget()
        elif self.figures.compressed or self.figures.steps >= DRY_RUN_STEPS:
            raise SystemExit(0)

    def _renew(self, optimizer: Any) -> None:
        try:
            with torch.no_grad():
                renewed = after_step(self.sites, optimizer, self._target)
                if self.hooks.operations is not None:
                    self._judge(self.hooks.operations, optimizer, renewed)
        except Exception as error:
            self.figures.count_raw(f"ObserveFailed{type(error).__name__}")
            return
        for site in renewed or ():
            if site.sigma is not None:
                self.figures.layer(site.name).sigma = site.sigma
            if site.aimed_at is not None:
                self.figures.layer(site.name).first = site.aimed_at

    def _judge(self, operations: Operations, optimizer: Any, renewed: list[Site] | None) -> None:
        for operation, share in renew_operations(operations, self.sites, optimizer, self._target, renewed):
            row = self.figures.layer(operation.name)
            row.sigma = share
            row.first = share if row.first is None else row.first

    def _pack(self, t: Tensor) -> Any:
        here, ours = self._threads, sys._getframe().f_back
        if not here.calls:
            # A thread of autograd's own: hooks are handed on to it, module calls are not.
            return Plain(t)
        if saved_by_compiled_code(ours and ours.f_back):
            # All of a compiled region is unpacked before its first gradient: packing would raise the peak.
            self.figures.count_raw(COMPILED)
            return Plain(t)
        with self._overhead.codec():
            if here.gathers and t.grad_fn is None and not t.requires_grad and t.is_floating_point():
                self._gathered(t)
            return self.hooks.pack(t, here.calls[-1], here.own)

    def _gathered(self, t: Tensor) -> None:
        """FSDP2 may have put whole parameters in place since the forward pass began; a detached one has no other mark."""
        here = self._threads
        if _plain(t) and self.hooks.ledger.known(t) is None:
            here.own |= _own_storages(next(call.module for call in here.calls if call.enters))[0]

    def _unpack(self, handle: Any) -> Tensor:
        self._watch(Headroom.unpacking)
        with self._overhead.codec():
            t = self.hooks.unpack(handle)
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


class _Thread(threading.local):
    """Per thread: hooks act only where they were entered, and replicas of a model run on threads of their own."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.entered = False
        self.own: frozenset[int] = frozenset()
        self.gathers = False


def _calls_on_the_stack(module: Any) -> int:
    """How many calls of this module are in progress on this thread."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code is CALL and frame.f_locals.get("self") is module
    return found


def _compiled(module: Any) -> bool:
    return type(module).__name__ == "OptimizedModule"


def _compiled_something() -> bool:
    """Has torch.compile made code in this process? Looks only where it is loaded already."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["ok"])


def _own_tensors(root: Any) -> Iterator[Tensor]:
    """All parameters and buffers, some twice; `parameters()` takes several times longer, and this is done in every step."""
    for module in root.modules():
        yield from module._parameters.values()
        yield from module._buffers.values()


def _own_storages(root: Any) -> tuple[frozenset[int], bool]:
    """Of the plain parameters and buffers, and whether there are others, as shards."""
    mine = [t for t in _own_tensors(root) if t is not None]
    plain = [t.untyped_storage()._cdata for t in mine if _plain(t)]
    return frozenset(plain), len(plain) < len(mine)


def _plain(t: Tensor) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided


def _obstacle(module: Any) -> str | None:
    """Why our hooks must not be entered here; the region then runs as without us."""
    if _compiled(module):
        return COMPILED
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "FuncTransform"
    if not torch._C._autograd._saved_tensors_hooks_is_enabled():
        return "HooksDisabled"
    if innermost() is not None:
        return "UserHooks"
    # Asking whether CUDA is there would start it, and then no forked child could use it.
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "GraphCapture"
    return None
