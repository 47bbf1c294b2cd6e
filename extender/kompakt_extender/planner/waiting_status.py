"""What is written about a gang that waits although it could be placed. Absolute times, so that nothing changes by itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kompakt_core.contract import timestamps
from kompakt_core.contract.plan_record import PlanRecord
from kompakt_core.contract.scheduling_record import Record, State, Victim
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_core.placement.model import Level, Reason
from kompakt_core.policy.place_or_wait import GangReservation, LevelWait
from kompakt_extender.gangs import placed_message

LATEST: Final = 4102444800.0  # the year 2100: a moment beyond it is none
_NAMED: Final = 3  # nodes in a sentence
_COUNTS_WORTH_A_WRITE: Final = 10
REASON: Final = "WaitingForLevel"
BEYOND_LIMITS: Final = Reason.BEYOND_LIMITS.value
PREEMPTING: Final = "Preempting"
INCOMPLETE: Final = "GangIncomplete"  # of a gang that others made
CREATING_PODS: Final = "CreatingPods"
NOT_ALL_REPORTED: Final = (
    "no node that has reported its GPUs could hold the gang; it waits for the nodes whose device plugin has not reported yet"
)
_PLACE: Final[Mapping[Level, str]] = {Level.MACHINE: "one machine", Level.RACK: "one rack", Level.BLOCK: "one block"}
_ROOM: Final[Mapping[Level, str]] = {level: f"in {place}" for level, place in _PLACE.items()} | {
    Level.CLUSTER: "across the whole cluster"
}


def waiting_for_level(record: Record, wait: LevelWait, since: float) -> Record:
    """The record of a gang that goes on waiting; `since` (seconds since the epoch): where its timers begin."""
    began = _at(since)
    until = None if wait.at is None or wait.at >= LATEST else _at(math.ceil(wait.at))
    return replace(
        not_waiting_for_level(record),
        state=State.WAITING,
        reason=REASON,
        message=_message(wait, began, until),
        plan=None,
        placeable_since=timestamps.encode(began),
        waits_for=wait.level.value,
        until="" if until is None else timestamps.encode(until),
    )


def not_waiting_for_level(record: Record) -> Record:
    """The same without a level that it waits for, GPUs reserved for it and jobs preempted for it; its timers go on from where
    they began.
    """
    return replace(record, waits_for="", until="", reserved_counts=(), victims=(), reserved_gpus=(), decided_at="")


def with_reserved_counts(record: Record, reservation: GangReservation, until: float) -> Record:
    """The record of a gang for which GPUs are reserved by count; `until` (seconds since the epoch): when they fall."""
    counts = tuple(sorted(reservation.gpus.items()))
    names = ", ".join(node for node, _ in counts[:_NAMED]) + (f" and {len(counts) - _NAMED} more" if len(counts) > _NAMED else "")
    falls = timestamps.encode(_at(math.ceil(until)))
    return replace(
        not_waiting_for_level(record),
        state=State.RESERVED,
        reason=State.RESERVED.value,
        message=f"too many later gangs were placed before it: {sum(reservation.gpus.values())} GPUs of {names} are reserved for "
        f"it as they become free, until {falls} and longer while more of them become free; it starts when it has all of them, or "
        "room elsewhere at that level",
        plan=None,
        waits_for=reservation.level.value,
        until=falls,
        reserved_counts=counts,
    )


def preempting(
    record: Record, victims: Sequence[Victim], reserved: Mapping[NodeName, tuple[GpuUuid, ...]], now: datetime
) -> Record:
    """The record of a gang for which others end."""
    names = ", ".join(one.called for one in victims[:_NAMED])
    names += f" and {len(victims) - _NAMED} more" if len(victims) > _NAMED else ""
    gpus = sum(len(uuids) for uuids in reserved.values())
    pods = sum(not one.attempt for one in victims)
    kinds = [(len(victims) - pods, "running job"), (pods, "plain pod")]
    ended = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in kinds if count)
    ended += " is" if len(victims) == 1 else " are"
    return replace(
        not_waiting_for_level(record),
        state=State.RESERVED,
        reason=PREEMPTING,
        message=f"{ended} ended for it, of lower priority: {names}; {gpus} GPUs are reserved for it since "
        f"{timestamps.encode(now)}, and it starts when they are free",
        plan=None,
        victims=tuple(victims),
        reserved_gpus=tuple(sorted(reserved.items())),
        decided_at=timestamps.encode(now),
    )


def awaiting_pods(record: Record, plan: PlanRecord) -> Record:
    """The record of a gang that has places, and no pods yet."""
    message = f"{placed_message(plan)}; the places are kept for its pods, which are being created"
    waiting = not_waiting_for_level(record)
    return replace(waiting, state=State.RESERVED, reason=CREATING_PODS, message=message, plan=plan)


def without_places(record: Record, reason: str, message: str) -> Record:
    """The record of a gang that has its places no longer."""
    return replace(record, state=State.WAITING, reason=reason, message=message, plan=None)


def from_then_on(message: str, at: float) -> str:
    """Why a gang waits, and when jobs of lower priority may be ended for it."""
    begin = timestamps.encode(math.ceil(at))
    return f"{message}; running jobs of lower priority can make room, and may be ended for it from {begin} on"


def and_also(record: Record, words: str) -> Record:
    """The same with one more thing said."""
    return replace(record, message=f"{record.message}; {words}") if words else record


def _message(wait: LevelWait, since: datetime, until: datetime | None) -> str:
    room = f"now there is room only {_ROOM[wait.offered]}"
    place = _PLACE[wait.level]
    if until is None:
        return f"waits for {place} however long it takes; {room}; it starts as soon as {place} has room for all workers"
    return (
        f"waits for {place} until {_clock(until, since)}; {room}, which it takes then; it starts as soon as {place} has room "
        "for all workers"
    )


def _clock(moment: datetime, since: datetime) -> str:
    """The time of day in UTC; with its date where that is another one than when the wait began."""
    return timestamps.encode(moment) if moment.date() != since.date() else f"{moment:%H:%M:%SZ}"


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def passed(record: Record) -> Record:
    """A later gang was placed before it."""
    return record if record.state is State.RELEASED else replace(record, overtaken=record.overtaken + 1)


def count_is_worth_a_write(record: Record, written: Record | None) -> bool:
    """Now and then only: each gang that is placed would cost a write for each that waits."""
    return written is not None and record.overtaken - written.overtaken >= _COUNTS_WORTH_A_WRITE


def not_overtaken(record: Record) -> Record:
    """It waits on as if nobody had passed it yet."""
    return replace(not_waiting_for_level(record), state=State.WAITING, overtaken=0)
