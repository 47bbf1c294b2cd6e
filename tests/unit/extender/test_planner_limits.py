"""What an administrator's Limits keep the planner from doing."""

import pytest

from kompakt_extender.limits_in_force import read_limits
from tests.support.extender.scenario import Scenario

NO_PREEMPTION = '{"mayPreemptOthers": false}'
NO_VICTIMS = '{"mayBePreemptedByOthers": false}'
FULL = "low runs 2x4 / 300 s"  # in namespace default
OTHERS = "urgent comes 2x4 @1000 of-others"
OWN = "urgent comes 2x4 @1000"


def two_tenants() -> Scenario:
    """One machine, and two namespaces."""
    played = Scenario()
    played.begin("n0")
    for name in ("default", "others"):
        played.leader.world.add_namespace(name)
    return played


SCENARIOS = {
    "without Limits a job preempts one of another namespace": f"{FULL} / {OTHERS} -> low Released; urgent because Preempting",
    "a namespace that may not preempt others does not, and is told by which Limits": f"""{FULL}
        Limits calm of others say {NO_PREEMPTION} / {OTHERS}
        -> low not asked; urgent Waiting; reserved for nothing; quiet
        300 s -> urgent says Limits calm of the cluster let it preempt no job of another namespace (mayPreemptOthers)""",
    "its own jobs it may": f"Limits calm of default say {NO_PREEMPTION} / {FULL} / {OWN} -> low asked by urgent",
    "a namespace that others may not preempt is left alone": f"""{FULL} / Limits safe of default say {NO_VICTIMS}
        {OTHERS} -> low not asked; urgent says Limits of the cluster keep jobs from being preempted by other namespaces; quiet""",
    "its own may preempt it": f"Limits safe of default say {NO_VICTIMS} / {FULL} / {OWN} -> low asked by urgent",
    "rights of one do not bind the other side": f"""{FULL} / Limits calm of default say {NO_PREEMPTION}
        Limits safe of others say {NO_VICTIMS} / {OTHERS} -> urgent because Preempting""",
    "when Limits go the gang is planned again": f"""{FULL} / Limits calm of others say {NO_PREEMPTION}; {OTHERS}
        -> low not asked
        Limits calm are deleted -> urgent because Preempting""",
    "Limits that come while core plans count": f"""{FULL}
        meanwhile Limits calm of others say {NO_PREEMPTION}; {OTHERS} -> low not asked; urgent Waiting""",
    "a gang that waits for one machine is told as well": f"""Limits calm of others say {NO_PREEMPTION}
        low runs 1x4 / node n1 is added / 4 pods on n1 / 300 s
        {OTHERS} NeverRelax -> low not asked; urgent says waits for one machine; urgent says (mayPreemptOthers)""",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS)
async def test_who_may_preempt_whom(text: str) -> None:
    await two_tenants().play(text)


SMALL = '{"maxWorkers": 1}'
BEYOND = (
    "low Waiting; low because BeyondLimits; reserved for nothing; quiet"
    "; low says this job asks for 2 pods; low says Limits small of the cluster allow 1 (maxWorkers)"
)
STANDING = {
    "a gang that exceeds Limits in force is not planned, and is told both numbers": f"""
        Limits small of default say {SMALL} / low comes 2x4 -> {BEYOND}""",
    "Limits of other namespaces do not matter": f"Limits small of others say {SMALL} / low comes 2x4 -> low Released",
    "it is planned when Limits become wider": f"""Limits small of default say {SMALL} / low comes 2x4 -> {BEYOND}
        Limits small of default say {{"maxWorkers": 2}} -> low Released""",
    "it is planned when they go": f"""Limits small of default say {SMALL} / low comes 2x4 / Limits small are deleted
        -> low Released""",
    "a gang that waits for room is told when Limits become narrower": f"""8 pods on n0 / low comes 2x4 -> low Waiting
        Limits small of default say {SMALL} -> {BEYOND}
        8 pods leave n0 -> {BEYOND}""",
    "what is placed goes on": f"""low comes 2x4 -> low Released
        Limits small of default say {SMALL} -> low Released; quiet
        low is bound / low starts -> low Released; quiet""",
    "what runs goes on, and its next attempt waits": f"""low runs 2x4 / Limits small of default say {SMALL} -> low Released
        low ends / low comes back -> {BEYOND}""",
    "who waits for victims gives them up": """low runs 2x4 / 300 s; urgent comes 2x4 @1000 -> low asked by urgent
        Limits few of default say {"maxGPUs": 7, "priorityClassNames": ["high"]} -> low asked by urgent
        Limits few of default say {"maxGPUs": 7} -> low not asked; urgent because BeyondLimits; reserved for nothing""",
}


@pytest.mark.parametrize("text", STANDING.values(), ids=STANDING)
async def test_a_job_that_stood_there_before_its_limits(text: str) -> None:
    await two_tenants().play(text)


async def test_what_a_withdrawn_gang_asks_for_is_looked_at_again() -> None:
    it = two_tenants()
    await it.play(f"low comes 2x4 / Limits small of default say {SMALL} / 121 s / 1 s -> {BEYOND}")


async def test_a_new_leader_does_not_take_over_a_preemption_that_limits_forbid() -> None:
    it = two_tenants()
    await it.play(f"{FULL} / {OTHERS} -> urgent because Preempting")
    it.leader.world.set_limits("safe", mayBePreemptedByOthers=False)
    await it.play("another leader / 0 s -> reserved for nothing; low not asked; urgent Waiting")


def test_limits_that_are_not_understood_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    view = read_limits(b'{"metadata": {"name": "odd"}, "spec": {"maxWorkers": "x", "mayPreemptOthers": false}}')
    assert view.spec.max_workers is None
    assert view.spec.may_preempt_others
    assert "Limits odd say nothing to the planner" in caplog.text
