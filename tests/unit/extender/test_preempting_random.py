"""Priorities, deletions, lost writes, silent nodes, new leaders in any order: preemption keeps its rules and comes to rest.

Operator and kubelet are played here, whole gangs at a time; the planner is the real one.
KOMPAKT_RANDOM_STEPS=100000 searches for so many steps.
"""

import asyncio
import math
import os
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.ids import NodeName
from kompakt_extender.planner.released_gangs import EXCLUDE_SECONDS
from tests.support.extender import preempting
from tests.support.extender.leader import NO_WAIT, Leader
from tests.support.extender.made_objects import worker
from tests.support.extender.world import World

NODES = ("n0", "n1")
MINIMUM = 30
STEPS_OF_ONE = 40
STEPS = int(os.environ.get("KOMPAKT_RANDOM_STEPS", "400"))  # as many as take a second or two
PICK = st.integers(0, 1 << 16)
OUTCOMES = st.lists(st.sampled_from(["ok", "ok", "lost", "unheard"]), max_size=4)


class Cluster(RuleBasedStateMachine):
    """Gangs of four priorities on two machines, more than fit."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.count = 0
        self.ended_for: dict[tuple[str, int], str] = {}  # (job, attempt) -> for whom the operator ended it

    @initialize()
    def begin(self) -> None:
        for name in NODES:
            self.world.add_node(name)
        self.leader = self.run(self.new_leader())
        for priority in (0, 1):
            self.user_creates_a_job(2, 4, priority, False)
            self.planner_plans([])
            self.scheduler_binds_what_is_released_and_workers_run()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def new_leader(self) -> Leader:
        leader = Leader(self.world, NO_WAIT)
        leader.take_over()
        return leader

    # What users do

    @rule(workers=st.integers(1, 2), gpus=st.sampled_from([8, 4, 2]), priority=st.integers(0, 3), polite=st.booleans())
    def user_creates_a_job(self, workers: int, gpus: int, priority: int, polite: bool) -> None:
        self.count += 1
        more = {"preemptionPolicy": "Never"} if polite and priority % 2 else {}
        self.world.add_gang(f"j{self.count}", workers, gpus, priority=priority, **more)
        self.world.jobs[f"j{self.count}"]["spec"]["runPolicy"] = {"preemption": {"minRuntimeSeconds": MINIMUM}}
        self.world.put("jobs", f"j{self.count}", self.world.jobs[f"j{self.count}"])

    @precondition(lambda self: len(self.world.jobs) > 4)
    @rule(pick=PICK)
    def user_deletes_a_job(self, pick: int) -> None:
        name = sorted(self.world.jobs)[pick % len(self.world.jobs)]
        gone = self.world.jobs.pop(name)
        self.world.news.append(("jobs", gone["metadata"]["uid"], None))
        self.delete_pods(name)

    # What planner, operator, kube-scheduler and kubelet do

    @rule(outcomes=OUTCOMES)
    def planner_plans(self, outcomes: list[str]) -> None:
        self.world.outcomes.extend(outcomes)
        self.leader.see()
        waited = {name: priority for name in self.world.jobs if (priority := self.waits(name)) is not None}
        self.run(self.leader.plan())
        self.world.outcomes.clear()
        self.leader.see()
        self.nobody_is_passed(waited)

    @rule(outcomes=OUTCOMES, node=st.sampled_from(NODES), pick=PICK, how=st.sampled_from(["end", "act", "turn"]))
    def something_happens_while_the_planner_plans(self, outcomes: list[str], node: str, pick: int, how: str) -> None:
        def happen() -> None:
            if how == "turn":
                self.world.turn_ready(node)
            elif how == "act":
                self.operator_acts_on_requests()
            elif running := [name for name in sorted(self.world.jobs) if self.runs(name)]:
                gone = running[pick % len(running)]
                self.world.news.append(("jobs", self.world.jobs.pop(gone)["metadata"]["uid"], None))
                self.delete_pods(gone)
            self.leader.see()

        self.leader.meanwhile.append(happen)
        self.planner_plans(outcomes)
        self.leader.meanwhile.clear()

    @rule(start=st.booleans())
    def scheduler_binds_what_is_released_and_workers_run(self, start: bool = True) -> None:
        """Unless they cannot: an image that is not there, say."""
        for name, one in sorted(self.world.pods.items()):
            node = one["metadata"]["annotations"].get(c.ANN_PLANNED_NODE)
            if node in self.world.nodes and not one["spec"]["schedulingGates"] and not one["spec"].get("nodeName"):
                self.leader.see()
                if self.run(self.leader.bind(name, node)) == "":
                    self.world.pods[name]["status"]["phase"] = "Running"
                    self.world.add_pod(self.world.pods[name])
                    self.world.report(node)
        for name in sorted(self.world.jobs):
            if start and not self.runs(name) and self.all_bound(name):
                preempting.condition(self.leader, name, "Running", "True")

    @rule()
    def operator_acts_on_requests(self) -> None:
        for name, job in sorted(self.world.jobs.items()):
            request = self.request(name)
            if request is None or request.attempt != job["status"]["attempt"]:
                continue
            self.ended_for[name, request.attempt] = request.name
            self.delete_pods(name)
            job["status"]["attempt"] += 1
            preempting.condition(self.leader, name, "Running", "False")
            role = job["spec"]["roles"][0]
            for index in range(role["replicas"]):
                made = worker(name, index, role["gpusPerReplica"], job["status"]["attempt"], priority=request.own_priority)
                self.world.add_pod(made)

    @rule(seconds=st.sampled_from([MINIMUM, MINIMUM // 2]), outcomes=OUTCOMES)
    def time_passes(self, seconds: int, outcomes: list[str]) -> None:
        self.leader.wait(seconds)
        self.planner_plans(outcomes)

    @rule(node=st.sampled_from(NODES))
    def node_falls_silent_or_is_heard_again(self, node: str) -> None:
        self.world.turn_ready(node)

    @rule()
    def another_leader_takes_over(self) -> None:
        now = self.leader.now
        self.leader.planner.stop()
        self.leader = self.run(self.new_leader())
        self.leader.now = now

    # Helpers

    def delete_pods(self, name: str) -> None:
        for one in [key for key in self.world.pods if key.startswith(f"{name}-worker-")]:
            self.world.delete_pod(one)
        for node in self.world.nodes:
            self.world.report(node)

    def request(self, name: str) -> Any:
        return preempting.request(self.leader, name)

    def pods(self, name: str) -> list[Any]:
        return [one for key, one in self.world.pods.items() if key.startswith(f"{name}-worker-")]

    def all_bound(self, name: str) -> bool:
        return all(one["spec"].get("nodeName") for one in self.pods(name))

    def runs(self, name: str) -> str:
        found = [one for one in self.world.jobs[name]["status"].get("conditions", ()) if one["type"] == "Running"]
        return found[0]["lastTransitionTime"] if found and found[0]["status"] == "True" else ""

    def waits(self, name: str) -> int | None:
        """The priority of a gang that may be placed on any node; None where it may not, or waits no longer."""
        job, pods = self.world.jobs.get(name), self.pods(name)
        if job is None or not pods or any(not one["spec"]["schedulingGates"] for one in pods):
            return None
        placed = job["status"].get("scheduling", {})
        free = placed.get("state") != "Released" or placed.get("attempt") != job["status"]["attempt"]
        return pods[0]["spec"]["priority"] if free and not placed.get("excludedNodes") else None

    def nobody_is_passed(self, waited: dict[str, int]) -> None:
        """Who was placed in this round sits nowhere where a gang of higher priority would fit that has waited and still does.

        One whose own plan came too late is none: it keeps its places.
        """
        unsettled = self.leader.planner._writes.unsettled
        left = {
            name: priority for name, priority in waited.items() if self.waits(name) is not None and not unsettled(f"uid-{name}")
        }
        for name in waited.keys() - left.keys():
            placed = self.world.jobs.get(name, {}).get("status", {}).get("scheduling", {})
            seats = placed.get("plan", {}).get("pods", ()) if placed.get("state") == "Released" else ()
            for other, priority in left.items():
                if priority > waited[name]:
                    assert not self.fits(other, [(seat["node"], len(seat["gpus"])) for seat in seats]), f"{name} passed {other}"

    def fits(self, name: str, seats: list[tuple[str, int]]) -> bool:
        """Whether the pods of a gang, all alike, would fit on so many GPUs of these nodes."""
        pods = self.pods(name)
        each = int(pods[0]["spec"]["containers"][0]["resources"]["requests"][c.RESOURCE])
        return sum(sum(gpus for at, gpus in seats if at == node) // each for node in NODES) >= len(pods)

    # What must hold

    @invariant()
    def no_gpu_is_held_twice(self) -> None:
        held = [
            uuid
            for name in NODES
            for one in self.world.holders(name)
            for uuid in one["metadata"]["annotations"].get(c.ANN_GPUS, "").split(",")
            if uuid
        ]
        assert len(held) == len(set(held))

    @invariant()
    def a_request_keeps_the_rules(self) -> None:
        for name, job in self.world.jobs.items():
            request = self.request(name)
            if request is None or request.attempt != job["status"]["attempt"]:
                continue
            assert request.priority > request.own_priority
            assert request.own_priority == max(one["spec"]["priority"] for one in self.pods(name))
            assert self.all_bound(name)
            released, ran = timestamps.decode(job["status"]["scheduling"]["plan"]["releasedAt"]), self.runs(name)
            asked = timestamps.decode(request.requested_at)
            began = (
                timestamps.decode(ran) if ran and timestamps.decode(ran) < asked else released
            )  # it may come up once it was chosen, in the same second too
            assert (asked - began).total_seconds() >= MINIMUM
            if request.name in self.world.jobs:
                assert all(one["spec"].get("preemptionPolicy") != "Never" for one in self.pods(request.name))

    @invariant()
    def what_is_reserved_for_one_is_neither_reserved_for_nor_given_to_another(self) -> None:
        seen: set[str] = set()
        for uid, mine in self.leader.ledger.reserved.exact.items():
            for node, uuids in mine.gpus.items():
                assert seen.isdisjoint(uuids)
                seen |= set(uuids)
                for claim in self.leader.ledger.claims_on(NodeName(node)):
                    assert claim.pod.job_uid == uid or set(claim.gpus).isdisjoint(uuids)

    def teardown(self) -> None:
        """When nothing happens any more all of it comes to rest: nobody is asked, nothing is reserved, and nobody moves again."""
        if self.world.nodes:
            for node in NODES:
                if self.world.nodes[node]["status"]["conditions"][0]["status"] != "True":
                    self.world.turn_ready(node)
            self.all_do_their_part()
            self.leader.wait(EXCLUDE_SECONDS)  # then nodes that were left out for a gang count again, and others may end on them
            self.all_do_their_part()
            attempts = {name: job["status"]["attempt"] for name, job in self.world.jobs.items()}
            for _ in range(3):
                self.leader.wait(MINIMUM)
                self.planner_plans([])
                self.operator_acts_on_requests()
            assert attempts == {name: job["status"]["attempt"] for name, job in self.world.jobs.items()}
            assert not self.leader.ledger.reserved.exact
            assert all(self.request(name) is None for name in self.world.jobs)
            self.nobody_waits_in_vain()
        self.loop.close()

    def all_do_their_part(self) -> None:
        """So long that each gang could end once for every other."""
        for _ in range(4 + 2 * len(self.world.jobs)):
            self.leader.wait(MINIMUM)
            for _ in range(3):
                self.planner_plans([])
                self.operator_acts_on_requests()
                self.scheduler_binds_what_is_released_and_workers_run()

    def nobody_waits_in_vain(self) -> None:
        """No gang of higher priority waits while one machine is full of running gangs of lower priority that it would fit on."""
        for name in self.world.jobs:
            pods = self.pods(name)
            need = sum(int(one["spec"]["containers"][0]["resources"]["requests"][c.RESOURCE]) for one in pods)
            # A gang bound in part when its plan is withdrawn gets its next attempt by the operator: not played here.
            if any(one["spec"].get("nodeName") for one in pods) or pods[0]["spec"].get("preemptionPolicy") == "Never" or need > 8:
                continue
            for node in NODES:
                highest = max((one["spec"]["priority"] for one in self.world.holders(node)), default=-1)
                assert highest >= pods[0]["spec"]["priority"], f"{name} waits for {node}"


TestPreemption = Cluster.TestCase
# Some runs end before their last step: more of them make up for it.
TestPreemption.settings = settings(
    max_examples=math.ceil(1.2 * STEPS / STEPS_OF_ONE), stateful_step_count=STEPS_OF_ONE, deadline=None
)
