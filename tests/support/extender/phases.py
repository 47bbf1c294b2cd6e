"""Whether each gang's phase says what the gang holds."""

from collections.abc import Iterator

from kompakt_core.contract.scheduling_record import State
from kompakt_extender.gang_state import GangPhase, GangState
from kompakt_extender.node_state import ClaimSource
from tests.support.extender.leader import Leader


def disagreements(leader: Leader) -> list[str]:
    """What a phase says and ledger, record or pods do not; empty where all is well."""
    states = leader.jobs.states.values()
    return [f"{gang.uid}, {gang.phase.value}: {what}" for gang in states for what in _disagreements(leader, gang)]


def _disagreements(leader: Leader, gang: GangState) -> Iterator[str]:
    ledger, phase = leader.ledger, gang.phase
    reserved = bool(gang.victims or gang.places) or ledger.reserved.counts_for == gang.uid
    if bool(gang.victims) != (gang.uid in ledger.reserved.exact):
        yield "victims end for it and nothing is reserved, or the reverse"
    if phase is GangPhase.RESERVING and not reserved:
        yield "nothing is reserved for it"
    if phase in (GangPhase.WAITING, GangPhase.WITHDRAWN) and reserved:
        yield "GPUs are reserved for it"
    if (phase is GangPhase.RELEASING) != bool(gang.unwritten):
        yield f"pods whose plan is not written: {gang.unwritten}"
    if phase is GangPhase.RELEASED and gang.record.state is not State.RELEASED:
        yield f"its record says {gang.record.state.value}"
    if any(len(ledger.claims_of(uid, ClaimSource.PLAN)) != 1 for uid in gang.places):
        yield "a pod of it has no place, or more than one"
    if gang.places and gang.record.state is not State.RESERVED:
        yield f"it has places, and its record says {gang.record.state.value}"
    if phase in (GangPhase.WAITING, GangPhase.RESERVING) and _plans(leader, gang):
        yield "a plan of this attempt holds GPUs"


def _plans(leader: Leader, gang: GangState) -> bool:
    """Whether pods of the gang's own attempt hold GPUs by plan."""
    pods = [pod for pod in leader.jobs.pods_of(gang.uid) if pod.attempt == gang.record.attempt and pod.node is None]
    return any(leader.ledger.claims_of(pod.uid, ClaimSource.PLAN) for pod in pods)
