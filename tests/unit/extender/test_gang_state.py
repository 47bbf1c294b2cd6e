"""A gang's phases: which transitions there are, what each does to the ledger, and what happens at one that is impossible."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kompakt_client.requests import Answer
from kompakt_core.contract import scheduling_record
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import NodeName
from kompakt_extender.gang_state import GangPhase, GangState
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.transitions import ALLOWED, Transition, Transitions
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.phases import disagreements

NODE = NodeName("n0")
TRIALS: dict[Transition, Callable[[Transitions, GangState], object]] = {
    Transition.RESERVE: lambda moves, gang: moves.reserve_counts(gang, {NODE: 1}, 0),
    Transition.PLAN: lambda moves, gang: moves.plan(gang, (), {}),
    Transition.RELEASE: lambda moves, gang: moves.release(gang),
    Transition.WITHDRAW: lambda moves, gang: moves.withdraw(gang, ()),
    Transition.START: lambda moves, gang: moves.start(gang),
}
IMPOSSIBLE = [(how, phase) for how in TRIALS for phase in GangPhase if phase not in ALLOWED[how][0]]


def repairs(metrics: ExtenderMetrics, how: Transition) -> float:
    return metrics.registry.get_sample_value("kompakt_planner_repairs_total", {"transition": how.value}) or 0.0


def holds_nothing(leader: Leader) -> bool:
    return not any(leader.ledger.claims_on(NodeName(node)) for node in leader.world.nodes)


@pytest.mark.parametrize(("how", "phase"), IMPOSSIBLE)
def test_an_impossible_transition_is_counted_and_raised_where_somebody_listens(how: Transition, phase: GangPhase) -> None:
    heard: list[str] = []
    metrics = ExtenderMetrics()
    gang = GangState("uid-j", phase=phase)
    TRIALS[how](Transitions(GpuLedger(), metrics, heard.append), gang)
    assert [one for one in heard if f"{how.value} from phase {phase.value}" in one]
    assert repairs(metrics, how) == 1


@pytest.mark.parametrize(("how", "phase"), IMPOSSIBLE)
def test_after_an_impossible_transition_the_gang_goes_on_with_what_it_holds(how: Transition, phase: GangPhase) -> None:
    ledger = GpuLedger()
    gang = GangState("uid-j", phase=phase)
    TRIALS[how](Transitions(ledger, ExtenderMetrics()), gang)
    assert gang.phase in ALLOWED[how][1]
    assert (gang.phase is GangPhase.RESERVING) == (ledger.reserved.counts_for == "uid-j")


@pytest.mark.parametrize(("how", "phase"), [(how, phase) for how in TRIALS for phase in sorted(ALLOWED[how][0])])
def test_what_the_table_allows_is_no_error(how: Transition, phase: GangPhase) -> None:
    metrics, heard = ExtenderMetrics(), list[str]()
    TRIALS[how](Transitions(GpuLedger(), metrics, heard.append), GangState("uid-j", phase=phase))
    assert (heard, repairs(metrics, how)) == ([], 0)


def test_a_phase_ends_in_another_or_the_gang_ends() -> None:
    """No phase is a dead end, and each can be reached."""
    starts = set().union(*(starts for starts, _ in ALLOWED.values()))
    ends = set().union(*(ends for _, ends in ALLOWED.values()))
    assert starts == ends == set(GangPhase)


async def test_from_waiting_to_released(leader: Leader) -> None:
    leader.world.add_gang("j")
    leader.see()
    assert leader.jobs.states["uid-j"].phase is GangPhase.WAITING
    await leader.planner.run_cycle()
    assert leader.jobs.states["uid-j"].phase is GangPhase.RELEASING
    await leader.settle()
    assert leader.jobs.states["uid-j"].phase is GangPhase.RELEASED


async def test_a_plan_that_the_api_server_refuses_holds_nothing(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    leader.world.add_gang("j")
    leader.see()
    monkeypatch.setattr(leader.world, "_apply", lambda name, body: Answer(422, b"{}"))
    await leader.plan()
    assert leader.jobs.states["uid-j"].phase is GangPhase.WAITING
    assert holds_nothing(leader)


async def test_a_plan_for_a_job_that_has_changed_holds_its_gpus_until_the_gang_is_planned_anew(leader: Leader) -> None:
    leader.world.add_gang("j")
    leader.see()
    leader.world.put("jobs", "j", leader.world.jobs["j"])  # and the watch has not shown it yet
    await leader.plan()
    assert leader.jobs.states["uid-j"].phase is GangPhase.RELEASING
    await leader.settle()
    assert leader.jobs.states["uid-j"].phase is GangPhase.RELEASED


async def test_a_plan_that_nobody_binds_is_withdrawn_and_made_again(leader: Leader) -> None:
    await leader.place("j")
    leader.wait(121)
    await leader.plan()
    assert leader.jobs.states["uid-j"].phase is GangPhase.WITHDRAWN
    leader.wait(600)
    await leader.settle()
    assert leader.jobs.states["uid-j"].phase is GangPhase.RELEASED


async def test_a_job_that_ends_while_its_plan_is_written_leaves_nothing(leader: Leader) -> None:
    leader.world.add_gang("j")
    leader.see()
    await leader.planner.run_cycle()
    gang = leader.jobs.states["uid-j"]
    leader.world.news.append(("jobs", "uid-j", None))
    leader.see()
    assert gang.phase is GangPhase.RELEASING  # its write is on its way
    await leader.plan()
    assert (gang.phase, gang.unwritten) == (GangPhase.WAITING, ())
    assert holds_nothing(leader)


@pytest.mark.parametrize(
    ("state", "attempt", "phase"),
    [
        (State.WAITING, 1, GangPhase.WAITING),
        (State.RELEASED, 1, GangPhase.RELEASED),
        (State.WITHDRAWN, 1, GangPhase.WITHDRAWN),
        (State.RELEASED, 2, GangPhase.WAITING),
        (State.WITHDRAWN, 2, GangPhase.WAITING),
    ],
)
async def test_what_a_restart_finds(leader: Leader, state: State, attempt: int, phase: GangPhase) -> None:
    """`attempt`: the job's by then."""
    await leader.place("j")
    written = leader.world.jobs["j"]["status"]
    written["scheduling"]["state"] = state.value
    written["attempt"] = attempt
    new = Leader(leader.world)
    new.take_over()
    assert new.jobs.states["uid-j"].phase is phase
    assert disagreements(new) == []


