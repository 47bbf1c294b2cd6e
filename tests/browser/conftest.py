"""One browser for all tests of this level; the reason where there can be none."""

from collections.abc import Iterator

import pytest

from tools import browser as browsers
from tools.browser import Browser


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A fresh browser, which reaches 127.0.0.1 and nothing else."""
    if (reason := browsers.obstacle()) is not None:
        pytest.skip(reason)
    with Browser() as opened:
        yield opened
