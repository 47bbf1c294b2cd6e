"""Files leave the page cache and come back, as far as this kernel tells."""

from pathlib import Path

import pytest

from kompakt_runtime.config import ConfigError
from kompakt_runtime.launch import pagecache


def test_files_are_dropped_and_read_again(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * 100_000)
    (tmp_path / "empty").touch()
    files = pagecache.files_of([str(tmp_path)])
    pagecache.load(files)
    there = pagecache.cached(files)
    if there is None:
        pytest.skip("this file system does not tell what is cached")
    assert there == 1.0
    if pagecache.drop(files) != 0.0:
        pytest.skip("this file system keeps files in memory (a tmpfs, say)")
    pagecache.load(files[1:2])
    assert pagecache.cached(files) == pytest.approx(1 / 3)


def test_paths_without_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not there; give a file or folder"):
        pagecache.files_of([str(tmp_path / "nowhere")])
    with pytest.raises(ConfigError, match="no files in it"):
        pagecache.files_of([str(tmp_path)])


def test_a_single_file_will_do_and_none_counts_twice(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    assert pagecache.files_of([str(tmp_path), str(tmp_path / "a")]) == [tmp_path / "a"]
