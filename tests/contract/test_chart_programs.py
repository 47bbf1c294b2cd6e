"""What the chart tells its programs: they take every argument, every value arrives, and defaults are the programs' own."""

from pathlib import Path

import pytest

from kompakt_core.placement.model import Level
from kompakt_core.policy.model import Timers
from kompakt_device_plugin.main import options_of
from kompakt_extender.command_line import Settings, parse
from kompakt_extender.consolidation import DEFAULT, POLICIES
from kompakt_operator.config import read_config
from tests.support.chart import arguments, json_of

NVML = (
    'devicePlugin.source="nvml"',
    'devicePlugin.ownGPUs=["GPU-1", "GPU-2"]',
    "devicePlugin.numaHints=true",
    "devicePlugin.skipXIDs=[94]",
    "devicePlugin.heedXIDs=[13]",
    'devicePlugin.cdi="never"',
    'devicePlugin.nvmlLibrary="/opt/libnvidia-ml.so.1"',
)


def extender(*settings: str) -> Settings:
    return parse(arguments("scheduler", "extender", *(f"consolidation.{setting}" for setting in settings)))


def test_the_charts_defaults_of_consolidation_are_those_of_the_extender() -> None:
    told, ours = extender(), parse([])
    names = (
        "consolidation",
        "wait_seconds",
        "level_factors",
        "overtaken_at_most",
        "reserved_seconds",
        "preemption",
        "rack_label",
        "block_label",
    )
    assert {name: getattr(told, name) for name in names} == {name: getattr(ours, name) for name in names}
    assert told.consolidation == DEFAULT.name == "kompakt"
    assert told.bare_pods is ours.bare_pods is False


def test_the_extender_hears_whether_bare_pods_may_end() -> None:
    assert parse(arguments("scheduler", "extender", "preemption.barePods=true")).bare_pods


def test_every_value_of_consolidation_arrives() -> None:
    wanted = (
        'policy="fixed"',
        "waitSeconds.rack=700",
        "levelFactors.cluster=32.5",
        "overtakenAtMost=7",
        "reservedSeconds=9",
        "preemption=false",
    )
    told = extender(*wanted, 'labels.rack="row"')
    assert (told.consolidation, told.wait_seconds) == ("fixed", Timers(600, 700, 3600))
    assert (told.level_factors[Level.CLUSTER], told.overtaken_at_most, told.rack_label) == (32.5, 7, "row")
    assert (told.preemption, told.reserved_seconds) == (False, 9)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_chart_takes_every_policy(policy: str) -> None:
    assert extender(json_of("policy", policy)).consolidation == policy


@pytest.mark.parametrize(("more", "told"), [((), True), (("operator.keepNodes=false",), False)])
def test_the_operator_hears_whether_workers_keep_their_nodes(more: tuple[str, ...], told: bool) -> None:
    assert read_config([*arguments("operator", "operator", *more), "--kubeconfig=/dev/null"], {}).keep_nodes is told


@pytest.mark.parametrize("settings", [(), NVML], ids=["text", "nvml"])
def test_the_device_plugin_takes_every_argument(settings: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    told = arguments("devicePlugin", "device-plugin", *settings, json_of("devicePlugin.kubeletDir", str(tmp_path)))
    options = options_of(told)
    found = (options.source, options.own_gpus, options.numa_hints, options.cdi, options.skip_xids, options.heed_xids)
    assert options.node_name == "node-1"
    assert found == (
        ("nvml", {"GPU-1", "GPU-2"}, True, "never", "94", "13") if settings else ("text", set(), False, "auto", "", "")
    )


@pytest.mark.parametrize(("settings", "plain"), [((), False), (("monitoring.plain=true",), True)])
def test_all_parts_hear_whether_figures_are_open(settings: tuple[str, ...], plain: bool, tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    folder = json_of("devicePlugin.kubeletDir", str(tmp_path))
    assert parse(arguments("scheduler", "extender", *settings)).plain_metrics is plain
    assert read_config([*arguments("operator", "operator", *settings), "--kubeconfig=/dev/null"], {}).plain_metrics is plain
    assert options_of(arguments("devicePlugin", "device-plugin", *settings, folder)).plain_metrics is plain
