"""The drawings of docs/concepts.md are what the script draws, say what they show, and hold to the definitions."""

from xml.etree import ElementTree

import pytest

from tools.docs.pictures import EB, MACHINE, NUMBERS, SETS, packed, pictures
from tools.docs.repository import ROOT

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = pictures()


@pytest.mark.parametrize("path", DRAWN)
def test_the_file_is_what_is_drawn(path: str) -> None:
    assert (ROOT / path).read_text() == DRAWN[path], "python -m tools.docs.pictures"


@pytest.mark.parametrize("path", DRAWN)
def test_a_screen_reader_has_a_title_and_a_description(path: str) -> None:
    drawing = ElementTree.fromstring(DRAWN[path])
    told = [drawing.findtext(f"{SVG}{part}") or "" for part in ("title", "desc")]
    assert drawing.attrib["role"] == "img"
    assert all(len(text) > 20 for text in told)


@pytest.mark.parametrize("path", DRAWN)
def test_the_page_of_concepts_shows_it(path: str) -> None:
    assert f"]({path.removeprefix('docs/')})" in (ROOT / "docs/concepts.md").read_text()


def test_no_number_is_off_by_more_than_its_bound_and_zero_and_signs_stay() -> None:
    assert all(abs(x - packed(x, EB)) <= EB + 1e-12 for x in NUMBERS)
    assert [packed(x, EB) > 0 for x in NUMBERS] == [x > 0 for x in NUMBERS]
    assert packed(0.0, EB) == 0.0


def test_the_pairs_differ_in_value_because_their_links_do() -> None:
    text = DRAWN["docs/pictures/concept-value.svg"]
    assert MACHINE == "dgx1-v100"
    assert len(SETS) == 3
    assert all(f"{value} GB/s: GPU" in text for value in ("50.0", "25.0", "6.0"))
