"""What a policy is: an order of the queue and two rules."""

from collections.abc import Callable
from dataclasses import dataclass

from kompakt_simulator.trace import Job, Milliseconds


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue, and how long it still has to run."""

    job: Job
    remaining: Milliseconds


@dataclass(frozen=True, slots=True)
class Policy:
    """1. Jobs are tried in the order of (key, job number). 2. The same inputs give the same key.

    `skips`: a job that cannot be placed is passed over (nothing is reserved for it); otherwise it blocks all behind it.
    `preempts`: at every arrival and completion all running jobs are tried anew together with the waiting ones, at no cost.
    """

    name: str
    key: Callable[[Waiting], int]
    skips: bool = False
    preempts: bool = False
