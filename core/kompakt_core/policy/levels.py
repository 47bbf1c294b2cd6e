"""The levels of one cluster: how many GPUs each holds, and what communication over it is taken to cost.

Where nobody has measured it, slowdown at a level = seconds of communication per second of computing at level factor 1, times the
factor of the level, as in the simulator. Both are assumptions that a cluster's owner can replace; docs/consolidation.md says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kompakt_core.contract.words import Sensitivity
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_core.profile.sensitivity import LEVEL_FACTORS as BY_NAME

_ORDER = tuple(Level)  # Machine < Rack < Block < Cluster, as the enumeration lists them


@dataclass(frozen=True, slots=True)
class Levels:
    """(level, GPUs of the largest healthy member), from the machine outwards; the last one is the whole cluster.

    A cluster without racks or blocks leaves them out. Raises InvalidInput when an outer level holds less than an inner one.
    """

    sizes: tuple[tuple[Level, int], ...]

    def __post_init__(self) -> None:
        names = [level for level, _ in self.sizes]
        if names[:1] != [Level.MACHINE] or names != sorted(set(names), key=_ORDER.index) or len(names) < 2:
            raise InvalidInput(f"levels {', '.join(names)}; expected Machine first, each at most once, outwards, Cluster last")
        gpus = [size for _, size in self.sizes]
        if names[-1] is not Level.CLUSTER or gpus != sorted(gpus) or gpus[0] < 1:
            raise InvalidInput(f"GPUs per level {gpus}; expected numbers from 1 up that never fall, of the whole cluster last")

    def ideal(self, gpus: int) -> Level:
        """The innermost level that can hold so many GPUs. Raises InvalidInput when the whole cluster cannot."""
        for level, size in self.sizes:
            if gpus <= size:
                return level
        raise InvalidInput(f"a gang of {gpus} GPUs; the largest possible is {self.sizes[-1][1]}")

    def worse_than(self, level: Level, other: Level) -> bool:
        """Whether `level` is spread further than `other`."""
        if level is Level.MACHINE or level is other:  # the common case, asked at every lease's end
            return False
        return _ORDER.index(level) > _ORDER.index(other)

    def within(self, level: Level) -> Level:
        """The next level inwards: what is given up by accepting `level`. Machine for Machine."""
        names = [name for name, _ in self.sizes]
        return names[max(0, names.index(level) - 1)]


# By bandwidthSensitivity. The models of benchmarks.policies have .06 (ResNet-18) to .60 (VGG): High stands for those with large
# gradients for little computing (AlexNet .50), Medium and Auto for MobileNet (.15); who is insensitive waits for nothing.
COMMUNICATION: Final[Mapping[str, float]] = MappingProxyType(
    {Sensitivity.HIGH: 0.5, Sensitivity.MEDIUM: 0.15, Sensitivity.AUTO: 0.15, Sensitivity.LOW: 0.0, Sensitivity.NONE: 0.0}
)
LEVEL_FACTORS: Final[Mapping[Level, float]] = MappingProxyType({Level(name): m for name, m in BY_NAME.items()})


def slowdowns(
    sensitivity: str, factors: Mapping[Level, float] = LEVEL_FACTORS, measured: float | None = None
) -> dict[Level, float]:
    """Extra seconds per second of computing, by level; empty where communication is free. Unknown words count as Auto.

    `measured`: seconds of communication per second of computing inside a rack, in place of what the word is taken to mean.
    """
    share = COMMUNICATION.get(sensitivity, COMMUNICATION[Sensitivity.AUTO]) if measured is None else measured
    return {level: share * factor for level, factor in factors.items()} if share else {}


def parse_factors(text: str) -> dict[Level, float]:
    """Factors of all four levels from `machine=0.05,rack=1,block=2,cluster=4`; each at least the one before.

    Raises InvalidInput for anything else.
    """
    right = "right would be e.g. machine=0.05,rack=1,block=2,cluster=4, none below the one before"
    pairs = [part.partition("=") for part in text.split(",")]
    if [name.strip() for name, _, _ in pairs] != [level.lower() for level in Level]:
        raise InvalidInput(f"level factors {text[:80]!r}: {right}")
    try:
        numbers = [float(number) for _, _, number in pairs]
    except ValueError as error:
        raise InvalidInput(f"level factors {text[:80]!r}: {right}") from error
    if not all(0 <= number <= 1_000_000 for number in numbers) or numbers != sorted(numbers):
        raise InvalidInput(f"level factors {text[:80]!r}: {right}")
    return dict(zip(Level, numbers, strict=True))
