"""Leases that always end: a job gives up its GPUs, and competes for them with all who wait once they are offered again.

As in cluster-sim, the simulator of Dally's authors (read as facts; the words and the code here are ours): whoever waits, the GPUs
are free at the end of the lease, and a job that arrives may take them, but they are offered to those who wait only after the
checkpoint's time; such an offer holds what is still free of them and nothing else; the waiting jobs are asked one by one in
order. In Leased, which the policies go by unless the rules say otherwise, a holder goes on if nobody before it takes its GPUs.
"""

import math

from kompakt_simulator.cluster import NOTHING, GpuSet
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.leased import RETRY_MS, LeaseRule
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.world import Instant, SimulatedWorld


class LeaseLoss:
    """Asks everybody who waits at each offer: nothing is remembered that could be out of date."""

    def __init__(self, rule: LeaseRule, lease_s: float) -> None:
        self._rule = rule
        self._lease = max(1, round(lease_s * 1000))
        self._waiting: dict[int, SimulatedJob] = {}
        self._offers = 0  # still to come
        self._retrying = False

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """End the leases that are due, then make the offers of this moment: what came back apart, or all in one."""
        self._waiting.update((task.number, task) for task in instant.arrived)
        for what in instant.due:
            if isinstance(what, tuple) and what[0].held and what[0].started == what[1]:
                world.stop(what[0], free_at_once=True)
                self._waiting[what[0].number] = what[0]
                self._offer_later(world, what[0], world.checkpoint(what[0]))
        for task in instant.ended:
            self._offer_later(world, task, 0 if world.setting.rules.ends_free else world.checkpoint(task))
        retry = None in instant.due
        self._retrying = self._retrying and not retry
        for back in instant.due:
            if isinstance(back, int):
                self._offers -= 1
                self._offer(world, world.open if self._rule.offers_all else GpuSet(back & world.open))
        if retry or instant.arrived:
            self._offer(world, world.open)
        nothing_left = not world.running and not world.arrivals_left and not self._offers
        if self._waiting and nothing_left and not self._retrying:
            self._retrying = True
            world.wake(world.now + RETRY_MS, None)

    def _offer_later(self, world: SimulatedWorld, task: SimulatedJob, delay: int) -> None:
        self._offers += 1
        world.wake(world.now + delay, task.last)

    def _offer(self, world: SimulatedWorld, gpus: GpuSet) -> None:
        pool = Pool(world.cluster.shape, gpus)
        for task in sorted(self._waiting.values(), key=lambda task: self._turn(world, task)):
            if pool.gpus == NOTHING:
                return
            level = pool.level(task.gpus)
            if level is not None and self._rule.takes(world, pool, task, level):
                taken = self._rule.place(world, pool, task, level)
                pool.take(taken)
                del self._waiting[task.number]
                world.assign(task, taken)
                world.wake(world.now + self._ends_after(world, task), (task, task.started))

    def _ends_after(self, world: SimulatedWorld, task: SimulatedJob) -> int:
        """Milliseconds from its start; with whole chunks until the first that ends so late that another would not fit.

        Whether another fits is asked of a chunk's time divided by the job's GPUs, as it is written there.
        """
        chunk = task.job.chunk_ms * (1 + task.slow)
        if world.setting.rules.leases_end_anywhere or not chunk:
            return self._lease
        last = math.floor(self._lease / chunk - 1 / task.gpus) + 1
        return max(1, math.ceil(max(1, last) * chunk))

    def _turn(self, world: SimulatedWorld, task: SimulatedJob) -> tuple[float, int, int]:
        since = task.since if world.setting.rules.submission_breaks_ties else 0
        return self._rule.key(world, task), since, task.number
