"""One node of benchmarks.rank_order: prints a line when it is ready, and answers each line of input by one.

The first line says which node it is and where node 0 serves a store. Every further one is an order of the nodes, in which the
node takes its rank; the answer has the seconds of each all-reduce.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from kompakt_core.placement.collective_cost import Collective, Exchange, exchanges

PATIENCE = timedelta(seconds=60)


def handed(vector: torch.Tensor, source: int, target: int, rank: int, *, add: bool) -> None:
    """The whole vector from one rank to another, which adds it to its own or takes it instead."""
    if rank == source:
        dist.send(vector, target)
    elif rank == target:
        buffer = torch.empty_like(vector) if add else vector
        dist.recv(buffer, source)
        if add:
            vector += buffer


def exchanged(send: torch.Tensor, receive: torch.Tensor, other: int) -> None:
    sending = dist.isend(send, other)
    dist.recv(receive, other)
    sending.wait()


def partner(one: Exchange, rank: int) -> tuple[int, int] | None:
    """The pair that the rank is in."""
    return next((pair for pair in one.pairs if rank in pair), None)


def by_tree(vector: torch.Tensor, rank: int, count: int) -> None:
    """Summed up towards rank 0, and handed back: whole vectors in every round."""
    pairs = [pair for one in exchanges(Collective.TREE, count) if (pair := partner(one, rank))]
    for low, high in pairs:
        handed(vector, high, low, rank, add=True)
    for low, high in reversed(pairs):
        handed(vector, low, high, rank, add=False)


def by_halving_doubling(vector: torch.Tensor, rank: int, count: int) -> None:
    """Each round halves the part that a rank sums up; backwards these parts are put together."""
    pairs = [(one.share, pair) for one in exchanges(Collective.HALVING_DOUBLING, count) if (pair := partner(one, rank))]
    whole = [pair for share, pair in pairs if share == 1]
    for low, high in whole:
        handed(vector, low, high, rank, add=True)
    parts, part = [], vector
    for low, high in (pair for share, pair in pairs if share < 1):
        kept, given = part.chunk(2) if rank == low else reversed(part.chunk(2))
        buffer = torch.empty_like(kept)
        exchanged(given, buffer, high if rank == low else low)
        kept += buffer
        parts.append((kept, given, high if rank == low else low))
        part = kept
    for kept, given, other in reversed(parts):
        exchanged(kept, given, other)
    for low, high in whole:
        handed(vector, high, low, rank, add=False)


def all_reduce(collective: Collective, vector: torch.Tensor, rank: int, count: int) -> None:
    """gloo's own all-reduce is a ring; the others are written here, of its messages."""
    if collective is Collective.RING:
        dist.all_reduce(vector)
    elif collective is Collective.TREE:
        by_tree(vector, rank, count)
    else:
        by_halving_doubling(vector, rank, count)


def seconds(store: dist.Store, rank: int, count: int, asked: dict[str, Any]) -> list[float]:
    """Of `repeats` all-reduces of so many 32-bit numbers; one before is not counted."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=PATIENCE)
    collective, taken = Collective(asked["collective"]), []
    for _ in range(asked["repeats"] + 1):
        vector = torch.full((asked["elements"],), float(rank))
        dist.barrier()
        began = time.perf_counter()
        all_reduce(collective, vector, rank, count)
        taken.append(time.perf_counter() - began)
        assert torch.all(vector == count * (count - 1) / 2)
    dist.barrier()
    dist.destroy_process_group()
    return taken[1:]


def main() -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    me = json.loads(sys.stdin.readline())
    store = dist.TCPStore(me["host"], me["port"], me["count"], is_master=me["node"] == 0, timeout=PATIENCE)
    for number, line in enumerate(sys.stdin):
        asked = json.loads(line)
        rank = asked["order"].index(me["node"])
        print(json.dumps(seconds(dist.PrefixStore(str(number), store), rank, me["count"], asked)), flush=True)


if __name__ == "__main__":
    main()
