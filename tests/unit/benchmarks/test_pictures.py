"""Pictures of the policies' table: every figure of the class without knowledge has its dot, at its place."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.pictures import completion, main, queue, read

ROW = "| {} | {} | {} | {} | 1.000 | {} | 3603 | 714.8 | 0 | 0.0 |\n"
TABLE = (
    "| trace | policy | knowledge | avg JCT h | of the best | p99 queue h | comm s/job | makespan | stops | s |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
    + ROW.format("t, 1x4x4, flat", "dally", "none", "20.0", "10.0")
    + ROW.format("t, 1x4x4, flat", "kompakt", "none", "10.0", "5.0")
    + ROW.format("t, 1x4x4, flat", "fifo <all>", "none", "40.0", "40.0")
    + ROW.format("t, 1x4x4, flat", "sjf", "declared", "1.0", "1.0")
)
CIRCLE = "{http://www.w3.org/2000/svg}circle"


def test_ratios_are_to_the_best_and_to_tuned_dally_of_the_class_without_knowledge() -> None:
    assert completion(read(TABLE)) == {"t, 1x4x4, flat": {"dally": 2.0, "kompakt": 1.0, "fifo <all>": 4.0}}
    assert queue(read(TABLE)) == {"t, 1x4x4, flat": {"dally": 1.0, "kompakt": 0.5, "fifo <all>": 4.0}}


def test_dots_lie_apart_as_the_logarithms_of_their_ratios(tmp_path: Path) -> None:
    (tmp_path / "policies.md").write_text(TABLE)
    main([str(tmp_path / "policies.md"), str(tmp_path)])
    for name, ratios in (("completion", (1, 2, 4)), ("queue", (0.5, 1, 4))):
        page = ElementTree.fromstring((tmp_path / f"policies-{name}.svg").read_text())
        dots = {}
        for circle in page.iter(CIRCLE):
            if len(circle):
                told = re.fullmatch(r".*: ([0-9.]+)", circle[0].text or "")
                assert told is not None
                dots[float(told.group(1))] = float(circle.attrib["cx"])
        assert tuple(dots) == (ratios[1], ratios[2], ratios[0]), "ours is drawn last, above the others"
        octaves = {"completion": (1, 1), "queue": (1, 2)}[name]
        left, middle, right = sorted(dots.values())
        assert (middle - left) / octaves[0] == pytest.approx((right - middle) / octaves[1], abs=0.2)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policies.md").write_text("nothing")
    with pytest.raises(SystemExit, match=r"policies.md: no rows of class none"):
        main([str(tmp_path / "policies.md"), str(tmp_path)])
