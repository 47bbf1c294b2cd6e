"""What the forward passes of a step were given, and whether a plan of an earlier attempt was made for as much."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from kompakt_runtime.budget.kept import MOST_PASSES, ForwardPass

DEEPEST: Final = 4  # lists in lists
PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
UNREADABLE: Final = ForwardPass("", ())  # what no plan was made for


def digest(words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


class SeenPasses:
    """Of the step that runs. Never raises."""

    def __init__(self) -> None:
        self._models: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.seen: set[ForwardPass] = set()
        self.count = 0
        self.last = UNREADABLE

    def begins(self, model: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """An outermost forward pass."""
        try:
            given = tuple((str(t.dtype), tuple(map(int, t.shape))) for t in _tensors((args, dict(named)), DEEPEST))
            one = ForwardPass(self._model(model), given) if len(given) <= MOST_PASSES else UNREADABLE
        except Exception:
            one = UNREADABLE
        self.count, self.last = self.count + 1, one
        self.seen.add(one if len(self.seen) < MOST_PASSES - 1 else UNREADABLE)

    def _model(self, model: Any) -> str:
        if model not in self._models:
            rows = [(name, tuple(w.shape), str(w.dtype), w.requires_grad) for name, w in model.named_parameters()]
            self._models[model] = digest(rows)
        return digest((self._models[model], _autocast()))

    def stepped(self) -> None:
        """An optimizer step is over. Which weights are trained may change between two."""
        self.seen, self.count, self.last = set(), 0, UNREADABLE
        self._models.clear()


def _autocast() -> tuple[str, ...]:
    """Types that it computes in, on each kind of device where it is on."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return tuple(f"{kind} {torch.get_autocast_dtype(kind)}" for kind in kinds)


def _tensors(value: Any, deep: int) -> Iterator[torch.Tensor]:
    """Raises TypeError where anything else may hold tensors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict) and deep:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, deep - 1)
    elif not isinstance(value, PLAIN):
        raise TypeError(f"{type(value).__name__} may hold tensors")
