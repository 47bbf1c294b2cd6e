"""What stays as it is because the table has no row for it: what a row would win."""

from collections import Counter
from typing import Final

HIDDEN: Final = "inside of an operation that does not show it"


class UnknownReaders:
    """Bytes of saved storages by the place that reads them, summed over forward passes; a storage is counted at the first place
    that has no row.
    """

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self._tensors: Counter[str] = Counter()

    def add(self, place: str, nbytes: int) -> None:
        """place: node and slot, the node alone if it has no slots, or HIDDEN."""
        self._bytes[place] += nbytes
        self._tensors[place] += 1

    def rows(self) -> list[tuple[str, int, int]]:
        """(place, tensors, bytes), most bytes first."""
        return [(place, self._tensors[place], nbytes) for place, nbytes in self._bytes.most_common()]
