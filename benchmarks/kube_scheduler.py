"""What kube-scheduler posts about pods, and a client of the verbs that posts it, for benchmarks."""

import http.client
import itertools
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kompakt_core.contract import ANN_EDGES, ANN_PATTERN, ANN_SENSITIVITY, RESOURCE

GPUS = 8  # of a machine
JSON = "application/json"
SCORED = "x-scored"  # how many names the echo of a prioritize gives a score to


def name_of(number: int) -> str:
    return f"node-{number:05}"


def spec_of(gpus: int) -> dict[str, Any]:
    amount = {RESOURCE: str(gpus)}
    return {"containers": [{"name": "trainer", "image": "simulated", "resources": {"limits": amount, "requests": amount}}]}


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}


def body_of(names: int, turn: int = 0) -> bytes:
    """What kube-scheduler posts for a plain pod of four GPUs, its nodes in an order that differs from pod to pod (`turn`)."""
    notes = {ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"}
    identity = {"name": f"p-{turn}", "namespace": "default", "uid": f"uid-{turn}"}
    pod = {"metadata": {**identity, "annotations": notes}, "spec": {**spec_of(4), "topologySpreadConstraints": [SPREAD]}}
    return json.dumps(
        {"Pod": pod, "Nodes": None, "NodeNames": [name_of((number + 7 * turn) % names) for number in range(names)]}
    ).encode()


def other_body(names: int, number: int, *, edges: bool) -> bytes:
    """A pod of another namespace, with edges of its own or with none."""
    notes = {ANN_PATTERN: "Custom", ANN_EDGES: edges_of(number)} if edges else {}
    identity = {"name": f"h-{number}", "namespace": "hostile", "uid": f"hostile-{number}"}
    pod = {"metadata": {**identity, "annotations": notes}, "spec": spec_of(GPUS)}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": [name_of(one) for one in range(names)]}).encode()


def edges_of(number: int) -> str:
    """Some that no other number has."""
    rng, last = random.Random(number), GPUS - 1
    pairs = ((a, b) for a, b in itertools.combinations(range(GPUS), 2) if b in (a + 1, last))
    return ",".join(f"{a}-{b}:{rng.randint(1, 10**6)}" for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of one request: on the clock, and of the processor by the server's thread that answers."""

    clock: float
    processor: float


class Client:
    """One kept connection to a server of this process id."""

    def __init__(self, pid: int, port: int) -> None:
        self._work = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def _processor(self) -> float:
        return int(self._work.read_text().split()[0]) / 1e9

    def post(self, path: str, body: bytes, scored: int = 0) -> tuple[Taken, bytes]:
        """What it took, and the answer. Raises SystemExit for any answer but 200."""
        headers = {"Content-Type": JSON, SCORED: str(scored)}
        worked = self._processor()
        began = time.perf_counter()
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        taken = Taken(time.perf_counter() - began, self._processor() - worked)
        if response.status != 200:
            raise SystemExit(f"{path}: HTTP {response.status}: {answer[:200]!r}")
        return taken, answer
