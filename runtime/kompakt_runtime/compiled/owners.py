"""Which parameter compiled code uses, and of which model: it hands over a view of the parameter's memory, and no call of a module
need be seen, since compiled functions and `model.compile()` call no hooks.
"""

import gc
from typing import Any, Final
from weakref import ReferenceType, ref

import torch

from kompakt_runtime.compat.tensors import storage_key

Tensor = Any
Place = tuple[int, int]
MANY: Final = 256


class Owners:
    """Models that were found, and their parameters, by place in memory. Looking for a model that is not known goes through all
    objects of the process.
    """

    def __init__(self) -> None:
        self._models: dict[Place, ReferenceType[Any]] = {}
        self._by_place: dict[Place, ReferenceType[Any]] = {}
        self._strange: set[Place] = set()  # where no module has a parameter

    def parameter(self, view: Tensor, model: Any) -> Any:
        """The model's parameter of which this is a view; None without one."""
        place = place_of(view)
        known = self._by_place.get(place, _gone)()
        if known is None or place_of(known) != place:  # its memory may be another's now
            known = next((one for one in model.parameters() if place_of(one) == place), None) if model is not None else None
            if known is not None:
                self._by_place[place] = ref(known)
        return known

    def model(self, view: Tensor) -> Any:
        """The outermost module that has the parameter; None where none does."""
        place = place_of(view)
        known = self._models.get(place, _gone)()
        if known is not None and self.parameter(view, known) is not None:
            return known
        if place in self._strange:
            return None
        found = next((model for model in (*self._living(), *outermost()) if _has(model, place)), None)
        if found is not None:
            self._models[place] = ref(found)
        elif len(self._strange) < MANY:  # addresses are given away again
            self._strange.add(place)
        else:
            self._strange = {place}
        return found

    def _living(self) -> list[Any]:
        return list({id(model): model for one in self._models.values() if (model := one()) is not None}.values())


def outermost() -> list[Any]:
    """Modules that are in no other one."""
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner and "_parameters" in module.__dict__]


def place_of(t: Tensor) -> Place:
    return storage_key(t), int(t.storage_offset())


def _has(model: Any, place: Place) -> bool:
    return any(place_of(one) == place for one in model.parameters())


def _gone() -> None:
    """A reference to nothing."""
