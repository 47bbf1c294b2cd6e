"""Torch on one thread: the tests' tensors are small, and on a busy machine threads that wait for each other cost seconds."""

import contextlib

import pytest

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def running():
    """Starts sessions and stops them again."""
    from kompakt_runtime.autograd_state import innermost
    from kompakt_runtime.config import Config
    from kompakt_runtime.session import Session

    started = []

    def start(**settings):
        session = Session(Config(**{"mode": "ErrorBounded", "min_tensor_bytes": 0, **settings}))
        session.start()
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
    assert innermost() is None, "hooks left behind"
