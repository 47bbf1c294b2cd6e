"""What a decoder makes of any input: a value, or a refusal that helps whoever wrote it."""

from collections.abc import Callable
from typing import Any

from kompakt_core.errors import InvalidInput

LONGEST = 400  # a sentence; however long the input was


def outcome(decode: Callable[..., Any], *given: Any) -> Any:
    """The value, or the InvalidInput; any other exception rises."""
    try:
        return decode(*given)
    except InvalidInput as error:
        return error


def refusal(decode: Callable[..., Any], *given: Any) -> str:
    """What its InvalidInput says; an input that is taken fails the test."""
    found = outcome(decode, *given)
    assert isinstance(found, InvalidInput), found
    return str(found)


def helps(error: Any, where: str = "") -> bool:
    """Whether it says what was wrong, where, and what would be right, in one sentence."""
    text = str(error)
    return isinstance(error, InvalidInput) and where in text and "right would be" in text and len(text) <= LONGEST
