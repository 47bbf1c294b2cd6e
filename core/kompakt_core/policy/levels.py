"""The levels of one cluster: how many GPUs its largest machine, rack and block hold."""

from dataclasses import dataclass

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level

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
