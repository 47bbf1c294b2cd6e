"""docs/device-plugin.md names what there is: conditions, options, metrics."""

import re
from pathlib import Path

import pytest
import yaml

from kompakt_core.topology.flags import DEGRADED
from kompakt_device_plugin.main import options_of
from kompakt_device_plugin.metrics import PluginMetrics

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/device-plugin.md").read_text()
VALUES = yaml.safe_load((ROOT / "charts/kompakt/values.yaml").read_text())["devicePlugin"]


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_reason_of_degraded_is_explained():
    assert set(re.findall(r"^\| `Degraded` `(\w+)` \|", section("What the conditions mean"), re.M)) == set(DEGRADED)


def test_every_option_is_one_of_chart_and_program(capsys):
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", section("Options").split("|---|---|---|")[1], re.M)
    named = {name for values, _ in rows for name in re.findall(r"`(\w+)`", values)}
    assert named <= set(VALUES)
    with pytest.raises(SystemExit):
        options_of(["--help"])
    arguments = {word for _, words in rows for word in re.findall(r"--[a-z-]+", words)}
    assert len(arguments) > 6
    assert arguments <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_every_metric_is_named():
    families = {family.name.removeprefix("kompakt_device_plugin_") for family in PluginMetrics().registry.collect()}
    shown = {re.sub(r"\{.*|_total$", "", word) for word in re.findall(r"`([a-z_]+(?:\{[^`]*\})?)`", section("Metrics"))}
    assert {name.removesuffix("_total") for name in families} <= {re.sub(r"_total$", "", word) for word in shown}
