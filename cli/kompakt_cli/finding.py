"""What `kompakt doctor` found: one line for each check, with a cure wherever something is not as it should be."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

EXIT_PROBLEM: Final = 1
SHOWN: Final = 5  # names in a sentence


class Health(StrEnum):
    """How a check ended, the worst last."""

    OK = "ok"
    NOT_CHECKED = "not checked"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`cure`: a sentence with the command or chart value to use; empty for ok alone."""

    check: str
    health: Health
    found: str
    cure: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Health.OK, found)


def warning(check: str, found: str, cure: str) -> Finding:
    """It works, or may, but not as it should."""
    return Finding(check, Health.WARNING, found, cure)


def problem(check: str, found: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(check, Health.PROBLEM, found, cure)


def not_checked(check: str, found: str, cure: str) -> Finding:
    """It could not be seen."""
    return Finding(check, Health.NOT_CHECKED, found, cure)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where there is a problem; warnings are allowed."""
    return EXIT_PROBLEM if any(one.health is Health.PROBLEM for one in findings) else 0


def counted(findings: Sequence[Finding]) -> str:
    """How many checks ended how, the worst first."""
    counts = {health: sum(one.health is health for one in findings) for health in reversed(Health)}
    plural = {Health.PROBLEM: "problems", Health.WARNING: "warnings"}
    words = (f"{count} {plural.get(health, health) if count != 1 else health}" for health, count in counts.items() if count)
    return ", ".join(words) or "nothing checked"


def document(subjects: Iterable[tuple[str, Sequence[Finding]]]) -> dict[str, Any]:
    """For programs."""
    rows = [
        {"subject": subject, "check": one.check, "health": str(one.health), "found": one.found, "cure": one.cure}
        for subject, findings in subjects
        for one in findings
    ]
    return {"findings": rows, "counts": {str(health): sum(row["health"] == health for row in rows) for health in Health}}


def some(names: Iterable[str]) -> str:
    """The first few names, and how many there are beside them."""
    every = list(names)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")
