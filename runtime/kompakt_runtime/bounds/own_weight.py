"""A parameter whose gradient is made where an operation's input is read, as a norm's, and what noise there does to that."""

from typing import Any
from weakref import ref

from kompakt_runtime.saved.noise import wide

Tensor = Any


class OwnWeight:
    """One parameter of an operation. error: of its gradient over its mean |momentum|, since its optimizer's step."""

    def __init__(self) -> None:
        self.weight: Any = lambda: None
        self.optimizer: Any = lambda: None  # that steps it, once it is known
        self._module: Any = lambda: None
        self._slot = ""
        self.clear()

    def clear(self) -> None:
        """Drops the sums."""
        self.moved: Tensor = None  # sum of squares of what noise did to each number of its gradient
        self.gradient: Tensor = None
        self.error: Tensor = None

    @property
    def waits(self) -> bool:
        """Was its gradient made, and not stepped yet?"""
        return self.moved is not None and self.error is None

    def see(self, module: Any, weight: Any, gradient: Tensor, moved: Tensor) -> None:
        """module: that has it; moved: by noise."""
        if weight.grad is None or self.weight() is not weight:  # the first pass since gradients were dropped
            self.weight, self.moved, self.gradient = ref(weight), None, None
            self._slot = next((name for name, own in module._parameters.items() if own is weight), "") if module else ""
            self._module = ref(module) if module else self._module
        squares, gradient = moved.to(wide(moved)).square(), gradient.to(wide(gradient))
        self.moved = squares if self.moved is None else self.moved + squares
        self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def stepped_weight(self) -> Any:
        """The optimizer's own tensor for it: FSDP2 gives a module its whole weight only while it runs."""
        module = self._module()
        return module._parameters.get(self._slot) if module is not None and self._slot else self.weight()

    def stepped(self, optimizer: Any, ratio: Any) -> None:
        """ratio: its mean |momentum| over its mean |gradient|."""
        self.optimizer = ref(optimizer)
        self.judge(ratio)

    def judge(self, ratio: Any) -> None:
        """As `stepped`, by nobody who is known."""
        if self.moved is not None:
            self.error = self.moved.mean().sqrt().double() / (ratio * self.gradient.abs().mean().double())
