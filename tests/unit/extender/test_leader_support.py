"""The tests' own leader: what a test does while core plans must not go wrong unseen."""

import pytest

from tests.support.extender.leader import Leader


async def test_what_goes_wrong_while_core_plans_fails_the_test_and_not_only_the_plan(leader: Leader) -> None:
    leader.world.add_gang("j", 1, 4)
    leader.see()
    leader.meanwhile.append(lambda: [][0])
    with pytest.raises(IndexError):
        await leader.plan()
