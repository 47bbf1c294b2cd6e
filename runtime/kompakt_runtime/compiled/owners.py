"""Which model a parameter is of, where no module's call is seen: compiled functions and `model.compile()` call no hooks."""

import gc
from typing import Any
from weakref import ReferenceType, ref

import torch


class Owners:
    """Models that were found. Looking for one goes through all objects of the process: once for each model."""

    def __init__(self) -> None:
        self._found: list[ReferenceType[Any]] = []
        self._strange: set[int] = set()  # parameters of no module

    def of(self, parameter: Any) -> Any:
        """The outermost module that has it; None where none does."""
        if id(parameter) in self._strange:
            return None
        known = [root for one in self._found if (root := one()) is not None]
        root = next((root for root in known if _has(root, parameter)), None)
        if root is None:
            root = next((root for root in roots() if _has(root, parameter)), None)
            self._found = [ref(one) for one in (*known, root) if one is not None]
        if root is None:
            self._strange.add(id(parameter))
        return root


def roots() -> list[Any]:
    """Modules that are in no other one."""
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner and "_parameters" in module.__dict__]


def _has(root: Any, parameter: Any) -> bool:
    return any(own is parameter for own in root.parameters())
