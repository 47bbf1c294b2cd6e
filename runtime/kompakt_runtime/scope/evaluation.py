"""Models that are trained in evaluation mode, as fine-tuning with frozen statistics does it; torch's flag does not tell them."""

from typing import Any
from weakref import WeakSet


class InEvaluation:
    """A model is one of them once an optimizer has stepped weights of it that was called only in evaluation mode since the last.

    So a look at validation data with gradients on, between two steps of training, is none.
    """

    def __init__(self) -> None:
        self._trained: WeakSet[Any] = WeakSet()
        self._training: WeakSet[Any] = WeakSet()
        self._evaluating: WeakSet[Any] = WeakSet()

    def trains(self, module: Any) -> bool:
        """An outermost call with gradients on begins: does it train?"""
        (self._training if module.training else self._evaluating).add(module)
        return module.training or module in self._trained

    def stepped(self, optimizer: Any) -> bool:
        """An optimizer stepped; has a model been found that ran without compression so far?"""
        weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        own = {module for module in self._evaluating if any(id(weight) in weights for weight in module.parameters())}
        found = own - set(self._training) - set(self._trained)
        self._trained.update(found)
        for seen in (self._training, self._evaluating):
            seen.clear()
        return bool(found)
