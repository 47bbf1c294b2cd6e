"""Too long paragraphs are broken; what is no prose, and what is short enough, stays as it is."""

import pytest

from tools.docs.wrap import WIDTH, wrapped

LONG = " ".join(["word"] * 40)


@pytest.mark.parametrize(
    "page",
    [
        "short\nlines\nstay\n",
        f"| {LONG} |\n",
        f"> {LONG}\n",
        f"<<<<<<< HEAD\none\n=======\n{LONG[:100]}\n>>>>>>> main\n",
        f"```\n{LONG}\n```\n",
        f"    {LONG}\n",
        f"## {LONG}\n",
        f"`{LONG}`\n",
        "no newline at its end",
    ],
)
def test_what_is_no_long_prose_stays(page: str) -> None:
    assert wrapped(page) == page


def test_a_long_paragraph_is_broken_and_its_neighbours_stay() -> None:
    page = wrapped(f"# Title\n\nshort\n\n{LONG}\nend\n\n```\n{LONG}\n```\n")
    lines = page.split("\n")
    assert lines[:4] == ["# Title", "", "short", ""]
    assert page.split() == f"# Title short {LONG} end ``` {LONG} ```".split()
    assert max(len(line) for line in lines[:7]) <= WIDTH


def test_an_item_keeps_its_mark_and_indent_and_the_next_one_its_own_line() -> None:
    lines = wrapped(f"- {LONG}\n  more\n- next\n").split("\n")
    assert [line[:6] for line in lines] == ["- word", "  word", "- next", ""]
    assert lines[1].endswith("word more")


def test_code_in_backticks_is_not_broken() -> None:
    code = "`make demo KOMPAKT_CLUSTER=kubeconfig`"
    page = wrapped(f"{'x ' * 55}{code} {LONG}\n")
    assert code in page
    assert max(map(len, page.split("\n"))) <= WIDTH


def test_nothing_changes_the_second_time() -> None:
    once = wrapped(f"1. {LONG} {LONG}\n\n{LONG}\n")
    assert wrapped(once) == once
