"""What the boards remember from call to call is what they would find out anew."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import GpuRequest, PlacementPolicy
from kompakt_extender.decide import Request
from kompakt_extender.scores import Board
from tests.support.extender.leader import on_nodes
from tests.support.extender.scheduler import occupy

NODES = ["n0", "n1", "n2", "n3"]
WISHES = [GpuRequest(Pattern.RING, sensitive=True), GpuRequest(Pattern.CLIQUE, PlacementPolicy.PACKED), GpuRequest()]


def scores(board: Board, names: list[str]) -> list[Any]:
    return sorted((one["Host"], one["Score"]) for one in json.loads(board.answer(names)))


# Each step: a node, what happens to it, and which nodes are asked about then.
_STEPS = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(-1, 7), st.sets(st.sampled_from([*NODES, "nobody"]), min_size=1)), max_size=8
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(WISHES), st.integers(1, 8), _STEPS)
async def test_a_board_kept_over_changes_says_what_a_fresh_one_says(gpu_request: GpuRequest, gpus: int, steps: Any) -> None:
    leader = on_nodes(len(NODES))
    kept = Board(leader.ledger, Request(gpus, gpu_request))
    for number, (node, gpu, asked) in enumerate(steps):
        names = sorted(asked)
        if gpu >= 0:
            occupy(leader, f"p{number}", node, gpu)
        else:
            leader.handlers.topologies().remove(node)
        fresh = Board(leader.ledger, Request(gpus, gpu_request))
        assert kept.verdicts(names) == fresh.verdicts(names)
        assert scores(kept, names) == scores(fresh, names)
        fits, _ = fresh.verdicts(NODES)
        assert scores(kept, fits) == scores(fresh, fits)
        assert sorted(kept.by_rank()) == sorted(fresh.by_rank()) == sorted(fits)
