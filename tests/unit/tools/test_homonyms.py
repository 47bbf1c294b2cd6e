"""Class names that stand for two things are found, whichever way the glossary and the code differ."""

import pytest

from tools.homonyms import GLOSSARY, HEADING, allowed, classes, complaints

TWO = [("a.py", "class Offer: ..."), ("b.py", "def f():\n    class Offer: ...")]


def test_a_name_in_two_modules_needs_a_reason() -> None:
    (line,) = complaints(classes(TWO), {})
    assert line == "class Offer stands in a.py, b.py"
    assert complaints(classes(TWO), {"Offer": "both are offers"}) == []


def test_a_reason_without_a_homonym_is_stale() -> None:
    assert complaints(classes(TWO[:1]), {"Offer": "both are offers"}) == ["docs/glossary.md explains Offer, which is no homonym"]


def test_only_rows_of_the_last_table_are_reasons() -> None:
    page = f"| `Gang` | pods |\n\n{HEADING}\n\n| class | reason |\n|---|---|\n| `Offer` | both are offers |\n"
    assert allowed(page) == {"Offer": "both are offers"}


@pytest.mark.parametrize("path", sorted({word for word in GLOSSARY.read_text().split("`") if word.endswith(".py")}))
def test_the_glossary_names_files_that_exist(path: str) -> None:
    assert (GLOSSARY.parent.parent / path).is_file()
