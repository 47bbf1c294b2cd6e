"""The parameters whose linear operands may be compressed, by the module that has them."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

from kompakt_runtime.bounds.site import Site
from kompakt_runtime.config import Mode

Place = tuple[int, str]  # a module's id and its name for one of its parameters

# Names that wrappers put before the user's own.
ORIGINAL = "_orig_mod"  # also in the middle, where blocks of a model are compiled one by one
WRAPPERS = ("module.", f"{ORIGINAL}.")


class Sites:
    """Names all modules below each outermost one once, and finds a parameter's site."""

    def __init__(self, mode_of: Callable[[str, Any], Mode], failed: Callable[[str], None]) -> None:
        self.mode_of, self._failed = mode_of, failed
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._sites: dict[Place, Site] = {}
        # By a parameter's id: it, the module that has it, and by what name.
        self._owners: dict[int, tuple[ref[Any], ref[Any], str]] = {}
        # Modules whose parameters were shards before their forward pass: in it FSDP2 shows the whole ones.
        self._sharded: WeakSet[Any] = WeakSet()
        self.places = itertools.count()
        self._passes = 0
        # Called when layers were measured for so long that no step is waited for any more.
        self.settle: Callable[[], None] = lambda: None
        # Called with each new site.
        self.made: Callable[[Site], None] = lambda _: None

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._sites.values()))

    def name_all(self, root: Any) -> None:
        """As an outermost forward pass begins. Modules that have a name keep it: a part that runs alone is the same layer."""
        self._passes += 1
        if root not in self._names:
            for name, module in root.named_modules():
                self._names.setdefault(module, plain_name(name))
                self.mode_of(self.name(module), module)  # so that it is known which modules overrides mean
                if any(hasattr(parameter, "to_local") for parameter in module._parameters.values()):
                    self._sharded.add(module)

    @property
    def named(self) -> int:
        return len(self._names)

    def name(self, module: Any) -> str:
        """The module's name below the outermost module it was first seen in; its class for that one itself."""
        return self._names.get(module) or type(module).__name__

    def of(self, module: Any, slot: str = "weight") -> Site | None:
        """The site of a module's own parameter of that name; None where it is not trained."""
        weight = module._parameters.get(slot)
        if weight is None or not (weight.requires_grad and weight.is_leaf and weight.is_floating_point()):
            return None
        site = self._sites.get((id(module), slot))
        if site is None or site.weight() is not weight:
            site = self._make(module, slot, weight)
        site.passed(self._passes)
        if site.overdue:
            self.settle()
        return site

    def of_parameter(self, parameter: Any, running: Any, outermost: Any) -> Site | None:
        """The site of a parameter that an operation in `running` used; None where no module below `outermost` has it."""
        found = self.owner(parameter, running, outermost)
        return None if found is None else self.of(*found)

    def owner(self, parameter: Any, running: Any, outermost: Any) -> tuple[Any, str] | None:
        """The module that has it, and by what name. The one that runs comes first: a parameter may be tied to several."""
        if slot := _slot(running, parameter):
            return running, slot
        known, owner, slot = self._owners.get(id(parameter), (_gone, _gone, ""))
        module = owner()
        if known() is parameter and module is not None and module._parameters.get(slot) is parameter:
            return module, slot
        for module in itertools.chain(running.modules(), outermost.modules()):
            if slot := _slot(module, parameter):
                self._owners[id(parameter)] = ref(parameter), ref(module), slot
                return module, slot
        return None

    @property
    def known(self) -> bool:
        """Was any found so far?"""
        return bool(self._sites)

    def tolerances(self) -> list[tuple[int, float]]:
        """Places of the measured layers and what error of the gradients at their outputs they bear."""
        return [(site.place, site.tolerance) for site in list(self._sites.values()) if site.tolerance]

    def observing(self) -> bool:
        """Is the next step measured, at any layer?"""
        return any(site.observing and not site.idle for site in self)

    def _make(self, module: Any, slot: str, weight: Any) -> Site:
        name = self.name(module) if slot == "weight" else f"{self.name(module)}.{slot}"
        site = Site(name, self.mode_of(self.name(module), module), module, weight, self._failed)
        site.place = next(self.places)
        site.sharded = module in self._sharded
        place = (id(module), slot)
        if place not in self._sites:
            finalize(module, self._sites.pop, place, None).atexit = False
        self._sites[place] = site
        self.made(site)
        return site

    def of_weights(self, weights: Iterable[Any]) -> list[tuple[Any, Site]]:
        """The sites whose weight is among these, each with the optimizer's own tensor for it.

        FSDP2 gives a module its whole weight only while it runs; between, the module has the shard that the optimizer steps.
        """
        places = {id(weight): place for place, weight in enumerate(weights)}
        found = []
        for (_, slot), site in list(self._sites.items()):
            module = site.module()
            owner = module._parameters.get(slot) if module is not None else None
            site.sharded = owner is not site.weight()
            if id(owner) in places:
                found.append((owner, site))
        return sorted(found, key=lambda pair: places[id(pair[0])])


def _slot(module: Any, parameter: Any) -> str:
    """The module's name for this parameter; "" where it is not its own."""
    return next((slot for slot, own in module._parameters.items() if own is parameter), "")


def _gone() -> None:
    """A reference to nothing."""


def plain_name(name: str) -> str:
    """The name as the user's own model knows it, without what wrappers put before it."""
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name.replace(f".{ORIGINAL}.", ".").removesuffix(f".{ORIGINAL}")
