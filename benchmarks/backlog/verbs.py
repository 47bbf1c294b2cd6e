"""Asks filter and prioritize about plain pods until standard input ends; `python -m benchmarks.backlog.verbs PORT NODES RATE`.

Prints what each request took, as JSON by verb. A process of its own: who also plays the API server would wait for itself.
"""

import http.client
import itertools
import json
import sys
import threading
import time

from benchmarks.backlog.cluster import name_of
from kompakt_core.contract import ANN_PATTERN, ANN_SENSITIVITY, RESOURCE

VERBS = ("filter", "prioritize")


def body_of(names: list[str], number: int) -> bytes:
    """A pod of two GPUs that any node with room may take."""
    notes = {ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"}
    amount = {RESOURCE: "2"}
    containers = [{"name": "trainer", "resources": {"limits": amount, "requests": amount}}]
    identity = {"name": f"plain-{number}", "namespace": "default", "uid": f"plain-{number}", "annotations": notes}
    return json.dumps({"Pod": {"metadata": identity, "spec": {"containers": containers}}, "NodeNames": names}).encode()


def _until_closed(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(port: int, nodes: int, rate: float) -> None:
    stop, took = threading.Event(), dict[str, list[float]]((verb, []) for verb in VERBS)
    threading.Thread(target=_until_closed, args=[stop], daemon=True).start()
    connection, names = http.client.HTTPConnection("127.0.0.1", port), [name_of(number) for number in range(nodes)]
    began = time.monotonic()
    for number in itertools.count():
        if stop.wait(max(began + number / rate - time.monotonic(), 0.0)):
            break
        body = body_of(names, number)
        for verb in VERBS:
            start = time.perf_counter()
            connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
            took[verb].append(time.perf_counter() - start)
    print(json.dumps(took))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
