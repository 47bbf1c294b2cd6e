"""Kubernetes quantities ("512Mi", "2G", 1024) as whole bytes."""

import re
from fractions import Fraction
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.schema.words import shown

# What an API server is told: as apimachinery's Quantity accepts it, without sign, since none of our quantities can be negative.
QUANTITY_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(([KMGTPE]i|[numkMGTPE])|[eE][+-]?[0-9]{1,2})?$",
    "x-kubernetes-int-or-string": True,
}
# Suffixes as apimachinery's resource.Quantity defines them: powers of 1024, powers of 1000, decimal exponents.
FACTORS: Final = {
    **{suffix: Fraction(10) ** power for suffix, power in zip(("n", "u", "m", "", *"kMGTPE"), range(-9, 19, 3), strict=True)},
    **{f"{letter}i": Fraction(1 << 10 * power) for power, letter in enumerate("KMGTPE", start=1)},
}
QUANTITY: Final = re.compile(
    r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?", re.ASCII
)
LARGEST: Final = (1 << 63) - 1  # what the API server stores at most


def parse_bytes(value: object, path: str) -> int:
    """A non-negative quantity in bytes, rounded up.

    Raises InvalidInput naming `path` for anything that is not a quantity or is negative.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidInput(f"{path}: expected a quantity such as 512Mi or 2G, got {shown(value)}")
    amount = parse_amount(str(value)) if not isinstance(value, int) or value <= LARGEST else None
    if amount is None:
        raise InvalidInput(f"{path}: expected a quantity such as 512Mi or 2G, got {shown(value)}")
    whole = rounded_up(amount)
    if whole > LARGEST:
        raise InvalidInput(f"{path}: larger than 2^63-1 bytes: {shown(value)}")
    return whole


def parse_amount(text: str) -> Fraction | None:
    """A non-negative quantity in its unit, exactly ("500m" -> 1/2); None for what is no quantity."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    digits = number + "0" if number.endswith(".") else number
    return Fraction(digits) * FACTORS[suffix or ""] * Fraction(10) ** int(exponent or 0)


def rounded_up(amount: Fraction) -> int:
    """The next whole number, as the API server rounds."""
    return -(-amount.numerator // amount.denominator)
