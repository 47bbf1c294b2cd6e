"""Which files the site has, and what the check of its navigation finds."""

import subprocess
from pathlib import Path

import pytest

from tools.docs.pages import anchors, slug
from tools.docs.site import LIST_AFTER_TEXT, nav_problems, site_files

NAV = "nav:\n- README.md\n- More:\n  - One: docs/one.md\n  - {Two: docs/two.md}\nnot_in_nav: |\n  /docs/decisions/0*.md\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    pages = ("README.md", "docs/one.md", "docs/two.md", "docs/decisions/0001-a.md", "tests/data/README.md")
    texts = dict.fromkeys(pages, "[a](https://example.org)\n") | {"mkdocs.yml": NAV, "job.yaml": "a: 1\n", "other.yaml": ""}
    texts["docs/one.md"] = "[job](../job.yaml#L1), [folder](decisions), [gone](gone.svg)\n\n```\n[no](../other.yaml)\n```\n"
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_site_has_all_pages_and_the_files_that_they_link_to(checkout: Path) -> None:
    assert site_files(checkout) == ["README.md", "docs/decisions/0001-a.md", "docs/one.md", "docs/two.md", "job.yaml"]


def test_a_whole_navigation_has_no_problem(checkout: Path) -> None:
    assert nav_problems(checkout) == []


def test_pages_that_are_left_out_gone_or_named_twice_are_told(checkout: Path) -> None:
    (checkout / "docs/new.md").write_text("# New\n")
    (checkout / "docs/two.md").unlink()
    (checkout / "mkdocs.yml").write_text(NAV.replace("- README.md", "- README.md\n- Again: docs/one.md"))
    assert nav_problems(checkout) == [
        "mkdocs.yml: docs/new.md is not in nav; add a line below the fitting heading",
        "mkdocs.yml: nav names docs/two.md, which is no page",
        "mkdocs.yml: nav names docs/one.md twice",
    ]


def test_anchors_of_the_site_are_those_of_the_check() -> None:
    heading = "What `a_b` & c-d is: 1.0"
    assert anchors(f"# {heading}\n") == {slug(heading)} == {"what-a_b--c-d-is-10"}


@pytest.mark.parametrize(
    ("text", "spaced"),
    [
        ("Why:\n- one\n- two\n", "Why:\n\n- one\n- two\n"),
        ("Why:\n1. one\n2. two\n", "Why:\n\n1. one\n2. two\n"),
        ("Why\nin 2.\n2. is not a list\n", "Why\nin 2.\n2. is not a list\n"),
        ("- one\n  goes on\n- two\n", "- one\n  goes on\n- two\n"),
        ("1. one\n2. two\n", "1. one\n2. two\n"),
    ],
)
def test_a_list_begins_where_code_forges_begin_it(text: str, spaced: str) -> None:
    assert LIST_AFTER_TEXT.sub(r"\1\n", text) == spaced
