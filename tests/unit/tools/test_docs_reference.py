"""The reference pages that are made from declarations: chart values, shared names, metrics, commands."""

import json
from pathlib import Path

import pytest

from kompakt_core import contract
from tools.docs.chart_values import SCHEMA, VALUES, chart_pages, chart_problems, chart_values
from tools.docs.command_lines import command_pages
from tools.docs.contract_names import CONDITIONS, NAMES, contract_pages, contract_problems, shared_names
from tools.docs.metric_names import metric_pages, metric_problems
from tools.docs.repository import ROOT

YAML = """# About the part.
part:
  one: 1     # beside
             # and below
  # above
  # on two lines
  two: ""
  three:     # for both
    a: x
    b: [y]

  four: {}   # sizes
five: true
"""
TEXT = {"type": "string"}
INNER = {"type": "object", "properties": {"a": TEXT, "b": {"type": "array", "items": TEXT}}}
PART = {
    "one": {"type": "integer", "minimum": 0},
    "two": {"enum": ["", "x"]},
    "three": INNER,
    "four": {"$ref": "#/definitions/size"},
}
VALUE_SCHEMA = {
    "definitions": {"size": {"title": "a size", "type": "object", "properties": {"cpu": TEXT}}},
    "properties": {"part": {"type": "object", "properties": PART}, "five": {"type": "boolean"}},
}


def test_a_values_comment_stands_above_or_beside_it_and_may_go_on_below() -> None:
    said = {one.path: one.meaning for one in chart_values(YAML, VALUE_SCHEMA)}
    assert said == {
        "part": "About the part.",
        "part.one": "beside and below",
        "part.two": "above on two lines",
        "part.three": "for both",
        "part.three.a": "",
        "part.three.b": "",
        "part.four": "sizes",
        "five": "",
    }


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / VALUES).parent.mkdir(parents=True)
    (tmp_path / VALUES).write_text(YAML)
    (tmp_path / SCHEMA).write_text(json.dumps(VALUE_SCHEMA))
    return tmp_path


def test_the_page_of_values_has_type_default_and_meaning(chart: Path) -> None:
    (page,) = chart_pages(chart).values()
    assert [line for line in page.splitlines() if line.startswith("| `")] == [
        "| `five` | true or false | `true` |  |",
        "| `part.one` | whole number from 0 | `1` | beside and below |",
        '| `part.two` | ``, `x` | `""` | above on two lines |',
        "| `part.three` | object |  | for both |",
        "| `part.three.a` | text | `x` |  |",
        "| `part.three.b` | list of text | `[y]` |  |",
        "| `part.four` | a size | `{}` | sizes |",
    ]
    assert "## part\n\nAbout the part.\n" in page


def test_a_value_that_says_nothing_is_a_problem(chart: Path) -> None:
    assert chart_problems(chart) == [f"{VALUES}: five has no comment that says what it is for"]
    assert chart_problems(ROOT) == []


def test_every_shared_name_says_who_writes_and_reads_it(tmp_path: Path) -> None:
    assert contract_problems(ROOT) == []
    for path in (NAMES, CONDITIONS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / NAMES).write_text('# about it\nANN_A: Final = "kompakt.dev/a"\n')
    assert contract_problems(tmp_path) == [
        f"{NAMES}:2: ANN_A: the comment above must say: who writes it -> who reads it: what it means"
    ]


def test_a_comment_of_several_lines_and_members_of_classes_are_read() -> None:
    first, second = shared_names('# a -> b: c\n# d\nX = "x"\n\nclass K(StrEnum):\n    # e -> f: g\n    Y = "y"\n')
    assert (first.code, first.text, first.comment, first.line) == ("X", "x", "a -> b: c d", 3)
    assert (second.code, second.text, second.comment) == ("K.Y", "y", "e -> f: g")


def test_the_page_of_names_has_every_annotation_label_and_variable() -> None:
    (page,) = contract_pages(ROOT).values()
    every = contract.INPUT_ANNOTATIONS | contract.OUTPUT_ANNOTATIONS | contract.RUNTIME_ENV | set(contract.WORKER_LABELS)
    assert [name for name in sorted(every) if f"| `{name}` |" not in page] == []


def test_the_page_of_metrics_has_every_part_with_labels_and_units() -> None:
    assert metric_problems(ROOT) == []
    (page,) = metric_pages(ROOT).values()
    for row in (
        "| `kompakt_operator_reconciles_total` | counter | `outcome` |  |",
        "| `kompakt_extender_rejections_total` | counter | `verb`, `reason` |  |",
        "| `kompakt_node_ring_left_bytes_per_second` | gauge | `node`, `gpus` | bytes per second |",
        "| `kompakt_device_plugin_preferred_allocation_seconds` | histogram |  | seconds |",
        "| `kompakt_activation_raw_bytes_total` | counter | `reason` | bytes |",
    ):
        assert row in page


def test_the_page_of_commands_has_every_command_and_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    (page,) = command_pages(ROOT).values()
    assert page == (ROOT / "docs/reference/cli.md").read_text()
    for title in ("## kompakt place", "### kompakt explain pod", "### kompakt-operator", "### kompakt-device-plugin"):
        assert f"\n{title}\n" in page
    assert "| `--gpus <int range>` | how many GPUs the pod asks for  [x>=1; required] |" in page
