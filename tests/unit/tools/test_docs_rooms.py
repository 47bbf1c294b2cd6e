"""The READMEs of rooms say what the code says, and the check of that sees what is stale."""

import subprocess
from pathlib import Path

import pytest

from tools.docs.__main__ import stale
from tools.docs.drawing import drawing, drawings
from tools.docs.layers import layered
from tools.docs.modules import Module, first_sentence, read_module
from tools.docs.repository import modules_of
from tools.docs.rooms import replaced, room_pages, room_problems, section


def module(name: str, *imports: str, package: bool = False) -> Module:
    path = name.replace(".", "/") + ("/__init__.py" if package else ".py")
    return Module(f"room/{path}", name, "A thing.", frozenset(imports))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the rooms `core` and nothing in all others."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    folder = tmp_path / "core" / "kompakt_core"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Decides."""\n')
    (folder / "one.py").write_text('"""One thing. And more\nof it."""\nfrom kompakt_core import two\n')
    (folder / "two.py").write_text('"""Two things."""\n')
    return tmp_path


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One. Two.", "One."),
        ("Over\ntwo lines. More.", "Over two lines."),
        ("A title\n\nThen text.", "A title"),
        ("Names, e.g. these ones, are kept. Others are not.", "Names, e.g. these ones, are kept."),
        ("Reads `a.yaml` at once.", "Reads `a.yaml` at once."),
        ("", ""),
    ],
)
def test_a_row_holds_the_first_sentence(docstring: str, sentence: str) -> None:
    assert first_sentence(docstring) == sentence


def test_imports_are_read_from_functions_too_and_nothing_is_executed(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "late.py").write_text("raise SystemExit\ndef later():\n    from kompakt_core.job import spec\n")
    assert read_module(tmp_path, "core/late.py").imports == {"kompakt_core.job", "kompakt_core.job.spec"}


def test_a_layer_imports_only_from_below_and_a_circle_is_one_node() -> None:
    layers = layered({"top": {"left", "base"}, "left": {"right"}, "right": {"left", "base"}, "base": set()})
    assert [[node.title for node in layer] for layer in layers] == [["top"], ["left = right"], ["base"]]
    assert layers[0][0].below == ("left = right",), "base follows from the circle"


def test_a_drawing_names_what_each_module_imports() -> None:
    drawn = drawing("p", [module("p.one", "p.two", "kompakt_core.job"), module("p.two")])
    assert drawn.splitlines() == ["p", "  1 │ one ──► two", "  0 │ two", "    └ from other packages: kompakt_core"]


def test_a_drawing_of_many_modules_has_a_line_per_layer() -> None:
    modules = [module(f"p.m{number:02}", *([f"p.m{number - 1:02}"] if number % 2 else [])) for number in range(20)]
    lines = drawing("p", modules).splitlines()
    assert [line[:8] for line in lines[1:]] == ["  1 │ m0", "  0 │ m0"]
    assert "m01   m03" in lines[1]


def test_a_subpackage_is_one_node_of_the_room_and_has_a_drawing_of_its_own() -> None:
    modules = [
        module("p", package=True),
        module("p.sub", package=True),
        module("p.sub.a", "p.main"),
        module("p.sub.b"),
        module("p.main"),
    ]
    drawn = drawings(modules)
    assert [text.splitlines()[0] for text in drawn] == ["p", "p.sub"]
    assert "sub/ ──► main" in drawn[0]
    assert "from this package: main" in drawn[1]


def test_a_table_has_a_row_for_each_module_as_a_link_inside_the_room() -> None:
    rows = [line for line in section("room", [module("p.one")]).splitlines() if line.startswith("| [")]
    assert rows == ["| [p/one.py](p/one.py) | A thing. |"]


def test_people_s_sentences_around_the_made_part_stay() -> None:
    page = replaced("# Room\n\nStart at main.\n", "made")
    assert page.startswith("# Room\n\nStart at main.\n")
    assert replaced(page + "After.\n", "anew") == page.replace("made", "anew") + "After.\n"


def test_a_module_without_docstring_and_a_stale_table_are_problems(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.docs.rooms.ROOMS", ("core",))
    pages = room_pages(checkout)
    assert stale(checkout, pages) == ["core/README.md: stale; `make docs` writes it anew"]
    (checkout / "core" / "README.md").write_text(pages["core/README.md"])
    assert stale(checkout, room_pages(checkout)) == []
    assert room_problems(checkout) == []
    (checkout / "core" / "kompakt_core" / "two.py").write_text("x = 1\n")
    assert room_problems(checkout) == ["core/kompakt_core/two.py: no docstring; say in one sentence what it holds"]
    assert stale(checkout, room_pages(checkout)) != []


def test_generated_modules_have_no_row(checkout: Path) -> None:
    folder = checkout / "device-plugin" / "kompakt_device_plugin" / "proto"
    folder.mkdir(parents=True)
    (folder / "made.py").write_text("")
    (folder.parent / "main.py").write_text("")
    assert modules_of(checkout, "device-plugin") == ["device-plugin/kompakt_device_plugin/main.py"]
