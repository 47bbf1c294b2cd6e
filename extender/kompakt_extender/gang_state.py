"""All that this process knows and has decided about one gang: one value, from when its job is first seen until it is gone.

What the cluster shows of a job and its pods stands in `Jobs`; what GPUs are claimed or reserved, in the ledger.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from kompakt_core.contract.scheduling_record import Record, State, Victim
from kompakt_core.ids import NodeName, PodUid
from kompakt_extender.cluster_view import ClusterView

Change = Callable[[Record], Record]
ClusterViews = tuple[ClusterView, ...]
NO_RECORD: Final = Record(attempt=0, state=State.WAITING, reason="", message="", waiting_since="")


class GangPhase(StrEnum):
    """What a gang holds, as far as this process knows; what the world is told of it is its record's state."""

    WAITING = "waiting"  # nothing
    RESERVING = "reserving"  # GPUs: so many of some nodes, exactly those that others are to free, or those of pods to come
    RELEASING = "releasing"  # its plan's GPUs; the plan is being written, or nobody knows whether it is
    RELEASED = "released"  # its plan's GPUs; the plan is written
    WITHDRAWN = "withdrawn"  # nothing; pods that were given nodes may still come to be bound


class SeenVersions(NamedTuple):
    """Equal where nothing has changed that a gang's result depends on."""

    ledger: int
    freed: int  # GpuLedger.freed_version
    machines: int  # GpuLedger.machines_version
    job: str  # its resourceVersion, and Jobs.asked
    excluded: int  # nodes left out
    preemption: int  # Jobs.preemption_version
    limits: int
    overtaken: bool  # so often that GPUs are reserved for it

    def after(self, other: "SeenVersions") -> "SeenVersions":
        """The mark of a gang that is given the answer of another one: of what goes for both, it has seen what that one saw."""
        return self._replace(ledger=other.ledger, freed=other.freed, machines=other.machines, preemption=other.preemption)

    @property
    def machines_and_gang(self) -> tuple[object, ...]:
        """What any result depends on."""
        return self.machines, self.job, self.excluded, self.limits

    def that_matter(self, depends: "Depends") -> tuple[object, ...]:
        """What such a result depends on."""
        match depends:
            case Depends.MACHINES:
                return self.machines_and_gang
            case Depends.ROOM:
                return *self.machines_and_gang, self.overtaken, self.freed
            case Depends.ALL:
                return self


class Depends(Enum):
    """What can make a result another one."""

    ALL = auto()
    ROOM = auto()  # more of it: what others take makes nothing fit, and nobody below runs who could end
    MACHINES = auto()  # whoever has their GPUs


class GangKind(NamedTuple):
    """Equal for gangs that get the same answer where there is no room for them.

    `sizes`: GPUs of each pod. `asks_with`, `priority`: as in PlanningRequest. `ends`: what else tells whom it may have ended.
    """

    wanted: Hashable
    sizes: tuple[int, ...]
    asks_with: int
    priority: int | None
    ends: Hashable


class CommonAnswer(NamedTuple):
    """Equal for gangs of one kind that were told the same: what one is told next goes for all. `ends`: as in AttemptResult."""

    kind: GangKind
    ends: float | None
    depends: Depends
    reason: str
    message: str


class AttemptResult(NamedTuple):
    """What the last attempt saw, and when (seconds since the epoch) its result ends by time alone; None = never.

    `answer`: None where what it was told goes for no other gang.
    """

    mark: SeenVersions
    ends: float | None = None
    depends: Depends = Depends.ALL
    answer: CommonAnswer | None = None

    def stands_but_for_room(self, mark: SeenVersions) -> bool:
        """Whether planning once more could bring another result only because more has become free."""
        if self.depends is not Depends.ROOM or self.ends is not None or self.mark.overtaken != mark.overtaken:
            return False
        return self.mark.machines_and_gang == mark.machines_and_gang

    def stands(self, mark: SeenVersions, now: float) -> bool:
        """Whether planning once more would bring the same."""
        same = self.mark.that_matter(self.depends) == mark.that_matter(self.depends)
        return same and (self.ends is None or self.ends > now)


@dataclass(frozen=True, slots=True)
class CountedReservation:
    """GPUs reserved by count; `fewest`: how few of them were taken at best; `until`: when they fall, seconds since the epoch."""

    counts: Mapping[NodeName, int]
    fewest: int
    until: float


class FailedWrite(NamedTuple):
    """The job's resourceVersion with which a write failed, and when, by a clock that nobody sets; `conflict`: the job is newer
    than we knew.
    """

    version: str
    when: float
    conflict: bool = False


class Unbound(NamedTuple):
    """The plan released then is seen unbound since, by a clock that nobody sets."""

    released_at: str
    since: float


class Awaited(NamedTuple):
    """So many of the pods that places are kept for exist since then, by a clock that nobody sets."""

    pods: int
    since: float


class SeenPods(NamedTuple):
    """Exactly these pods of the gang live since then, by a clock that nobody sets."""

    pods: frozenset[PodUid]
    since: float


@dataclass(slots=True, eq=False)
class GangState:
    """What is decided (`record`), what of it surely stands in the job's status (`written`), and what is under way.

    `meanwhile`: what changed since the write under way was sent; None while there is none. `unwritten`: pods whose claims count
    only if their plan gets written. `result`: of the last attempt to plan it. `shown`: what it was shown, while its turn comes
    again. `reconciled`: Jobs.touches when it was last reconciled. `late`: cycles in a row in which core's result came too late.
    `victims`: who ends for it now. `places`: what stands for the uids of pods whose places are kept until they exist.
    `newcomers`: pods that are planned beside the others, which have their places; `seen`: since when none came or went.
    """

    uid: str
    record: Record = NO_RECORD
    phase: GangPhase = GangPhase.WAITING
    written: Record | None = None
    meanwhile: list[Change] | None = None
    failed: FailedWrite | None = None
    unwritten: tuple[PodUid, ...] = ()
    result: AttemptResult | None = None
    shown: ClusterViews = ()
    reconciled: int = 0
    late: int = 0
    counted: CountedReservation | None = None
    victims: tuple[Victim, ...] = ()
    places: tuple[PodUid, ...] = ()
    awaited: Awaited | None = None
    unbound: Unbound | None = None
    newcomers: tuple[PodUid, ...] = ()
    seen: SeenPods | None = None
