"""`python -m tools.kube.extender_samples`: records what a real kube-scheduler posts to an extender.

Brings up a control plane and two simulated nodes, and twice a kube-scheduler whose extender is a recorder that lets everything
pass and binds: with nodeCacheCapable and without. The bodies are the samples of tests/contract/test_extender_wire.py.
"""

import argparse
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from kompakt_client.transport import ApiClient, connect
from kompakt_core.contract import RESOURCE
from tools.kube import simulated
from tools.kube.binaries import find_all
from tools.kube.components import Component, answers
from tools.kube.control_plane import ControlPlane
from tools.kube.ports import free_ports
from tools.kube.processes import launch_tied, wait_until
from tools.kube.programs import SIMULATED

TARGET = Path(__file__).resolve().parents[2] / "tests" / "contract" / "data" / "extender" / "recorded"
FORMS = {"names": True, "nodes": False}  # folder -> nodeCacheCapable
SECONDS = 60.0


class Recorder:
    """An extender that keeps the first body of each verb and says yes to everything."""

    def __init__(self, api: ApiClient) -> None:
        self.bodies: dict[str, dict[str, Any]] = {}
        self._api = api

    def answer(self, verb: str, body: dict[str, Any]) -> Any:
        self.bodies.setdefault(verb, body)
        if verb == "filter":
            return {"Nodes": body["Nodes"], "NodeNames": body["NodeNames"]}
        if verb == "prioritize":
            names = body["NodeNames"] or [node["metadata"]["name"] for node in body["Nodes"]["items"]]
            return [{"Host": name, "Score": 1} for name in names]
        self._bind(body)
        return {}

    def _bind(self, body: dict[str, Any]) -> None:
        binding = {
            "metadata": {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        self._api.create(f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding", binding)

    @contextmanager
    def serving(self) -> Iterator[int]:
        """The port it listens on."""
        recorder = self

        class SampleHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(recorder.answer(self.path.strip("/"), body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class SampleServer(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A scheduler that is ended leaves broken connections behind; what was recorded by then counts."""

        server = SampleServer(("127.0.0.1", 0), SampleHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()


def scheduler(plane: ControlPlane, program: Path, form: str, port: int) -> Component:
    """A kube-scheduler of its own whose only extender is the recorder."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 1,
        "nodeCacheCapable": FORMS[form],
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.keys.scheduler)},
        "profiles": [{"schedulerName": f"sampled-{form}"}],
        "extenders": [extender],
    }
    path, (secure,) = plane.folder / f"sampled-{form}.yaml", free_ports(1)
    path.write_text(yaml.safe_dump(config))
    access = [f"--{use}-kubeconfig={plane.keys.scheduler}" for use in ("authentication", "authorization")]
    argv = (str(program), f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={secure}", *access)
    return Component(f"sampled-{form}", argv, lambda: answers(f"https://127.0.0.1:{secure}/healthz"))


def pod(form: str) -> dict[str, Any]:
    """As little as a pod may say: what it leaves out is what kube-scheduler leaves out or sends as null."""
    container = {"name": "main", "image": "simulated", "resources": {"limits": {RESOURCE: "2"}}}
    return {"metadata": {"name": f"sample-{form}"}, "spec": {"schedulerName": f"sampled-{form}", "containers": [container]}}


def record(plane: ControlPlane, program: Path, form: str) -> dict[str, dict[str, Any]]:
    """The bodies by verb. Raises SystemExit when kube-scheduler does not ask for all three."""
    api = connect(plane.kubeconfig)
    recorder = Recorder(api)
    with recorder.serving() as port:
        component = scheduler(plane, program, form, port)
        plane.start_component(component)
        api.create("/api/v1/namespaces/default/pods", pod(form))
        if not wait_until(lambda: len(recorder.bodies) == 3, SECONDS):
            raise SystemExit(f"kube-scheduler asked only for {sorted(recorder.bodies)} within {SECONDS:.0f} s")
        plane.stop_component(component.name)
    return recorder.bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=TARGET, help="folder for the samples (default: %(default)s)")
    given = parser.parse_args()
    find = find_all(SIMULATED).__getitem__
    with tempfile.TemporaryDirectory(prefix="kompakt-samples-") as folder:
        plane = simulated.start(Path(folder) / "run", find, simulated.machines(2), launch=launch_tied)
        try:
            version = connect(plane.kubeconfig).get("/version")["gitVersion"]
            for form in FORMS:
                for verb, body in record(plane, find("kube-scheduler"), form).items():
                    path = given.to / f"{verb}-{form}.json"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(body, indent=1) + "\n")
                    print(f"{path}: kube-scheduler of Kubernetes {version}")
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
