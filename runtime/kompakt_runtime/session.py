"""Switches compression on in this process: puts its parts together, starts and stops them, and tells them of optimizer steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.bounds.nonlinear import Operations, layer_target
from kompakt_runtime.bounds.observe import after_step, renew_operations, settle_alone
from kompakt_runtime.bounds.remembered import Remembered
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.budget.control import BudgetControl
from kompakt_runtime.budget.memory import Memory
from kompakt_runtime.budget.passes import digest
from kompakt_runtime.budget.plan import RecordedStep
from kompakt_runtime.config import MEASURING, RAISING, Mode, RuntimeConfig
from kompakt_runtime.cost.headroom import Headroom
from kompakt_runtime.cost.overhead import Overhead
from kompakt_runtime.cost.raising import Raising
from kompakt_runtime.figures.counted import COMPILED, Figures
from kompakt_runtime.hooks.forwards import Forwards
from kompakt_runtime.hooks.pair import Hooks
from kompakt_runtime.offload.schedule import Offloading
from kompakt_runtime.scope.obstacles import compiled_something
from kompakt_runtime.scope.switch import Switch

# Settings that change what is packed, or how tightly.
PLANNED_FOR = ("mode", "target", "overrides", "min_tensor_bytes", "replay", "activation_gradients", "offload", "verify", "batch")
# A dry run ends after the second step, the first whose bounds were measured, or after so many if none is compressed.
DRY_RUN_STEPS = 8


class Session:
    """One process's compression. `start` puts the global hooks in place, `stop` removes them."""

    def __init__(
        self,
        config: RuntimeConfig,
        offloading: Callable[[Figures], Offloading] | None = None,
        memory: Callable[[Figures, Any], Any] | None = None,
    ) -> None:
        """offloading: another link than a GPU's; memory: another reader of a device's memory."""
        self.config = config
        self.figures = Figures()
        self._switch = Switch(config.switch_file, self.figures)
        self.sites = Sites(self._mode_of, self.figures.count_raw)
        self.sites.settle = self._settle_alone
        operations = Operations(self.sites, self.figures.count_raw) if config.bounds_activations else None
        elsewhere = (offloading or Offloading)(self.figures) if config.offload == "Auto" else None
        reader = partial(memory, self.figures) if memory is not None else Memory
        settings = digest([getattr(config, name) for name in PLANNED_FOR])
        measures = config.batch in MEASURING
        self._budget = BudgetControl(
            config.memory_budget, reader, lambda: self.figures.holding.now.plain, settings, earlier=not measures
        )
        self.planned = self._budget.earlier
        self.figures.budget = self._budget.said
        self.hooks = Hooks(config, self.figures, self.sites, operations, elsewhere, self._budget)
        # Called after each optimizer step, when all of it is counted.
        self.stepped: Callable[[], None] = lambda: None
        self._headroom = Headroom(self.figures, self._budget.room) if config.batch != "Keep" else None
        # A raised batch does not fit without compression, nor may a step that is to stay within a budget.
        plain = config.overhead and config.batch not in RAISING and config.memory_budget is None
        self._overhead = Overhead(self.figures, plain=plain, timed=config.overhead, measured=observed)
        self.figures.overhead, self.figures.overhead_steps = self._overhead.said, self._overhead.steps
        self._raising = Raising(config, self.figures) if config.batch in RAISING else None
        self.remembered = Remembered(self.sites, operations, self.hooks.seeds, float(config.target))
        self._modes: dict[tuple[str, str], Mode] = {}
        self._forwards = Forwards(config, self.figures, self.sites, self.hooks, self._overhead, self._watch, lambda: self._target)
        self._step_handles: list[Any] = []

    @property
    def recorded_step(self) -> RecordedStep | None:
        """The step from which the plan of a budget was made last."""
        return self._budget.step

    @property
    def _target(self) -> float:
        return layer_target(float(self.config.target), self.hooks.operations, self.figures.steps)

    def _mode_of(self, name: str, module: Any) -> Mode:
        key = (name, type(module).__name__)
        if key not in self._modes:
            self._modes[key] = self.config.mode_of(*key)
            self.figures.overrides_matched |= {one.modules for one in self.config.overrides if one.matches(*key)}
        return self._modes[key]

    def start(self) -> None:
        """Forward passes count from now on, and optimizer steps."""
        self._forwards.start()
        if not self._step_handles:
            after, before = register_optimizer_step_post_hook, register_optimizer_step_pre_hook
            self._step_handles = [after(self._stepped), before(self._stepping)]

    def pause(self) -> None:
        """Forward passes do not count until the next start; optimizer steps still do."""
        self._forwards.pause()

    def stop(self) -> None:
        self._forwards.stop()
        for handle in self._step_handles:
            handle.remove()
        self._step_handles = []

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.figures.steps += 1
        try:
            self._learn(optimizer)
        except Exception as error:
            self.figures.count_raw(f"HookFailed{type(error).__name__}")
        self._look()
        if self._raising is not None:
            self._raising.stepped(optimizer)
        self.stepped()
        if self.config.dry_run:
            self._dry_step()

    def _look(self) -> None:
        """Switched off and on again between two steps only: one step's forward passes are all of a kind."""
        self._switch.look()
        if self.figures.switched_off:
            self._overhead.rest()

    def _learn(self, optimizer: Any) -> None:
        """What the step that ended means for the next one."""
        if not self.figures.forwards and not self.figures.raw and compiled_something():
            # model.compile() leaves our hooks out of the calls it makes.
            self.figures.count_raw(COMPILED)
        self._forwards.stepped(optimizer)
        self.hooks.ledger.forget_recent()
        if self.config.lossy:
            self._renew(optimizer)
        self._watch(Headroom.stepped, optimizer)
        self._overhead.stepped(optimizer, self.sites.observing())
        if self.hooks.offloading is not None:
            self.hooks.offloading.stepped(optimizer, self.sites.observing())
        self._budget.stepped(optimizer, self.sites.observing())
        self._see_peak()

    def _see_peak(self) -> None:
        if torch.cuda.is_initialized():
            self.figures.holding.reserved = int(torch.cuda.max_memory_reserved())
            self.figures.holding.allocated = int(torch.cuda.max_memory_allocated())
        self.figures.holding.stepped()

    def _stepping(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self.hooks.weights.before_step()
        except Exception as error:
            self.figures.count_raw(f"HookFailed{type(error).__name__}")
        self._budget.stepping()
        self._watch(Headroom.stepping, optimizer)

    def _watch(self, moment: Callable[..., None], *what: Any) -> None:
        """Tells the watcher of memory, if there is one; steps that run plainly are none to learn from, nor are those in which a
        plan leaves as it is what of a larger batch would be packed.
        """
        if self._headroom is None or self._overhead.disturbed or self._budget.ever_left:
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
            self._tell(renewed or [])
        except Exception as error:
            self._give_up(error)

    def _settle_alone(self) -> None:
        try:
            with torch.no_grad():
                self._tell(settle_alone(self.sites, self._target))
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Nothing was learnt from this step; it is measured again, but not for ever."""
        self.figures.count_raw(f"ObserveFailed{type(error).__name__}")
        for site in self.sites:
            if site.observing:
                site.finish(again=True)

    def _tell(self, renewed: list[Site]) -> None:
        self.remembered.changed |= bool(renewed)
        for site in renewed:
            if site.sigma is not None:
                self.figures.layer(site.name).sigma = site.sigma
            if site.aimed_at is not None:
                self.figures.layer(site.name).first = site.aimed_at

    def _judge(self, operations: Operations, optimizer: Any, renewed: list[Site] | None) -> None:
        for operation, share in renew_operations(operations, self.sites, optimizer, self._target, renewed):
            row = self.figures.layer(operation.name)
            row.sigma = share
            row.first = share if row.first is None else row.first
