"""A cluster in which everything happens in any order; what must hold of it whatever happens.

kube-scheduler is played as badly as it may be: it binds any pod to any node at any moment, several at once. The watch lags,
answers of the API server get lost or the writes arrive late, device plugins report when they like, nodes fall silent, vanish
with their pods and come back, leaders change.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.policy.model import Timers
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.node_state import ClaimSource
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import gang_pod, pod, worker
from tests.support.extender.world import World

NODES = ("n0", "n1")
MACHINES = {"n0": "dgx1-v100", "n1": "a100-pcie-8-bridge-pairs"}
HASTY = ClusterPolicy("fixed", Timers(60, 60, 60), overtaken_at_most=1)  # a minute, and soon GPUs are reserved
OUTCOMES = st.lists(st.sampled_from(["ok", "ok", "ok", "lost", "unheard", "late"]), max_size=4)
PICK = st.integers(0, 1 << 16)


class RandomCluster(RuleBasedStateMachine):
    """Everything that can happen to pods, GPUs and deciders."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.count = 0

    @initialize()
    def begin(self) -> None:
        for name, machine in MACHINES.items():
            self.world.add_node(name, machine)
        self.leader = self.run(self.new_leader())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def new_leader(self) -> Leader:
        leader = Leader(self.world, HASTY)
        leader.take_over()
        return leader

    @rule(gpus=st.integers(1, 4))
    def user_creates_a_plain_pod(self, gpus: int) -> None:
        self.count += 1
        self.world.add_pod(pod(f"p{self.count}", gpus))

    @rule(workers=st.integers(1, 3), gpus=st.integers(1, 4), mode=st.sampled_from(["Default", "NoWait", "NeverRelax"]))
    def user_creates_a_job(self, workers: int, gpus: int, mode: str) -> None:
        self.count += 1
        self.world.add_gang(f"j{self.count}", workers, gpus, consolidation={"mode": mode}, namespace=f"team-{self.count % 2}")

    @rule(workers=st.integers(1, 3), gpus=st.integers(1, 4))
    def user_creates_a_job_whose_pods_wait(self, workers: int, gpus: int) -> None:
        self.count += 1
        self.world.add_expected_gang(f"j{self.count}", workers, gpus, namespace=f"team-{self.count % 2}")

    @rule(size=st.integers(1, 3), gpus=st.integers(1, 4), count=st.integers(1, 4))
    def controller_of_others_makes_pods(self, size: int, gpus: int, count: int) -> None:
        """As many as their gang has, or fewer, or more."""
        self.count += 1
        for index in range(count):
            self.world.add_pod(gang_pod(f"g{self.count}", index, size, gpus))

    @precondition(lambda self: self.gang_pods())
    @rule(pick=PICK, whole=st.booleans(), again=st.booleans())
    def controller_of_others_deletes_pods(self, pick: int, whole: bool, again: bool) -> None:
        """One of them or all of a gang, and makes them anew, or not."""
        names = self.gang_pods()
        first = names[pick % len(names)]
        gang = self.world.pods[first]["metadata"]["labels"][c.LABEL_GANG]
        for name in [one for one in names if one.startswith(f"{gang}-")] if whole else [first]:
            old = self.world.pods[name]
            self.world.delete_pod(name)
            if again:
                size = int(old["metadata"]["annotations"][c.ANN_GANG_SIZE])
                gpus = int(old["spec"]["containers"][0]["resources"]["requests"][c.RESOURCE])
                made = gang_pod(gang, int(name.split("-")[1]), size, gpus)
                made["metadata"]["uid"] = f"{old['metadata']['uid']}-again"
                self.world.add_pod(made)

    def gang_pods(self) -> list[str]:
        return sorted(name for name, one in self.world.pods.items() if c.LABEL_GANG in one["metadata"].get("labels", {}))

    @precondition(lambda self: self.world.gangs)
    @rule(pick=PICK)
    def administrator_deletes_the_object_of_a_gang(self, pick: int) -> None:
        key = sorted(self.world.gangs)[pick % len(self.world.gangs)]
        del self.world.gangs[key]
        self.world.news.append(("gangs", key, None))

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK, count=st.integers(1, 3), other=st.booleans())
    def operator_creates_pods(self, pick: int, count: int, other: bool) -> None:
        """Where there are places or none, all or some, as they were expected or otherwise."""
        name = sorted(self.world.jobs)[pick % len(self.world.jobs)]
        self.world.create_pods(name, count, **({"priority": 1} if other else {}))

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK)
    def operator_cannot_create_pods(self, pick: int) -> None:
        made = self.world.jobs[sorted(self.world.jobs)[pick % len(self.world.jobs)]]
        if made["status"].pop("expectedPods", None) is not None:
            self.world.put("jobs", made["metadata"]["name"], made)

    @rule(count=st.integers(1, 12))
    def watch_delivers(self, count: int) -> None:
        self.leader.see(count)

    @rule(outcomes=OUTCOMES)
    def planner_plans(self, outcomes: list[str]) -> None:
        self.world.outcomes.extend(outcomes)
        self.run(self.some_time(self.cycle()))
        self.world.outcomes.clear()

    @rule()
    def gangs_that_rest_would_be_told_the_same(self) -> None:
        """They are asked again only when the answer could be another one."""
        self.run(self.leader.settle())
        told = self.told()
        self.leader.ask_all_again()
        self.run(self.leader.settle())
        assert self.told() == told

    def told(self) -> dict[str, tuple[Any, ...]]:
        """What stands on the jobs; the sentence may be older than GPUs that are kept for others since."""
        found = ((name, self.leader.scheduling(name)) for name in (*self.world.jobs, *self.world.gangs))
        return {name: (one.get("state"), one.get("reason")) for name, one in found}

    @rule(picks=st.lists(st.tuples(PICK, st.sampled_from(NODES)), min_size=1, max_size=4), outcomes=OUTCOMES, plan=st.booleans())
    def scheduler_binds(self, picks: list[tuple[int, str]], outcomes: list[str], plan: bool) -> None:
        names = sorted(name for name, one in self.world.pods.items() if not one["spec"].get("schedulingGates"))
        if not names:
            return
        self.world.outcomes.extend(outcomes)
        calls: list[Coroutine[Any, Any, Any]] = [self.leader.bind(names[pick % len(names)], node) for pick, node in picks]
        if plan:
            calls.insert(len(calls) // 2, self.leader.planner.run_cycle())
        self.run(self.some_time(*calls))
        self.world.outcomes.clear()

    async def cycle(self) -> None:
        self.leader.gang_objects.begin()
        await self.leader.planner.run_cycle()

    async def some_time(self, *calls: Coroutine[Any, Any, Any]) -> None:
        """The calls to their end; what they started in the background gets some turns, not all it wants."""
        await asyncio.gather(*calls)
        for _ in range(10):
            await asyncio.sleep(0)

    @precondition(lambda self: self.world.late)
    @rule()
    def late_writes_arrive(self) -> None:
        self.world.arrive_late()

    @precondition(lambda self: self.world.pods)
    @rule(pick=PICK, how=st.sampled_from(["finish", "delete"]))
    def pod_ends(self, pick: int, how: str) -> None:
        name = sorted(self.world.pods)[pick % len(self.world.pods)]
        if how == "delete":
            self.world.delete_pod(name)
        else:
            self.world.finish_pod(name)

    @rule(node=st.sampled_from(NODES))
    def plugin_reports(self, node: str) -> None:
        if node in self.world.topologies:
            self.world.report(node)

    @rule(node=st.sampled_from(NODES))
    def node_falls_silent_or_is_heard_again(self, node: str) -> None:
        if node in self.world.nodes:
            self.world.turn_ready(node)

    @rule(node=st.sampled_from(NODES))
    def node_vanishes_or_comes_back(self, node: str) -> None:
        if node in self.world.nodes:
            self.world.remove_node(node)
        else:
            self.world.add_node(node, MACHINES[node])

    @rule(seconds=st.sampled_from([1, 60, 121, 700]))
    def time_passes(self, seconds: int) -> None:
        self.leader.wait(seconds)

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK, pods_first=st.booleans())
    def operator_makes_the_next_attempt(self, pick: int, pods_first: bool) -> None:
        job = self.world.jobs[sorted(self.world.jobs)[pick % len(self.world.jobs)]]
        name, attempt = job["metadata"]["name"], job["status"]["attempt"] + 1
        for one in [key for key in self.world.pods if key.startswith(f"{name}-worker-")]:
            self.world.delete_pod(one)
        job["status"]["attempt"] = attempt
        role = job["spec"]["roles"][0]
        if not pods_first:
            self.world.expect(job, worker(name, 0, role["gpusPerReplica"], attempt))
            return
        self.world.put("jobs", name, job)
        for index in range(role["replicas"]):
            made = worker(name, index, role["gpusPerReplica"], attempt)
            made["metadata"]["uid"] += f"-{attempt}"
            self.world.add_pod(made)

    @rule(arrived=st.booleans())
    def another_leader_takes_over(self, arrived: bool) -> None:
        """The Lease outlives every write of the old leader: each has arrived by then, or never will."""
        now = self.leader.now
        self.close()
        if arrived:
            self.world.arrive_late()
        self.world.late.clear()
        self.leader = self.run(self.new_leader())
        self.leader.now = now

    @invariant()
    def no_gpu_is_held_by_two_pods(self) -> None:
        for node in NODES:
            held = [uuid for one in self.world.holders(node) for uuid in one["metadata"]["annotations"][c.ANN_GPUS].split(",")]
            assert len(held) == len(set(held)), f"{node}: {sorted(held)}"

    @invariant()
    def no_gpu_is_planned_for_two_pods(self) -> None:
        """As long as a plan is kept; kube-scheduler may bind whatever it likes beside it."""
        if hasattr(self, "leader"):
            for node in NODES:
                plans = self.leader.ledger.claims_on(NodeName(node), ClaimSource.PLAN)
                planned = [uuid for claim in plans for uuid in claim.gpus]
                assert len(planned) == len(set(planned)), f"{node}: {sorted(planned)}"

    @invariant()
    def every_bound_pod_has_exactly_its_gpus_of_its_node(self) -> None:
        for node in NODES:
            for one in self.world.holders(node):
                written = one["metadata"]["annotations"][c.ANN_GPUS].split(",")
                asked = int(one["spec"]["containers"][0]["resources"]["requests"][c.RESOURCE])
                assert len(written) == asked
                assert all(uuid.startswith(f"GPU-{node}-") for uuid in written)

    def close(self) -> None:
        self.leader.planner.stop()
        self.leader.gang_objects.stop()
        self.leader.binder.stop()
        self.run(asyncio.sleep(0))
        self.run(asyncio.sleep(0))

    def teardown(self) -> None:
        if hasattr(self, "leader"):
            self.close()
        self.loop.close()
