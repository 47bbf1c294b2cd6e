"""Where compiled code runs."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Running:
    """The innermost module that is known to run, and the outermost; None where none is. reason: why nothing is compressed now, ""
    where it is; exact: may a gradient that leaves the model be one that must not be off, as far as is known? hooked: what the
    code keeps otherwise is seen, and counted, by saved-tensor hooks.
    """

    module: Any
    outermost: Any
    reason: str = ""
    hooked: bool = False
    exact: bool = True
