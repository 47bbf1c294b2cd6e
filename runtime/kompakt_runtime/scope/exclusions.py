"""Parts of a model that the user keeps out of compression."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any, Final

MARK: Final = "kept_out_by_kompakt"  # on the wrapped function


class _Depth(threading.local):
    def __init__(self) -> None:
        self.value = 0  # of each thread; a default of the class confuses torch.compile


_depth = _Depth()


def kept_out() -> bool:
    """Is this thread inside of `uncompressed`?"""
    return _depth.value > 0


def excluded(module: Any) -> bool:
    """Was this module, or its class, given to `exclude`?"""
    return hasattr(module.forward, MARK)


@contextlib.contextmanager
def uncompressed() -> Iterator[None]:
    """What operations save in here stays as it is. Of use inside a model's forward function; nests."""
    _depth.value += 1
    try:
        yield
    finally:
        _depth.value -= 1


def exclude(target: Any) -> Any:
    """Decorator: keeps a function, a module class or one module out of compression, with all that it calls.

    Returns its argument (a module, a class) or the wrapped function. Raises TypeError for anything else.
    """
    if isinstance(target, type) or (hasattr(target, "forward") and hasattr(target, "parameters")):
        if not callable(getattr(target, "forward", None)):
            raise TypeError(f"exclude takes a function, a module or a module class, not the class {target.__name__}")
        target.forward = _wrapped(target.forward)
        return target
    if not callable(target):
        raise TypeError(f"exclude takes a function, a module or a module class, not {target!r}")
    return _wrapped(target)


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        with uncompressed():
            return function(*args, **kwargs)

    setattr(outside, MARK, True)
    return outside
