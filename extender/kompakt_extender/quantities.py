"""Kubernetes quantities as integers."""

from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from kubernetes.utils.quantity import parse_quantity

from kompakt_core.errors import InvalidInput

_DIGITS = 30  # exabytes have 19; an integer of a billion digits would stop the process


@lru_cache(maxsize=4096)
def _decimal(text: str) -> Decimal:
    try:
        value: Decimal = parse_quantity(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a quantity; right would be e.g. 2, 500m or 4Gi") from error
    if not value.is_finite() or value.adjusted() > _DIGITS:
        raise InvalidInput(f"{text!r} is too large for a quantity")
    return value


def millis(quantity: str | float) -> int:
    """Thousandths, rounded up as the scheduler does: "500m" -> 500, "2" -> 2000."""
    return int((_decimal(str(quantity)) * 1000).to_integral_value(ROUND_CEILING))


def whole(quantity: str | float) -> int:
    """Whole units (bytes, pods), rounded up: "2Gi" -> 2147483648."""
    return int(_decimal(str(quantity)).to_integral_value(ROUND_CEILING))


def count(quantity: str | float) -> int:
    """A device count, which must be a whole number: "4" -> 4.

    Raises:
        InvalidInput: "0.5", "x".
    """
    value = _decimal(str(quantity))
    if value != value.to_integral_value() or value < 0:
        raise InvalidInput(f"{quantity!r} GPUs: devices are given out whole; right would be e.g. 1 or 4")
    return int(value)
