"""The same work in two processes that train together over gloo."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist


def in_two_ranks(work: Callable[[int], Any], folder: Path) -> list[Any]:
    """What each rank's work gives, by rank. Children of a fork need not load torch again, which takes them seconds."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child(rank: int) -> None:
        dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
        answers.put((rank, work(rank)))
        dist.destroy_process_group()

    children = [context.Process(target=child, args=(rank,)) for rank in range(2)]
    for one in children:
        one.start()
    try:
        found = dict(answers.get(timeout=120) for _ in children)
    finally:
        for one in children:
            one.join(10)
            one.kill()
    return [found[0], found[1]]
