"""What became of trials of rows, as it is counted. No torch here."""

from dataclasses import dataclass
from typing import Final

DISAGREES: Final = "RowDisagrees"  # more is read than the row says
UNTRIED: Final = "RowUntried"  # the node could not run again, or nothing that was put there had an effect


@dataclass(frozen=True)
class Tried:
    """place: node and slot; doubt: why nothing relies on the row, "" where it holds; seconds: that it took."""

    place: str
    doubt: str
    seconds: float
