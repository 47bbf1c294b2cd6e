"""Scenarios of the planner as text: what happens, and after `->` what is true then. ` / ` is as good as a new line.

    n0 n1                                   machines (DGX-1 V100), or `racks`: a0 a1 in one, b0 b1 in another;
                                            `with fixed`, `with fixed 3`: the cluster's policy, and overtaken_at_most
    low runs 2x4 / 300 s                    a gang of 2 workers with 4 GPUs each is placed, bound and runs; time passes
    urgent comes 2x4 @1000; n1 turns        two things at once; @ is the priority
    -> urgent Preempting; low asked by urgent

After each step the planner plans until nothing moves. While the status of a job is `held` (its writes get no answer) it only
plans a few rounds, until that job is `answered`. What follows `meanwhile` happens while core plans.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender import preempting, racks
from tests.support.extender.leader import NO_WAIT, Leader, on_nodes, slow_to_write
from tests.support.extender.made_objects import worker

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "polite": {"preemptionPolicy": "Never"},
    "with-claims": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    "heavy": {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": "40", c.RESOURCE: "4"}}}]},
    "of-others": {"namespace": "others"},
    "NoWait": {"consolidation": {"mode": "NoWait"}},
    "NeverRelax": {"consolidation": {"mode": "NeverRelax"}},
    "Fixed": {"consolidation": {"mode": "Fixed", "machineWaitSeconds": 600, "rackWaitSeconds": 1800}},
    "Fixed-300": {"consolidation": {"mode": "Fixed", "machineWaitSeconds": 300, "rackWaitSeconds": 1800}},
}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "brief": {"runPolicy": {"preemption": {"minRuntimeSeconds": 1}}},
    "on-one-machine": {"placement": {**OPTIONS["Fixed"], "requiredLevel": "Machine"}},
}


async def played(text: str) -> Leader:
    """The leader at the end of a scenario."""
    return await Scenario().play(text)


class Scenario:
    """One text over one leader. `had`: the GPUs of gangs when they ended."""

    def __init__(self) -> None:
        self.leader: Leader
        self.policy = NO_WAIT
        self.had: dict[str, set[str]] = {}
        self.held: dict[str, asyncio.Event] = {}

    async def play(self, text: str) -> Leader:
        """The first step makes the cluster, unless there is one already."""
        steps = [step.strip() for step in re.split(r"\n| / ", text) if step.strip()]
        if not hasattr(self, "leader"):
            self.begin(steps.pop(0))
        for step in steps:
            happenings, arrow, claims = step.partition("->")
            if happenings:
                for what in happenings.split(";"):
                    await _maybe(self.happen(what.strip()))
                await self.settle()
            for claim in claims.split(";") if arrow else ():
                found, expected = await _maybe(_call(CLAIMS, claim.strip(), self))
                assert found == expected, f"{claim} of {step!r}: {found!r}, not {expected!r}"
        return self.leader

    def begin(self, step: str) -> None:
        nodes, _, policy = step.partition(" with ")
        if policy:
            name, _, most = policy.partition(" ")
            self.policy = ClusterPolicy(name, overtaken_at_most=int(most or 100))
        self.leader = racks.on_racks(self.policy) if nodes == "racks" else on_nodes(len(nodes.split()), self.policy)

    async def settle(self) -> None:
        await (self.leader.rounds() if self.held else self.leader.settle())

    def happen(self, what: str) -> Any:
        if what.startswith("meanwhile "):
            return self.leader.meanwhile.append(lambda: self.at_once(what.removeprefix("meanwhile ")))
        return _call(HAPPENINGS, what, self)

    def at_once(self, what: str) -> None:
        assert self.happen(what) is None, f"{what!r} takes time"
        self.leader.see()

    def state(self, name: str) -> dict[str, Any]:
        return self.leader.scheduling(name)

    def pods_of(self, name: str) -> list[str]:
        return [key for key in self.leader.world.pods if key.startswith(f"{name}-worker-")]

    def overtaken(self, name: str) -> int:
        return self.leader.jobs.record(self.leader.jobs.views[f"uid-{name}"]).overtaken

    def size(self, name: str) -> tuple[int, int, int]:
        """Workers, GPUs of each, and the attempt."""
        job = self.leader.world.jobs[name]
        role = job["spec"]["roles"][0]
        return role["replicas"], role["gpusPerReplica"], job["status"]["attempt"]

    # What happens

    def comes(self, name: str, workers: str, gpus: str, priority: str | None, words: str) -> None:
        more = {key: value for word in words.split() for key, value in OPTIONS.get(word, {}).items()}
        self.leader.world.add_gang(name, int(workers), int(gpus), priority=int(priority or 0), **more)
        for word in words.split():
            self.leader.world.jobs[name]["spec"] |= SPECS.get(word, {})
        preempting.touch(self.leader, name)

    async def runs(self, name: str, workers: str, gpus: str, priority: str | None) -> None:
        await preempting.runs(self.leader, name, int(workers), int(gpus), int(priority or 0))

    async def runs_again(self, name: str) -> None:
        workers, gpus, attempt = self.size(name)
        await preempting.runs(self.leader, name, workers, gpus, attempt=attempt)

    def comes_back(self, name: str) -> None:
        workers, gpus, attempt = self.size(name)
        for index in range(workers):
            self.leader.world.add_pod(worker(name, index, gpus, attempt, priority=0))

    async def is_bound(self, name: str, count: str | None) -> None:
        workers, _, attempt = self.size(name)
        await preempting.bind_all(self.leader, name, int(count or workers), attempt)

    def stops(self, name: str) -> None:
        """The pods need time to stop."""
        self.had[name] = preempting.seats(self.leader, name) if "plan" in self.state(name) else set()
        self.leader.world.jobs[name]["status"]["attempt"] += 1
        preempting.condition(self.leader, name, "Running", "False")

    def pods_go(self, name: str) -> None:
        for one in self.pods_of(name):
            self.leader.world.delete_pod(one)
        self.all_report()

    def ends(self, name: str) -> None:
        """As the operator ends an attempt that is asked to."""
        self.stops(name)
        self.pods_go(name)

    def completes(self, name: str) -> None:
        self.had[name] = preempting.seats(self.leader, name)
        for one in self.pods_of(name):
            self.leader.world.finish_pod(one)
        self.all_report()
        preempting.condition(self.leader, name, "Complete", "True")

    def all_report(self) -> None:
        for node in self.leader.world.nodes:
            self.leader.world.report(node)

    def is_deleted(self, name: str) -> None:
        self.leader.world.news.append(("jobs", f"uid-{name}", None))
        del self.leader.world.jobs[name]
        self.pods_go(name)

    def is_suspended(self, name: str) -> None:
        self.leader.world.jobs[name]["spec"]["suspend"] = True
        preempting.touch(self.leader, name)

    def pod_stops(self, name: str) -> None:
        stopping = self.leader.world.pods[f"{name}-worker-1-a1"]
        stopping["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
        self.leader.world.add_pod(stopping)

    def pods_leave(self, count: str, node: str, first: str | None) -> None:
        racks.vacate(self.leader, node, int(count), int(first or 0))
        if self.leader.world.topologies[node]["status"]["held"]:
            self.leader.world.report(node)

    def fails(self, node: str, name: str) -> None:
        """kubelet rejects a pod of the job, or fails it before a container starts."""
        self.leader.see()
        self.leader.planner.exclude(f"uid-{name}", NodeName(node), "OutOfcpu")

    def another_leader(self) -> None:
        old = self.leader
        old.planner.stop()
        self.leader = Leader(old.world, self.policy)
        self.leader.now = old.now
        self.leader.take_over()

    def is_held(self, name: str) -> None:
        self.held[name] = slow_to_write(self.leader, name)

    # What is true

    def asked_by(self, name: str, other: str) -> tuple[Any, Any]:
        request = preempting.request(self.leader, name)
        return request and request.name, other

    def not_asked(self, name: str) -> tuple[Any, Any]:
        conditions = {one["type"] for one in self.leader.world.jobs[name]["status"].get("conditions", ())}
        return (preempting.request(self.leader, name), "PreemptionRequested" in conditions), (None, False)

    def reserved(self, names: str) -> tuple[Any, Any]:
        found = self.leader.ledger.reserved
        return {*found.exact, found.counts_for} - {""}, {f"uid-{one}" for one in _names(names)}

    async def quiet(self) -> tuple[Any, Any]:
        self.leader.world.sent.clear()
        await self.settle()
        return self.leader.world.sent, []


Table = Mapping[str, Callable[..., Any]]
HAPPENINGS: Final[Table] = {
    r"(\S+) comes (\d+)x(\d+)(?: @(\d+))?((?: \S+)*)": Scenario.comes,
    r"(\S+) comes back": Scenario.comes_back,
    r"(\S+) runs (\d+)x(\d+)(?: @(\d+))?": Scenario.runs,
    r"(\S+) runs again": Scenario.runs_again,
    r"(\S+) is bound(?: by (\d+))?": Scenario.is_bound,
    r"(\S+) starts": lambda it, name: preempting.condition(it.leader, name, "Running", "True"),
    r"(\S+) starts no more": lambda it, name: preempting.condition(it.leader, name, "Running", "False"),
    r"(\S+) ends": Scenario.ends,
    r"(\S+) stops": Scenario.stops,
    r"(\S+) is gone": Scenario.pods_go,
    r"(\S+) completes": Scenario.completes,
    r"(\S+) is deleted": Scenario.is_deleted,
    r"(\S+) is suspended": Scenario.is_suspended,
    r"(\S+) is written": lambda it, name: preempting.touch(it.leader, name),
    r"a pod of (\S+) is gone": lambda it, name: it.leader.world.delete_pod(f"{name}-worker-1-a1"),
    r"a pod of (\S+) stops": Scenario.pod_stops,
    r"(\S+) fails (\S+)": Scenario.fails,
    r"(\S+) is held": Scenario.is_held,
    r"(\S+) is answered": lambda it, name: it.held.pop(name).set(),
    r"another leader": Scenario.another_leader,
    r"(\S+) turns": lambda it, node: it.leader.world.turn_ready(node),
    r"GPU (\d+) of (\S+) breaks": lambda it, gpu, node: it.leader.world.break_gpu(node, int(gpu)),
    r"node (\S+) is added": lambda it, node: it.leader.world.add_node(node),
    r"Limits (\S+) of (\S+) say (.+)": lambda it, name, namespace, words: it.leader.world.set_limits(
        name, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": namespace}}, **json.loads(words)
    ),
    r"Limits (\S+) are deleted": lambda it, name: it.leader.world.remove_limits(name),
    r"([\d.]+) s": lambda it, seconds: it.leader.wait(float(seconds)),
    r"(\d+) pods? on (\S+)": lambda it, count, nodes: (
        [racks.occupy(it.leader, one, int(count)) for one in _names(nodes)] and None
    ),
    r"(\d+) (replica|bare pod)s? of (\S+) on (\S+)(?: @(-?\d+))?": lambda it, count, kind, namespace, node, priority: (
        racks.run_plain(it.leader, node, int(count), int(priority or 0), controlled=kind == "replica", namespace=namespace)
    ),
    r"(\d+) pods? leaves? (\S+)(?: from (\d+))?": Scenario.pods_leave,
}
CLAIMS: Final[Table] = {
    r"(\S+) (Waiting|Reserved|Released|Withdrawn)": lambda it, name, word: (it.state(name).get("state"), word),
    r"(\S+) because ([A-Z]\w+)": lambda it, name, word: (it.state(name).get("reason"), word),
    r"(\S+) unwritten": lambda it, name: (it.state(name), {}),
    r"(\S+) asked by (\S+)": Scenario.asked_by,
    r"(\S+) not asked": Scenario.not_asked,
    r"(\S+) on (\S+)": lambda it, name, nodes: ({seat.node for seat in it.leader.seats(name)}, _names(nodes)),
    r"(\S+) at ([A-Z]\w+)": lambda it, name, level: (it.state(name)["plan"]["level"], level),
    r"(\S+) has what (\S+) had": lambda it, name, other: (preempting.seats(it.leader, name), it.had[other]),
    r"(\S+) waits for (\w+)": lambda it, name, level: (it.state(name).get("waitsFor"), level),
    r"(\S+) waits for no level": lambda it, name: (it.state(name).keys() & {"waitsFor", "until"}, set()),
    r"(\S+) (until|placeableSince|waitingSince) ([\d:]+)": lambda it, name, field, at: (it.state(name).get(field), _moment(at)),
    r"(\S+) was never placeable": lambda it, name: (it.state(name).get("placeableSince"), None),
    r"(\S+) says (.+)": lambda it, name, words: (words if words in (said := it.state(name)["message"]) else said, words),
    r"(\S+) leaves out (\S+)": lambda it, name, nodes: ({one["node"] for one in it.state(name)["excludedNodes"]}, _names(nodes)),
    r"(\S+) overtaken (\d+)": lambda it, name, count: (
        it.leader.jobs.record(it.leader.jobs.views[f"uid-{name}"]).overtaken,
        int(count),
    ),
    r"reserved for (\S+)": Scenario.reserved,
    r"(\d+) GPUs taken": lambda it, count: (
        sum(state.taken.bit_count() for state in it.leader.ledger.snapshot().nodes.values()),
        int(count),
    ),
    r"(\d+) pods? stops?": lambda it, count: (
        sum("deletionTimestamp" in one["metadata"] for one in it.leader.world.pods.values()),
        int(count),
    ),
    r"quiet": Scenario.quiet,
    r"timer at ([\d:]+)": lambda it, at: (
        it.leader.planner._next_timer(),
        datetime.fromisoformat(_moment(at)).timestamp(),
    ),
}


def _call(table: Table, text: str, it: Scenario) -> Any:
    for pattern, act in table.items():
        if match := re.fullmatch(pattern, text):
            return act(it, *match.groups())
    raise ValueError(f"{text!r} is none of {', '.join(table)}")


async def _maybe(found: Any) -> Any:
    return await found if isinstance(found, Awaitable) else found


def _names(text: str) -> set[str]:
    return set() if text == "nothing" else set(text.split("+"))


def _moment(at: str) -> str:
    return f"2026-01-31T{at}Z"
