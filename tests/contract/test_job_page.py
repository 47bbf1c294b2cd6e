"""docs/trainingjob.md against the code it describes."""

from pathlib import Path

from kompakt_core.contract.conditions import OPERATORS
from kompakt_core.job.phases import MOVES, Phase

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "trainingjob.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its first two lines."""
    lines = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return table[2:]


def test_the_page_shows_the_table_of_phases() -> None:
    shown = {row[0]: {word.strip() for word in row[2].split(",") if word.strip()} for row in rows("Phases")}
    assert shown == {str(start): {str(end) for end in ends} for start, ends in MOVES.items() if start is not Phase.NEW}


def test_the_page_names_every_condition_of_the_operator() -> None:
    named = {name.strip(" `") for row in rows("Conditions") for name in row[0].split(",") if "operator" in row[1]}
    assert named == {str(type_) for type_ in OPERATORS}
