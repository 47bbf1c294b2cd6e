"""Which policies run in every column, each with one setting for all of them."""

from dataclasses import replace
from typing import Final

from benchmarks.policies import BASE, ENTRIES, Entry
from kompakt_simulator.setting import Knowledge

OURS: Final = "kompakt"
DECLARED: Final = "kompakt declared"
WRONG_2X: Final = "kompakt 2x wrong"
WRONG_4X: Final = "kompakt 4x wrong"
# The bound (srtf) is of no class, and sjf with wrong totals is judged by no bar.
RUN: Final = (
    *(entry for entry in ENTRIES if entry.group in ("none", "declared") or entry.label == WRONG_2X),
    Entry(WRONG_4X, OURS, "declared 4x", replace(BASE, knowledge=Knowledge.DECLARED, declared_error=4)),
)
RIVALS: Final = tuple(entry.label for entry in RUN if entry.group == "none" and entry.label != OURS)
