"""How the extender keeps up with a large cluster on which thousands of gangs wait.

    python -m benchmarks.backlog [--nodes 5000] [--gangs 5000] [--seconds 120] [--changes 200] [--ends 1] [--pods 20]

Every node is full. Meanwhile pods change (`--changes` a second), pods of one to eight neighbouring nodes end (`--ends` a second),
the gangs that get these nodes are bound as kube-scheduler would bind them, a new gang comes for each that was planned, and filter
and prioritize are asked about `--pods` plain pods a second, with the names of all nodes. The API server is played over HTTP by
the objects of the extender's tests, in this process; the extender is a process of its own, and so is who asks the verbs. Bars:
verbs p99 below 20 ms; from what frees room to the plan's write p99 below 1 s; less than 500 MB of PSS, the process that weighs
custom edges included.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.backlog.cluster import Cluster
from benchmarks.backlog.played_api import PlayedApi
from kompakt_core import contract as c
from kompakt_extender.main import listen, server

REPORT_SECONDS = 30.0
TICK = 0.01


def processor_seconds(pid: int) -> float:
    """Of all threads of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def pss(pid: int) -> float:
    """Of a process and its children, in MB (10^6 bytes): what they share counts once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    rollups = (Path(f"/proc/{one}/smaps_rollup").read_text() for one in (pid, *children))
    lines = (line for rollup in rollups for line in rollup.splitlines() if line.startswith("Pss:"))
    return sum(int(line.split()[1]) for line in lines) * 1024 / 1e6


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


class Load:
    """What happens on the cluster, at given rates."""

    def __init__(self, cluster: Cluster, port: int, given: argparse.Namespace) -> None:
        self._cluster, self._given = cluster, given
        self._verbs = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0)
        self._binding: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0

    async def run(self, seconds: float) -> None:
        began = time.perf_counter()
        before, replaced = self._cluster.changed, self._cluster.planned
        first = self._cluster.ended
        while (now := time.perf_counter() - began) < seconds:
            while self._cluster.changed - before < now * self._given.changes:
                self._cluster.change_a_pod()
            while self._cluster.ended - first < now * self._given.ends:
                self._cluster.end_some()
            for _ in range(self._cluster.planned - replaced):
                self._cluster.add_gang()
            replaced = self._cluster.planned
            self._bind_released()
            await asyncio.sleep(TICK)

    def _bind_released(self) -> None:
        for pod in self._cluster.released():
            uid = pod["metadata"]["uid"]
            if uid not in self._binding:
                self._binding.add(uid)
                task = asyncio.create_task(self._bind(pod))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _bind(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        answer = await self._verbs.post("/bind", json={**body, "Node": meta["annotations"][c.ANN_PLANNED_NODE]})
        if answer.json().get("Error"):
            self.refused += 1
            self._binding.discard(meta["uid"])
        elif meta["name"] in self._cluster.world.pods:
            self._cluster.bound(meta["name"])


def report(cluster: Cluster, load: Load, took: Sequence[float], spent: Sequence[float], memory: float) -> None:
    ours, played = spent
    print(
        f"  {cluster.planned} gangs planned, {cluster.ended} endings, {load.refused} bindings refused; from room to plan p50 "
        f"{quantile(took, 0.5):.2f} s, p99 {quantile(took, 0.99):.2f} s of {len(took)}; processor: extender {ours:.0%}, load and "
        f"API {played:.0%}; {memory:.0f} MB",
        flush=True,
    )


async def measure(given: argparse.Namespace) -> None:
    cluster = Cluster(given.nodes, given.gangs, given.seed, pods_first=given.pods_first)
    listening = listen("127.0.0.1", 0)
    api = server(PlayedApi(cluster.world))
    serving = asyncio.create_task(api.serve([listening]))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    began = time.perf_counter()
    extender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.backlog.server", address, stdout=subprocess.PIPE
    )
    assert extender.stdout is not None
    port = int(await extender.stdout.readline())
    print(f"  {given.nodes} nodes and {len(cluster.world.pods)} pods listed in {time.perf_counter() - began:.1f} s", flush=True)
    try:
        await loaded(cluster, extender.pid, port, given)
    finally:
        extender.terminate()
        await extender.wait()
        cluster.world.end_watches()
        api.should_exit = True
        await serving


async def loaded(cluster: Cluster, pid: int, port: int, given: argparse.Namespace) -> None:
    load = Load(cluster, port, given)
    await load.run(given.settle)  # all gangs are asked once
    command = [sys.executable, "-m", "benchmarks.backlog.verbs", str(port), str(given.nodes), str(given.pods)]
    asking = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    every: list[float] = []
    for _ in range(max(1, round(given.seconds / REPORT_SECONDS))):
        cluster.took, start = [], [processor_seconds(one) for one in (pid, os.getpid())]
        began = time.perf_counter()
        await load.run(min(REPORT_SECONDS, given.seconds))
        passed = time.perf_counter() - began
        ends = [processor_seconds(one) for one in (pid, os.getpid())]
        report(cluster, load, cluster.took, [(end - one) / passed for one, end in zip(start, ends, strict=True)], pss(pid))
        every += cluster.took
    printed, _ = await asking.communicate(b"")
    for verb, took in json.loads(printed).items():
        p50, p99 = (quantile(took, share) * 1e3 for share in (0.5, 0.99))
        print(f"  {verb:<10} p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(took)}")
    print(f"  from room to plan, all: p50 {quantile(every, 0.5):.2f} s, p99 {quantile(every, 0.99):.2f} s of {len(every)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before anything counts")
    parser.add_argument("--changes", type=float, default=200.0, help="of pods, a second")
    parser.add_argument("--ends", type=float, default=1.0, help="a second")
    parser.add_argument("--pods", type=float, default=20.0, help="that the verbs are asked about, a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods-first", action="store_true", help="gangs that wait have pods")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
