"""Where compiled code runs."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Running:
    """The innermost module whose call is seen, and the outermost; None where none is. plain: nothing is compressed now."""

    module: Any
    outermost: Any
    plain: bool = False
