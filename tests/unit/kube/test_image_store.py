"""Which containerd roots stay: those from which nodes were started lately, whoever filled another one meanwhile; which serve."""

import os
import time
from pathlib import Path

import pytest

from tools.kube import image_store


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is imported; roots are folders with the two databases."""
    monkeypatch.setattr(image_store, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(image_store, "logged", lambda command, log: None)
    return tmp_path / "containerd"


def filled(*stems: str, hours_ago: float = 0.0) -> Path:
    root = image_store.fill({stem: f"localhost/{stem}" for stem in stems}, [], None, Path("log"))
    for name in image_store._DATABASES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    past = time.time() - hours_ago * 3600
    os.utime(root, (past, past))
    return root


def test_a_root_in_use_outlives_the_filling_of_another_and_one_left_alone_does_not(roots: Path, tmp_path: Path) -> None:
    left, used = filled("left", hours_ago=3), filled("used", hours_ago=1.9)
    os.utime(used, (0, 0))
    image_store.clone(used, tmp_path / "node" / "containerd")
    latest = filled("latest")
    assert {path.name for path in roots.iterdir()} == {f"{root.name}{end}" for root in (used, latest) for end in ("", ".json")}
    assert not left.exists()


def test_a_root_with_more_images_serves_who_wants_fewer_and_the_newest_of_several(roots: Path) -> None:
    filled("a", "b", "c", hours_ago=1.5)
    newer, narrow = filled("a", "b", "d", hours_ago=1), filled("a", hours_ago=0.5)
    assert image_store.holding(["a", "b"]) == newer
    assert image_store.holding(["a"]) == narrow
    assert image_store.holding(["a", "e"]) == image_store.root_of(["a", "e"])
