"""Moments at which an optimizer has its gradients whole and has not used them yet, and whose gradients these are."""

import contextlib
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any
from weakref import ref

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

Tensor = Any


class Steps:
    """Calls `at` with each optimizer whose gradients are whole, before it uses them, and the losses that led there."""

    def __init__(self, at: Callable[[Any, list[float]], None]) -> None:
        self._at = at
        self._losses: list[float] = []
        self._handle = register_optimizer_step_pre_hook(self._stepping)
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._noting(self._backward)

    def end(self) -> None:
        self._handle.remove()
        torch.autograd.backward = self._backward

    def _noting(self, backward: Callable[..., None]) -> Callable[..., None]:
        @wraps(backward)
        def noting(tensors: Any, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(Exception):  # what is no number is no loss
                for t in (tensors,) if isinstance(tensors, torch.Tensor) else tensors:
                    if t.numel() == 1:
                        self._losses.append(float(t.detach()))
            return backward(tensors, *args, **kwargs)

        return noting

    def _stepping(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A closure makes the gradients inside of the step: there they are whole when it returns."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            return self._tell(optimizer)

        def told() -> Any:
            result = closure()
            self._tell(optimizer)
            return result

        return ((args[0], told, *args[2:]), {name: value for name, value in kwargs.items() if name != "closure"})

    def _tell(self, optimizer: Any) -> None:
        losses, self._losses = self._losses, []
        self._at(optimizer, losses)


class Names:
    """Layers by their weights, from the modules that are called; the outermost is called first."""

    def __init__(self) -> None:
        self._by_id: dict[int, ref[Any]] = {}
        self._handle = register_module_forward_pre_hook(self._called)

    def _called(self, module: Any, args: tuple[Any, ...]) -> None:
        self._by_id.setdefault(id(module), ref(module))

    def end(self) -> None:
        self._handle.remove()

    def layers(self, weights: Iterable[Tensor]) -> list[str]:
        names: dict[int, str] = {}
        for module in filter(None, (one() for one in self._by_id.values())):
            for name, weight in module.named_parameters():
                names.setdefault(id(weight), name.replace("_orig_mod.", ""))
        return [_layer(names.get(id(weight), ""), place) for place, weight in enumerate(weights)]


def _layer(name: str, place: int) -> str:
    return name.rpartition(".")[0] or name or f"weight {place}"


def weights_of(optimizer: Any) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]
