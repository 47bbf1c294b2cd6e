"""Whole numbers as they stand in labels and annotations: decimal digits, nothing before or after them."""

import re
from typing import Final

from kompakt_core.errors import InvalidInput

MAX: Final = (1 << 63) - 1  # what an object's integer holds
_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def encode(number: int) -> str:
    """A number from 0 on."""
    return str(int(number))


def decode(text: object, where: str, unit: str = "") -> int:
    """The number. `where` names the label or annotation, `unit` what is counted, in the error.

    Raises:
        InvalidInput: it is none, is below 0 or above MAX.
    """
    if isinstance(text, str) and _DIGITS.fullmatch(text) and int(text) <= MAX:
        return int(text)
    of = f" of {unit}" if unit else ""
    raise InvalidInput(f"{where}: {repr(text)[:80]} is not a whole number{of}; right would be digits alone, such as 0 or 12")


def readable(text: object) -> int | None:
    """The number; None for what is none: where its writer is not the one to be told."""
    try:
        return decode(text, "")
    except InvalidInput:
        return None
