"""The tests' own office: what a test does while core thinks must not go wrong unseen."""

import pytest

from tests.support.extender.office import Office


async def test_what_goes_wrong_while_core_thinks_fails_the_test_and_not_only_the_plan(office: Office) -> None:
    office.world.add_gang("j", 1, 4)
    office.see()
    office.meanwhile.append(lambda: [][0])
    with pytest.raises(IndexError):
        await office.plan()
