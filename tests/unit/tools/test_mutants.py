"""Mutants: which faults are made, where they land, and that a list still finds its places after code has moved."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.imports import Importers
from tools.mutants import Mutant, choose, located, mutants_of, mutated

SOURCE = '''"""A module."""
LIMIT: int = 3


class Box:
    def full(self, count: int) -> bool:
        if not count or count < LIMIT:
            self.seen = count
            return False
        return f"{count}" == str(count)
'''


def test_every_kind_of_fault_is_made_and_none_in_types_texts_and_f_strings() -> None:
    found = {(one.kind, one.before, one.after) for one in mutants_of("m.py", SOURCE)}
    assert found == {
        ("constant", "3", "4"),
        ("and/or", "not count or count < LIMIT", "not count and count < LIMIT"),
        ("not", "not count", "(count)"),
        ("comparison", "count < LIMIT", "count <= LIMIT"),
        ("dropped", "self.seen = count", "pass"),
        ("return", "return False", "return None"),
        ("constant", "False", "True"),
        ("return", 'return f"{count}" == str(count)', "return None"),
        ("comparison", 'f"{count}" == str(count)', "f'{count}' != str(count)"),
    }


@pytest.mark.parametrize("mutant", mutants_of("m.py", SOURCE), ids=lambda one: f"{one.kind}-{one.line}")
def test_a_mutant_changes_its_own_place_alone(mutant: Mutant) -> None:
    text = mutated(SOURCE, "m.py", mutant)
    assert text is not None
    before, after = SOURCE.splitlines(), text.splitlines()
    assert [number for number, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] == [mutant.line]
    assert mutant.after in after[mutant.line - 1]


def test_of_equal_places_in_one_function_the_right_one_is_changed() -> None:
    source = "def f():\n    return [1, 1, 1]\n"
    second = [one for one in mutants_of("m.py", source) if one.kind == "constant"][1]
    assert mutated(source, "m.py", second) == "def f():\n    return [1, (2), 1]\n"


def checkout(folder: Path) -> Path:
    (folder / "core/kompakt_core/inner").mkdir(parents=True)
    (folder / "core/kompakt_core/inner/box.py").write_text(SOURCE)
    (folder / "core/kompakt_core/inner/__init__.py").write_text("from kompakt_core.inner.box import Box\n")
    (folder / "core/kompakt_core/used.py").write_text("from kompakt_core.inner import box\n")
    for level, name, text in (
        ("unit/core", "test_direct", "from kompakt_core.inner.box import Box"),
        ("unit/core", "test_by_package", "from kompakt_core.inner import Box"),
        ("unit/core", "test_by_helper", "from tests.support.boxes import empty"),
        ("unit/core", "test_far", "import kompakt_core.used"),
        ("support", "boxes", "import kompakt_core.inner.box"),
        ("cluster", "test_slow", "import kompakt_core.inner.box"),
    ):
        (folder / "tests" / level).mkdir(parents=True, exist_ok=True)
        (folder / "tests" / level / f"{name}.py").write_text(text + "\n")
    return folder


def test_a_seed_chooses_the_same_mutants_again_and_another_seed_others(tmp_path: Path) -> None:
    here = checkout(tmp_path)
    assert choose(here, 1, 5) == choose(here, 1, 5)
    assert any(choose(here, 1, 5) != choose(here, seed, 5) for seed in range(2, 9))


def test_a_place_is_found_where_its_file_was_moved_and_missed_where_it_is_gone(tmp_path: Path) -> None:
    here = checkout(tmp_path)
    wanted = mutants_of("core/kompakt_core/inner/box.py", SOURCE)[2]
    moved = here / "core/kompakt_core/elsewhere.py"
    (here / wanted.path).rename(moved)
    moved.write_text("import this_first\n" + SOURCE)
    found = located(here, wanted)
    assert found is not None
    assert found[0] == moved
    assert located(here, replace(wanted, before="count < OTHER")) is None


def test_a_module_is_judged_by_the_tests_that_import_it_or_else_by_those_of_its_nearest_importer(tmp_path: Path) -> None:
    here = checkout(tmp_path)
    tests = Importers(here)
    near = ["tests/unit/core/test_by_helper.py", "tests/unit/core/test_by_package.py", "tests/unit/core/test_direct.py"]
    assert tests.of(here / "core/kompakt_core/inner/box.py") == near
    assert tests.of(here / "core/kompakt_core/used.py") == ["tests/unit/core/test_far.py"]
    (here / "tests/support/boxes.py").unlink()
    for name in near:
        (here / name).unlink()
    assert Importers(here).of(here / "core/kompakt_core/inner/box.py") == ["tests/unit/core/test_far.py"]
