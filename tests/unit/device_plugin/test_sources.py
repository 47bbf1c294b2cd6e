"""A source that can be named can be opened, and the chart takes the same names."""

import json
from pathlib import Path

import pytest

from kompakt_device_plugin.source import SOURCES, TopologySource, open_source

SCHEMA = Path(__file__).parents[3] / "charts/kompakt/values.schema.json"
QUESTIONS = ("read", "wait", "busy", "minor", "close")


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_that_can_be_named_can_be_opened(name: str, tmp_path: Path) -> None:
    source: TopologySource = open_source(name, machines=tmp_path)
    try:
        assert source.name == name
        assert [question for question in QUESTIONS if not callable(getattr(source, question, None))] == []
    finally:
        source.close()
    assert source.wait(60.0) == ()


def test_the_chart_takes_the_sources_that_the_program_knows() -> None:
    values = json.loads(SCHEMA.read_text())
    assert values["properties"]["devicePlugin"]["properties"]["source"]["enum"] == list(SOURCES)
