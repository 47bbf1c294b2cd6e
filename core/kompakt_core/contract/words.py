"""The words that stand in annotations and objects, each set of them once; patterns have their own module (patterns.names)."""

from enum import StrEnum
from typing import Final, TypeVar

from kompakt_core.errors import InvalidInput

Word = TypeVar("Word", bound=StrEnum)
NEVER_FITS: Final = "NeverFits"  # a reason of a gang that waits: no node of this cluster could hold it even when empty


class PlacementPolicy(StrEnum):
    """How a GPU set is chosen among those that fit; `placement.policies` has the rows."""

    BEST = "Best"
    PRESERVE = "Preserve"
    PACKED = "Packed"
    FIRST = "First"


class Level(StrEnum):
    """How far a gang is spread, from the narrowest outwards."""

    MACHINE = "Machine"
    RACK = "Rack"
    BLOCK = "Block"
    CLUSTER = "Cluster"


class Sensitivity(StrEnum):
    """How much a job suffers from slow links; `policy.levels` says what each word is taken to cost."""

    HIGH = "High"
    MEDIUM = "Medium"
    AUTO = "Auto"
    LOW = "Low"
    NONE = "None"

    @property
    def needs_bandwidth(self) -> bool:
        """Whether the value of its own set goes before what is left for others."""
        return self not in (Sensitivity.LOW, Sensitivity.NONE)


class RequiredLink(StrEnum):
    """Which links a pattern may use."""

    ANY = "Any"
    NVLINK = "NVLink"


def decode(text: object, kind: type[Word], where: str) -> Word:
    """The word.

    Raises:
        InvalidInput: it is none of that kind.
    """
    if isinstance(text, str) and text in kind.__members__.values():
        return kind(text)
    raise InvalidInput(f"{where}: {repr(text)[:80]} is not known; right would be {', '.join(sorted(kind))}")


def encode_flag(flag: bool) -> str:
    """true or false."""
    return "true" if flag else "false"


def decode_flag(text: object, where: str) -> bool:
    """Whether it is true.

    Raises:
        InvalidInput: it is neither true nor false.
    """
    if text not in ("true", "false"):
        raise InvalidInput(f"{where}: {repr(text)[:80]} is not known; right would be false, true")
    return text == "true"
