"""The same work in two processes that train together over gloo."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch.distributed as dist


def in_two_ranks(work: Callable[[int], Any], folder: Path) -> list[Any]:
    """What each rank's work, a function of a module, gives by rank.

    Fresh processes: where a test before had autograd start threads of its own, children of a fork cannot train.
    """
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[int, Any]] = context.Queue()
    children = [context.Process(target=_child, args=(work, rank, folder, answers)) for rank in range(2)]
    for one in children:
        one.start()
    try:
        found = dict(answers.get(timeout=250) for _ in children)
    finally:
        for one in children:
            one.join(10)
            one.kill()
    return [found[0], found[1]]


def collectives() -> int:
    """How many this process has entered with all others, whoever asked for them."""
    return int(dist.group.WORLD._get_sequence_number_for_group())


def _child(work: Callable[[int], Any], rank: int, folder: Path, answers: "Queue[tuple[int, Any]]") -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    answers.put((rank, work(rank)))
    dist.destroy_process_group()
