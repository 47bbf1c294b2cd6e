"""Kubernetes quantities as integers."""

from fractions import Fraction
from functools import lru_cache

from kompakt_core.errors import InvalidInput
from kompakt_core.job.quantity import parse_amount, rounded_up

_LARGEST = 10**30  # exabytes have 19 digits; larger is a mistake


@lru_cache(maxsize=4096)
def _amount(text: str) -> Fraction:
    value = parse_amount(text)
    if value is None:
        raise InvalidInput(f"{text!r} is not a quantity; right would be e.g. 2, 500m or 4Gi")
    if value > _LARGEST:
        raise InvalidInput(f"{text!r} is too large for a quantity")
    return value


def millis(quantity: str | float) -> int:
    """Thousandths, rounded up as the scheduler does: "500m" -> 500, "2" -> 2000."""
    return rounded_up(_amount(str(quantity)) * 1000)


def whole(quantity: str | float) -> int:
    """Whole units (bytes, pods), rounded up: "2Gi" -> 2147483648."""
    return rounded_up(_amount(str(quantity)))


def count(quantity: str | float) -> int:
    """A device count, which must be a whole number: "4" -> 4.

    Raises:
        InvalidInput: "0.5", "x".
    """
    value = _amount(str(quantity))
    if value.denominator != 1:
        raise InvalidInput(f"{quantity!r} GPUs: devices are given out whole; right would be e.g. 1 or 4")
    return int(value)
