"""Which modules' tensors stayed as they are, by reason: what a person looks for who wonders where the memory went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = tuple[str, int, int]  # a module's name, and how many tensors of it with how many bytes


@dataclass
class KeptModules:
    """Sums over steps, of what a backward pass asked for. Whoever adds holds the figures' lock."""

    _sums: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, reason: str, module: str, nbytes: int, tensors: int = 1) -> None:
        count, size = self._sums.get((reason, module), (0, 0))
        self._sums[reason, module] = count + tensors, size + nbytes

    def rows(self) -> dict[str, list[Row]]:
        """By reason; in each most bytes first."""
        found: dict[str, list[Row]] = {}
        for (reason, module), (tensors, nbytes) in self._sums.items():
            found.setdefault(reason, []).append((module, tensors, nbytes))
        return {reason: sorted(rows, key=lambda row: (-row[2], row[0])) for reason, rows in found.items()}

    @staticmethod
    def of(told: Iterable[Mapping[str, Iterable[Any]]]) -> "KeptModules":
        """The sum of what processes said of theirs, in the form of `rows`."""
        total = KeptModules()
        for reasons in told:
            for reason, rows in reasons.items():
                for module, tensors, nbytes in rows:
                    total.add(reason, module, nbytes, tensors)
        return total
