"""One leader over two nodes, and its clients; made within the event loop of the test."""

import pytest

from tests.support.extender.explain_client import ExplainClient, explain_client
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.scheduler import Scheduler, scheduling


@pytest.fixture
async def leader() -> Leader:
    return on_nodes(2)


@pytest.fixture
async def client() -> ExplainClient:
    return explain_client()


@pytest.fixture
async def scheduler() -> Scheduler:
    return scheduling()
