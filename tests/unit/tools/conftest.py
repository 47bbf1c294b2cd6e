"""One release for all tests about releases: building it takes as long as all of them."""

from pathlib import Path

import pytest

from tests.support import released


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, with small images; not to be changed."""
    return released.made(tmp_path_factory.mktemp("release") / "out")
