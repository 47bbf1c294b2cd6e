"""What the check of pages and decisions finds: broken links, files that are gone, long lines, decisions without a status."""

import subprocess
from pathlib import Path

import pytest

from tools.docs.decisions import INDEX, decision_index, decision_pages, decision_problems, with_status
from tools.docs.pages import anchors, page_problems

FIRST = "# 0001: One thing\n\nStatus: Accepted\n\nWhy.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    for name, text in {
        "docs/other.md": "# Other\n\n## How it is, `really`\n",
        "core/kompakt_core/one.py": "",
        "tests/test_a.py": "B: int = 1\nclass A:\n    def test_a(self): ...\n",
        "docs/decisions/0001-one-thing.md": FIRST,
        ".gitignore": "built/\n",
        "built/page.html": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def problems_of(checkout: Path, page: str, text: str) -> list[str]:
    (checkout / page).parent.mkdir(parents=True, exist_ok=True)
    (checkout / page).write_text(text)
    return page_problems(checkout)


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/other.md), [b](docs/other.md#how-it-is-really), [c](https://example.org/x), [d](#top)\n\n# Top\n",
        '<a href="docs/other.md#other">x</a> [y][z]\n\n[z]: docs/other.md "title"',
        "`core/kompakt_core/one.py`, `docs/*.md`, `core/`, `tests/test_a.py::test_a`, `tests/test_a.py::A`, `tests/test_a.py::B`",
        "```\n[a](gone.md) `docs/gone.md`\n```\n\n    [a](gone.md)\n",
        "`train.py`, `a/b.py`",
        "x" * 130,
        "| " + "x" * 200 + " |\n\n> " + "x" * 200,
    ],
)
def test_a_sound_page_has_no_problem(checkout: Path, text: str) -> None:
    assert problems_of(checkout, "README.md", text) == []


@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("README.md", "one\n[a](gone.md)", "README.md:2: link to gone.md: there is no such file"),
        ("README.md", "one [a\nb](docs/other.md#gone)", "README.md:1: link to docs/other.md#gone: no heading gives this anchor"),
        ("README.md", '<img src="gone.svg">', "README.md:1: link to gone.svg: there is no such file"),
        ("README.md", "[a][b]\n\n[b]: gone.md", "README.md:3: link to gone.md: there is no such file"),
        ("README.md", "[a](built/page.html)", "README.md:1: link to built/page.html: the file is not one of the repository's"),
        ("docs/a.md", "[a](../../)", "docs/a.md:1: link to ../../: the file is not one of the repository's"),
        ("README.md", "`core/kompakt_core/gone.py`", "README.md:1: `core/kompakt_core/gone.py`: there is no such file"),
        ("core/README.md", "`gone.py`", "core/README.md:1: `gone.py`: there is no such file in core/"),
        ("docs/a.md", "`core/kompakt_core/one.py`, `b.py`", "docs/a.md:1: `b.py`: there is no such file in core/kompakt_core/"),
        ("docs/a.md", "`tests/test_a.py::test_gone`", "docs/a.md:1: `tests/test_a.py::test_gone`: there is no such name"),
        ("docs/a.md", "`tests/test_a.py::self`", "docs/a.md:1: `tests/test_a.py::self`: there is no such name"),
        ("docs/a.md", "`tests/gone.py::test_a`", "docs/a.md:1: `tests/gone.py::test_a`: there is no such name"),
        ("docs/a.md", "x" * 131, "docs/a.md:1: 131 characters; break lines of prose at 130"),
        ("docs/decisions/0002-b.md", "[a](gone.md)", "docs/decisions/0002-b.md:1: link to gone.md: there is no such file"),
    ],
)
def test_a_problem_is_named_with_its_line(checkout: Path, page: str, text: str, problem: str) -> None:
    assert problems_of(checkout, page, text) == [problem]


def test_decisions_may_name_files_that_are_gone_and_have_long_lines(checkout: Path) -> None:
    assert problems_of(checkout, "docs/decisions/0002-b.md", "`core/gone.py`" + "x" * 200) == []
    assert problems_of(checkout, "core/README.md", "`one.py` and `kompakt_core/one.py`") == []


def test_anchors_are_those_of_github() -> None:
    text = "# A & B\n\n## A & B\n\n### `KOMPAKT_X`: [why](x.md)\n\n```\n# no heading\n```\n"
    assert anchors(text) == {"a--b", "a--b-1", "kompakt_x-why"}


def test_the_index_has_a_row_for_each_decision_and_links_what_replaced_it(checkout: Path) -> None:
    (checkout / "docs/decisions/0003-two.md").write_text("# 0003: Two\n\nStatus: Superseded by 0001\n")
    assert decision_problems(checkout) == []
    assert decision_index(checkout).splitlines()[-2:] == [
        "| [0001](0001-one-thing.md) | One thing | Accepted |",
        "| [0003](0003-two.md) | Two | Superseded by [0001](0001-one-thing.md) |",
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("0002-b.md", "# 0002: B\n\nWhy.\n", "the third line must be 'Status: Accepted', "),
        ("0002-b.md", "# 0002: B\n\nStatus: Superseded by 0009\n", "the status names 0009, which does not exist"),
        ("0002-b.md", "# 0002: B\n\nStatus: Draft\n", "the third line must be"),
        ("0002-b.md", "# 0004: B\n\nStatus: Accepted\n", "the first line must be '# 0002: What was decided'"),
        ("0001-b.md", "# 0001: B\n\nStatus: Accepted\n", "the number 0001 is given twice"),
    ],
)
def test_a_decision_without_title_status_or_own_number_is_a_problem(checkout: Path, name: str, text: str, problem: str) -> None:
    (checkout / "docs/decisions" / name).write_text(text)
    assert problem in decision_problems(checkout)[-1]


def test_a_new_decision_is_accepted_unless_it_says_otherwise(checkout: Path) -> None:
    (checkout / "docs/decisions/0002-b.md").write_text("# 0002 B\n\nWhy.\n")
    assert decision_pages(checkout)["docs/decisions/0002-b.md"] == "# 0002: B\n\nStatus: Accepted\n\nWhy.\n"
    assert set(decision_pages(checkout)) == {INDEX, "docs/decisions/0002-b.md"}
    assert with_status("# 0001: One thing\n\nWhy.\n") == FIRST
