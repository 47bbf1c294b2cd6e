"""Pods get ranks, and nodes, along the racks of the cluster: what the planner writes on them."""

from kompakt_core import contract as c
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import gang_pod
from tests.support.extender.world import World


def in_turn(racks: str) -> Leader:
    """A leader over empty DGX-1 nodes, named n0, n1, ... whatever their rack."""
    world = World()
    for index, rack in enumerate(racks):
        world.add_node(f"n{index}", rack=rack)
    leader = Leader(world)
    leader.take_over()
    return leader


async def test_pods_follow_the_racks_and_rank_by_their_index() -> None:
    leader = in_turn("abab")
    await leader.place("j", 4, 8)
    notes = [leader.annotations(f"j-worker-{index}-a1") for index in range(4)]
    assert [note[c.ANN_RANK] for note in notes] == ["0", "1", "2", "3"]
    assert [note[c.ANN_PLANNED_NODE] for note in notes] == ["n0", "n2", "n1", "n3"]
    assert [(seat.node, seat.rank) for seat in leader.seats("j")] == [("n0", 0), ("n2", 1), ("n1", 2), ("n3", 3)]


async def test_pods_of_others_get_nodes_rack_by_rack_in_the_order_of_their_own_indices() -> None:
    leader = in_turn("abab")
    for index in range(4):
        leader.world.add_pod(gang_pod("train", index, 4, 8))
    await leader.settle()
    ranks = {int(leader.annotations(name)[c.ANN_RANK]): name for name in leader.world.pods}
    assert [int(ranks[rank].split("-")[1]) for rank in range(4)] == list(range(4))
    assert [leader.annotations(ranks[rank])[c.ANN_PLANNED_NODE] for rank in range(4)] == ["n0", "n2", "n1", "n3"]


async def test_pods_made_anew_keep_to_the_racks_of_their_neighbours_in_rank() -> None:
    leader = in_turn("ababab")
    for index in range(6):
        leader.world.add_pod(gang_pod("train", index, 6, 8))
    await leader.settle()
    for name in sorted(leader.world.pods):
        node = leader.annotations(name)[c.ANN_PLANNED_NODE]
        assert await leader.bind(name, node) == ""
        leader.report(node)
    before = [seat.node for seat in leader.seats("default/train")]
    assert before == ["n0", "n2", "n4", "n1", "n3", "n5"]
    for index in (2, 4):
        leader.world.delete_pod(f"train-{index}-{'xyz'[index % 3]}")
        leader.report(before[index])
    for index in (2, 4):
        made = gang_pod("train", index, 6, 8)
        made["metadata"] |= {"name": f"train-{index}-new", "uid": f"uid-new-{index}"}
        leader.world.add_pod(made)
    await leader.settle()
    leader.wait(1)
    await leader.settle()
    assert [leader.annotations(f"train-{index}-new")[c.ANN_PLANNED_NODE] for index in (2, 4)] == ["n4", "n3"]
    assert [(seat.node, seat.rank) for seat in leader.seats("default/train")] == [(node, i) for i, node in enumerate(before)]


async def test_a_plan_that_was_written_is_read_in_the_order_of_its_ranks_by_the_next_leader() -> None:
    leader = in_turn("ababa")
    await leader.place("j", 10, 4)
    following = Leader(leader.world)
    following.take_over()
    await following.settle()
    assert following.seats("j") == leader.seats("j")
    assert [seat.node for seat in leader.seats("j")] == [node for node in ("n0", "n2", "n4", "n1", "n3") for _ in range(2)]
