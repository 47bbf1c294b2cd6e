"""Gangs wait for a better level on racks of simulated machines, placed by the real kube-scheduler with our extender.

What jobs of mode Default wait for is set for the whole run in waits.py: 9 s rather than share a rack, 22.5 s rather than be
spread over racks (sensitivity High).
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.policy.levels import COMMUNICATION
from kompakt_simulator.cluster import ClusterShape
from kompakt_simulator.cluster import ClusterState as SimulatedCluster
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import simulate
from tests.support.cluster.more_machines import more_machines
from tests.support.cluster.reading import moment, nodes_of, scheduling, topologies
from tests.support.cluster.replacing import SCHEDULER_LEASE, killed_pair
from tests.support.cluster.waits import FACTORS
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine

pytestmark = pytest.mark.usefixtures("watched")
POOL = "test.kompakt.dev/pool"
GPUS = 8
# Two racks of two machines; and the hosts of a real complaint: 64 in groups of which only two hold a gang of eight.
RACKS = tuple((f"lev-{rack}{host}", (("kompakt.dev/rack", f"lev-{rack}"), (POOL, "racks"))) for rack in "ab" for host in range(2))
IN_RACKS = tuple(machine for machine, _ in RACKS)
LEAVES = (1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11)
HOSTS = tuple(
    (f"leaf-{group:02}-{host:02}", (("kompakt.dev/rack", f"leaf-{group:02}"), (POOL, "leaves")))
    for group, size in enumerate(LEAVES)
    for host in range(size)
)


@pytest.fixture(scope="module")
def racks(kompakt: ClusterSession) -> Iterator[ClusterSession]:
    """The cluster with all our parts and the machines of this file."""
    machines = [SimulatedMachine(name, "dgx1-v100", GPUS, labels) for name, labels in (*RACKS, *HOSTS)]
    with more_machines(kompakt, machines):
        yield kompakt


def gang(
    name: str, workers: int, gpus: int, *, pool: str = "racks", host: str = "", mode: Any = None, seconds: str | None = None
) -> dict[str, Any]:
    """A job on the machines of one pool, or on one host; its pods run until they are deleted, or so many seconds."""
    document = training_job(name, replicas=workers, gpus=gpus, seconds=seconds, placement={"consolidation": mode or {}})
    selector = {"kubernetes.io/hostname": host} if host else {POOL: pool}
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = selector
    return document


def fixed(machine: int, rack: int = 3600) -> dict[str, Any]:
    return {"mode": "Fixed", "machineWaitSeconds": machine, "rackWaitSeconds": rack, "blockWaitSeconds": 3600}


def blocked(cluster: ClusterSession, namespace: str, gpus: int, hosts: Sequence[str] = IN_RACKS) -> list[JobManifest]:
    """So many GPUs of each host are taken."""
    jobs = [apply(cluster, namespace, gang(f"on-{host}", 1, gpus, host=host)) for host in hosts]
    for job in jobs:
        job.await_phase("Running")
    return jobs


def level_of(job: JobManifest) -> str:
    return str(scheduling(job).get("plan", {}).get("level", ""))


def waits_for(job: JobManifest, level: str) -> None:
    eventually(lambda: scheduling(job).get("waitsFor") == level, f"{job.name} waits for {level}")


def relaxed_at_its_timer(job: JobManifest, until: str) -> None:
    """It was released less than two seconds after its timer (times in status are whole seconds, rounded down), and is bound."""
    eventually(lambda: scheduling(job).get("plan"), f"{job.name} is released")
    late = moment(scheduling(job)["plan"]["releasedAt"]) - moment(until)
    assert 0 <= late <= 1, f"released {late:.0f} s after its timer"
    eventually(lambda: len(job.bound()) == len(job.pods()) > 0, f"{job.name} is bound")


def test_a_gang_takes_a_machine_that_frees_up_and_another_relaxes_at_its_timer(racks: ClusterSession, namespace: str) -> None:
    blockers = blocked(racks, namespace, 4)
    patient = apply(racks, namespace, gang("patient", 2, 4, mode=fixed(300)))
    waits_for(patient, "Machine")
    message = patient.condition("Placed")["message"]
    assert message.startswith("waits for one machine until "), message
    assert "now there is room only in one rack" in message
    assert not patient.bound()
    blockers[3].delete()
    eventually(lambda: len(patient.bound()) == 2, "it starts on the machine that became free")
    assert (level_of(patient), nodes_of(patient)) == ("Machine", {"lev-b1"})

    hasty = apply(racks, namespace, gang("hasty", 2, 4, mode=fixed(4)))
    waits_for(hasty, "Machine")
    until = scheduling(hasty)["until"]
    relaxed_at_its_timer(hasty, until)
    assert (level_of(hasty), nodes_of(hasty)) == ("Rack", {"lev-a0", "lev-a1"})


def test_a_profile_made_beforehand_counts_in_the_first_attempt(racks: ClusterSession, namespace: str, tmp_path: Path) -> None:
    """As docs/profile.md says it: kubectl puts the file on the manifest. All of a step exchanged: 18 s for a machine, not 3."""
    run = {"step_seconds": 0.1, "parts": [0.1], "data_seconds": 0, "loaders": 1, "gradient_bytes": 10**10, "ranks": 1}
    runs = {"one": run, "all": run | {"step_seconds": 0.2, "ranks": 4}, "warm": run | {"step_seconds": 0.25, "ranks": 4}}
    told = {"kompaktProfile": 1, "machine": "box", "devices": 4, "kind": "GPU", "warmUp": 5, "steps": 20, "runs": runs}
    blocked(racks, namespace, 4)
    document = gang("profiled", 2, 4)
    document["spec"]["communication"]["bandwidthSensitivity"] = "Auto"
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(document))
    annotation = f"{c.ANN_PROFILE}={json.dumps(told)}"
    annotated = racks.kubectl("annotate", "--local", "-f", str(manifest), "-o", "yaml", annotation)
    racks.kubectl("apply", "-n", namespace, "-f", "-", stdin=annotated)
    job = JobManifest(racks, namespace, "profiled")
    waits_for(job, "Machine")
    (role,) = job.status["expectedPods"]["roles"]
    assert role["pod"]["metadata"]["annotations"][c.ANN_SENSITIVITY] == "High"
    found = scheduling(job)
    assert 17 <= moment(found["until"]) - moment(found["placeableSince"]) <= 19
    profile = job.status["profile"]
    assert (profile["source"], profile["communication"], profile["sensitivity"]) == ("Annotation", "1", "High")
    assert profile["stalls"] == {
        "interconnect": {"seconds": "0.1", "percent": "50.0"},
        "prep": {"seconds": "0.05", "percent": "20.0"},
    }
    job.patch({"metadata": {"annotations": {c.ANN_PROFILE: json.dumps(told | {"runs": {"all": run | {"ranks": 4}}})}}})
    eventually(lambda: "stalls" not in job.status["profile"], "another annotation takes the place of the first")


def test_two_gangs_that_want_all_of_a_rack_never_hold_a_half_each(racks: ClusterSession, namespace: str) -> None:
    """A and B fit only one after the other; whichever is first, no pod of the other is bound meanwhile."""
    blocked(racks, namespace, 8, ["lev-b0", "lev-b1"])
    both = [apply(racks, namespace, gang(name, 2, 8, seconds="1", mode=fixed(300))) for name in ("x", "y")]
    mixed = []

    def over() -> bool:
        holding = [{p.status.phase for p in job.bound()} & {"Pending", "Running"} for job in both]
        if all(holding):
            mixed.append(holding)
        return all(job.phase == "Succeeded" for job in both)

    eventually(over, "both gangs ran, one after the other")
    assert mixed == []
    assert {job.status["attempt"] for job in both} == {1}


def test_gangs_of_eight_hosts_find_the_two_leaf_groups_that_hold_them(racks: ClusterSession, namespace: str) -> None:
    """64 hosts behind 15 leaf switches. The third gang finds no group any more, waits, and is spread when its time is over."""
    first = apply(racks, namespace, gang("first", 8, 8, pool="leaves", mode=fixed(60)))
    eventually(lambda: len(first.bound()) == 8, "the first is bound")
    second = apply(racks, namespace, gang("second", 8, 8, pool="leaves", mode=fixed(60)))
    eventually(lambda: len(second.bound()) == 8, "the second is bound")
    groups = [{node.rpartition("-")[0] for node in nodes_of(job)} for job in (first, second)]
    assert groups == [{"leaf-13"}, {"leaf-14"}], "the group that fits best, then the other one"
    third = apply(racks, namespace, gang("third", 8, 8, pool="leaves", mode=fixed(3, rack=3)))
    waits_for(third, "Rack")
    until = scheduling(third)["until"]
    relaxed_at_its_timer(third, until)
    assert level_of(third) == "Cluster"


def test_timers_outlive_the_active_pair(racks: ClusterSession, namespace: str, pair: Pair, standby: Pair) -> None:
    """The deciding pair is killed while two gangs wait: one timer runs out while nobody decides, the other goes on."""
    blocked(racks, namespace, 4)
    short = apply(racks, namespace, gang("short", 2, 4, mode=fixed(5)))
    long = apply(racks, namespace, gang("long", 2, 4, mode=fixed(600)))
    waits_for(short, "Machine")
    waits_for(long, "Machine")
    before, until = scheduling(long), scheduling(short)["until"]
    with killed_pair(racks, pair):
        eventually(lambda: scheduling(short).get("state") == "Released", "the standby has taken over and relaxed")
        lease = racks.kubectl("get", "lease", SCHEDULER_LEASE, "-n", "kompakt-system", "-o", "jsonpath={.spec.acquireTime}")
        decides = taken_over(racks, standby)
        assert decides - moment(lease) <= 10, "from the end of the old holder's Lease"
        late = moment(scheduling(short)["plan"]["releasedAt"]) - max(moment(until), decides)
        print(f"decides {decides - moment(lease):.1f} s after the Lease; relaxed {late:.1f} s after that and its timer")
        assert -1 < late <= 1, "status holds whole seconds, rounded down"
        assert (scheduling(long)["until"], scheduling(long)["placeableSince"]) == (before["until"], before["placeableSince"])


def taken_over(cluster: ClusterSession, pair: Pair) -> float:
    """When the pair's extender had read the cluster and began to decide, by its log."""
    lines = [line for line in cluster.log_of(pair.extender).splitlines() if " all listed: " in line]
    return datetime.strptime(lines[-1][:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


# (name, when it comes, workers, GPUs of each, seconds it runs). e finds two GPUs in each machine of rack b and waits nine seconds
# for a machine; f fits nowhere until a has ended (its pods may end in any order), g nowhere until b has.
SCENARIO = (
    ("a", 0, 2, 8, 29),
    ("b", 5, 1, 6, 36),
    ("c", 10, 1, 6, 100),
    ("e", 15, 2, 2, 100),
    ("f", 19, 2, 8, 100),
    ("g", 36, 2, 2, 100),
)
EXPECTED = ["a", "b", "c", "e", "f", "g"]
# In the cluster each event waits for what the simulator says came before it, so that a busy machine needs more time for the same
# sequence: a run by the clock alone once took five seconds longer to place e, and a had ended by then.
EVENTS = sorted(event for name, at, _, _, seconds in SCENARIO for event in ((at, name, "comes"), (at + seconds, name, "ends")))
Placed = tuple[str, str, tuple[str, ...]]


def test_the_same_scenario_gives_the_same_sequence_in_simulator_and_cluster(racks: ClusterSession, namespace: str) -> None:
    apply(racks, namespace, gang("ready", 1, 1, seconds="1")).await_phase("Succeeded")  # the pair killed before decides again
    eventually(lambda: not held(racks), "the plugins report all GPUs of earlier tests free")
    simulated = simulated_sequence()
    jobs = played(racks, namespace, {name: start for start, (name, *_) in simulated})
    plans = sorted((scheduling(job)["plan"]["releasedAt"], name, scheduling(job)["plan"]) for name, job in jobs.items())
    seen = [(name, plan["level"], tuple(sorted(node["name"] for node in plan["nodes"]))) for _, name, plan in plans]
    assert seen == [placed for _, placed in simulated]
    assert [name for name, _, _ in seen] == EXPECTED
    assert {level for _, level, _ in seen} == {"Machine", "Rack"}


def played(cluster: ClusterSession, namespace: str, starts: dict[str, int]) -> dict[str, JobManifest]:
    """The jobs of the scenario, once all have been placed; each event comes after what the simulator says is over by then."""
    manifests = {name: gang(name, workers, gpus) for name, _, workers, gpus, _ in SCENARIO}
    jobs: dict[str, JobManifest] = {}
    for at, name, event in EVENTS:
        for other, job in jobs.items():
            look = job.bound if starts[other] < at * 1000 else lambda of=job: scheduling(of).get("state")
            eventually(look, f"{other} is decided on before {name} {event}")
        if event == "comes":
            jobs[name] = apply(cluster, namespace, manifests[name])
        else:
            jobs[name].finish()
    return jobs


def held(cluster: ClusterSession) -> list[Any]:
    """What the plugins of this file's machines report as held."""
    own = [one for name, one in topologies(cluster).items() if name.startswith(("lev-", "leaf-"))]
    return [entry for one in own for entry in one.get("status", {}).get("held", ())]


def simulated_sequence() -> list[tuple[int, Placed]]:
    """What the simulator does with the same jobs under the same policy, with the millisecond of each start, in their order."""
    shape = ClusterShape.grid(2, 2, GPUS)
    hosts = [name for name, _ in RACKS]
    trace = [
        TraceJob(number, Milliseconds(at * 1000), Milliseconds(seconds * 1000), workers * gpus, comm_ratio=COMMUNICATION["High"])
        for number, (_, at, workers, gpus, seconds) in enumerate(SCENARIO)
    ]
    setting = Setting(restart_s=0, network=Network(levels=FACTORS))
    outcome = simulate(trace, SimulatedCluster.of(shape), POLICIES["kompakt"], PLACEMENTS["levels"], setting)
    started = sorted((stretch.start, stretch.number, stretch.gpus) for stretch in outcome.stretches)
    return [
        (start, (SCENARIO[number][0], shape.level_of(gpus).value, tuple(hosts[machine] for machine in shape.per_machine(gpus))))
        for start, number, gpus in started
    ]
