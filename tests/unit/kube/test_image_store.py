"""Which containerd roots stay: those from which nodes were started lately, whoever filled another one meanwhile."""

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


def filled(stem: str, hours_ago: float = 0.0) -> Path:
    root = image_store.fill({stem: f"localhost/{stem}"}, [], None, Path("log"))
    for name in image_store._DATABASES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    past = time.time() - hours_ago * 3600
    os.utime(root, (past, past))
    return root


def test_a_root_in_use_outlives_the_filling_of_another_and_one_left_alone_does_not(roots: Path, tmp_path: Path) -> None:
    left, used = filled("left", 3), filled("used", 1.9)
    os.utime(used, (0, 0))
    image_store.clone(used, tmp_path / "node" / "containerd")
    latest = filled("latest")
    assert {path.name for path in roots.iterdir()} == {f"{root.name}{end}" for root in (used, latest) for end in ("", ".json")}
    assert not left.exists()
