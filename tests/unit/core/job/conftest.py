"""Small jobs whose actions are performed on plain values."""

from typing import Any

import pytest

from tests.support.core.job_world import World, make_job


@pytest.fixture
def world() -> World:
    """A job of two workers, just applied and looked at until everything rests: gated pods wait for their places."""
    return World(make_job()).settle()


@pytest.fixture
def job_of() -> Any:
    return make_job


@pytest.fixture
def world_of() -> Any:
    """A world for a job with these fields."""
    return lambda **spec: World(make_job(**spec)).settle()