async def test_of_two_gangs_that_counts_stand_written_for_the_later_one_keeps_them() -> None:
    """The earlier one's reservation fell, and its status was not written over before the leader changed."""
    leader = on_nodes(2)
    for name, until in (("early", "2026-01-31T12:10:00Z"), ("late", "2026-01-31T12:20:00Z"), ("older", "2026-01-31T12:05:00Z")):
        leader.world.add_gang(name, 2, 8)
        record = Record(1, State.RESERVED, "Reserved", "", "2026-01-31T12:00:00Z", until=until, reserved_counts=((NODE, 8),))
        leader.world.jobs[name]["status"]["scheduling"] = scheduling_record.encode(record)
    new = Leader(leader.world)
    new.take_over()
    phases = {name: new.jobs.states[f"uid-{name}"].phase for name in ("early", "late", "older")}
    assert phases == {"early": GangPhase.WAITING, "late": GangPhase.RESERVING, "older": GangPhase.WAITING}
    assert new.ledger.reserved.counts_for == "uid-late"


def test_the_page_has_the_table_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs/planner.md").read_text()
    table = page.split("<!-- transitions -->")[1].split("<!-- /transitions -->")[0].strip().splitlines()[2:]
    written = {cells[0]: tuple(set(one.split(", ")) for one in cells[1:3]) for cells in map(_cells, table)}
    assert written == {how.value: tuple({one.value for one in phases} for phases in ALLOWED[how]) for how in Transition}


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
