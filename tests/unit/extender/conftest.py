"""One office over two nodes, and who talks to it; made within the event loop of the test."""

import pytest

from tests.support.extender.asking import Person, asking
from tests.support.extender.office import Office, on_nodes
from tests.support.extender.scheduler import Scheduler, scheduling


@pytest.fixture
async def office() -> Office:
    return on_nodes(2)


@pytest.fixture
async def person() -> Person:
    return asking()


@pytest.fixture
async def scheduler() -> Scheduler:
    return scheduling()
