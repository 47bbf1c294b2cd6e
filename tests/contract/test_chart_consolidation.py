"""The chart's values of consolidation and the extender's flags: equal defaults, and every value arrives."""

import pytest

from kompakt_core.placement.model import Level
from kompakt_core.policy.model import Timers
from kompakt_extender.consolidation import DEFAULT, POLICIES
from kompakt_extender.main import Settings, parse
from tools.kube import binaries
from tools.kube.control_plane import StartFailed
from tools.kube.parts import extender_settings, render


def settings(**values: str) -> Settings:
    """What the extender of a chart with these values is told."""
    chart = render(binaries.find, {f"consolidation.{name.replace('__', '.')}": value for name, value in values.items()})
    return parse(extender_settings(chart))


def test_the_charts_defaults_are_those_of_the_program() -> None:
    told, ours = settings(), parse([])
    names = ("consolidation", "wait_seconds", "level_factors", "overtaken_at_most", "preemption", "rack_label", "block_label")
    assert {name: getattr(told, name) for name in names} == {name: getattr(ours, name) for name in names}
    assert told.consolidation == DEFAULT.name == "kompakt"


def test_every_value_arrives() -> None:
    told = settings(
        policy="fixed",
        waitSeconds__rack="700",
        levelFactors__cluster="32.5",
        overtakenAtMost="7",
        preemption="false",
        labels__rack="row",
    )
    assert (told.consolidation, told.wait_seconds) == ("fixed", Timers(600, 700, 3600))
    assert (told.level_factors[Level.CLUSTER], told.overtaken_at_most, told.rack_label) == (32.5, 7, "row")
    assert told.preemption is False


@pytest.mark.parametrize("policy", POLICIES)
def test_the_chart_takes_every_policy(policy: str) -> None:
    assert settings(policy=policy).consolidation == policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "dally"},
        {"waitSeconds__machine": "soon"},
        {"levelFactors__rack": "-1"},
        {"overtakenAtMost": "-1"},
        {"preemption": "sometimes"},
    ],
    ids=str,
)
def test_the_chart_refuses_a_wrong_value(wrong: dict[str, str]) -> None:
    with pytest.raises(StartFailed):
        settings(**wrong)
