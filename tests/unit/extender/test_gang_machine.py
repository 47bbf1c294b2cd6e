"""Everything that happens to gangs, in one world: phases only move as they may, and each says what its gang holds.

Beside what the random cluster does, jobs have priorities, are deleted and suspended, others end for them, and what happens may
happen while a gang is being planned. KOMPAKT_RANDOM_STEPS=100000 searches for so many steps.
"""

import math
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from tests.support.extender import preempting
from tests.support.extender.made_objects import worker
from tests.support.extender.phases import disagreements
from tests.support.extender.random_cluster import NODES, OUTCOMES, PICK, RandomCluster

STEPS_OF_ONE = 60
STEPS = int(os.environ.get("KOMPAKT_RANDOM_STEPS", "6000"))  # as many as take a few seconds


class Gangs(RandomCluster):
    """The random cluster, with preemption."""

    @initialize()
    def begin(self) -> None:
        """Both machines are full of gangs that run."""
        super().begin()
        for priority in (0, 1):
            self.user_creates_a_job_of_priority(2, 4, priority)
            self.planner_sees_all_and_plans([])
            self.scheduler_binds_what_is_planned_and_workers_run()
        self.leader.wait(60)

    @rule(workers=st.integers(1, 2), gpus=st.sampled_from([8, 4, 2]), priority=st.integers(0, 3))
    def user_creates_a_job_of_priority(self, workers: int, gpus: int, priority: int) -> None:
        self.count += 1
        name = f"j{self.count}"
        self.world.add_gang(name, workers, gpus, priority=priority, namespace=f"team-{self.count % 2}")
        self.world.jobs[name]["spec"]["runPolicy"] = {"preemption": {"minRuntimeSeconds": 30}}
        self.world.put("jobs", name, self.world.jobs[name])

    @rule(workers=st.integers(1, 2), gpus=st.sampled_from([8, 4, 2]), priority=st.integers(0, 3))
    def user_creates_a_job_of_priority_whose_pods_wait(self, workers: int, gpus: int, priority: int) -> None:
        self.count += 1
        name = f"j{self.count}"
        self.world.add_expected_gang(name, workers, gpus, priority=priority, namespace=f"team-{self.count % 2}")

    @rule()
    def operator_creates_pods_of_all_that_have_places(self) -> None:
        for name, job in sorted(self.world.jobs.items()):
            found = job["status"].get("scheduling", {})
            if found.get("state") == "Reserved" and found.get("plan") and found["attempt"] == job["status"]["attempt"]:
                first = job["status"].get("expectedPods", {}).get("roles", [{"pod": {"spec": {}}}])[0]
                self.world.create_pods(name, priority=first["pod"]["spec"].get("priority", 0))

    @rule(outcomes=OUTCOMES)
    def small_jobs_of_others_pass_a_large_one(self, outcomes: list[str]) -> None:
        """So that GPUs come to be reserved by count."""
        large = f"j{self.count + 1}"
        self.user_creates_a_job_of_priority(2, 8, 0)
        self.planner_sees_all_and_plans([])
        for name in [one for one in self.world.jobs if one != large and self.pods(one)][:1]:
            self.delete_pods(name)
        self.user_creates_a_job_of_priority(1, 2, 0)
        self.planner_sees_all_and_plans([])
        self.planner_plans_some_time_later(outcomes, 60)

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK, pods_first=st.booleans())
    def user_deletes_a_job(self, pick: int, pods_first: bool) -> None:
        name = self.job(pick)
        if pods_first:
            self.delete_pods(name)
        gone = self.world.jobs.pop(name)
        self.world.news.append(("jobs", gone["metadata"]["uid"], None))
        if not pods_first:
            self.delete_pods(name)

    @precondition(lambda self: self.world.jobs)
    @rule(pick=PICK)
    def user_suspends_a_job_or_lets_it_go_on(self, pick: int) -> None:
        job = self.world.jobs[self.job(pick)]
        job["spec"]["suspend"] = not job["spec"].get("suspend", False)
        self.world.put("jobs", job["metadata"]["name"], job)

    @rule(outcomes=OUTCOMES)
    def planner_sees_all_and_plans(self, outcomes: list[str]) -> None:
        self.leader.see()
        self.planner_plans(outcomes)

    @rule(outcomes=OUTCOMES, seconds=st.sampled_from([60, 121]))
    def planner_plans_some_time_later(self, outcomes: list[str], seconds: int) -> None:
        self.leader.wait(seconds)
        self.planner_sees_all_and_plans(outcomes)

    @rule()
    def scheduler_binds_what_is_planned_and_workers_run(self) -> None:
        self.leader.see()
        for name, one in sorted(self.world.pods.items()):
            node = one["metadata"]["annotations"].get(c.ANN_PLANNED_NODE)
            if node in self.world.nodes and not one["spec"].get("schedulingGates") and not one["spec"].get("nodeName"):
                self.run(self.leader.bind(name, node))
                self.leader.see()
        for node in self.world.topologies:
            self.world.report(node)
        for name in sorted(self.world.jobs):
            if self.pods(name) and all(one["spec"].get("nodeName") for one in self.pods(name)):
                preempting.condition(self.leader, name, "Running", "True")

    @rule()
    def operator_acts_on_requests(self) -> None:
        for name, job in sorted(self.world.jobs.items()):
            request, attempt = preempting.request(self.leader, name), job["status"]["attempt"]
            if request is not None and request.attempt == attempt:
                self.delete_pods(name)
                job["status"]["attempt"] = attempt + 1
                preempting.condition(self.leader, name, "Running", "False")
                role = job["spec"]["roles"][0]
                for index in range(role["replicas"]):
                    again = worker(name, index, role["gpusPerReplica"], attempt + 1, priority=request.own_priority)
                    again["metadata"]["namespace"] = job["metadata"]["namespace"]
                    self.world.add_pod(again)

    @rule(outcomes=OUTCOMES, pick=PICK, how=st.sampled_from(["delete", "suspend", "turn", "act", "end"]))
    def something_happens_while_a_gang_is_planned(self, outcomes: list[str], pick: int, how: str) -> None:
        def happen() -> None:
            if how == "turn":
                self.node_falls_silent_or_is_heard_again(NODES[pick % len(NODES)])
            elif how == "act":
                self.operator_acts_on_requests()
            elif how == "end" and self.world.pods:
                self.pod_ends(pick, "delete")
            elif self.world.jobs and how == "delete":
                self.user_deletes_a_job(pick, True)
            elif self.world.jobs:
                self.user_suspends_a_job_or_lets_it_go_on(pick)
            self.leader.see()

        self.leader.see()
        self.leader.meanwhile.append(happen)
        self.planner_plans(outcomes)
        self.leader.meanwhile.clear()

    def job(self, pick: int) -> str:
        return sorted(self.world.jobs)[pick % len(self.world.jobs)]

    def pods(self, name: str) -> list[Any]:
        return [one for key, one in self.world.pods.items() if key.startswith(f"{name}-worker-")]

    def delete_pods(self, name: str) -> None:
        for one in [key for key in self.world.pods if key.startswith(f"{name}-worker-")]:
            self.world.delete_pod(one)

    @invariant()
    def a_phase_says_what_its_gang_holds(self) -> None:
        if hasattr(self, "leader"):
            assert disagreements(self.leader) == []
            self.leader.raise_what_went_wrong()

    @invariant()
    def what_is_reserved_for_one_is_not_reserved_for_another(self) -> None:
        if hasattr(self, "leader"):
            seen: set[str] = set()
            for mine in self.leader.ledger.reserved.exact.values():
                for node in mine.gpus:
                    assert seen.isdisjoint(mine.gpus[NodeName(node)])
                    seen |= set(mine.gpus[NodeName(node)])


TestGangs = Gangs.TestCase
# Some runs end before their last step: a few more of them make up for it.
TestGangs.settings = settings(
    max_examples=math.ceil(1.15 * STEPS / STEPS_OF_ONE), stateful_step_count=STEPS_OF_ONE, deadline=None
)
