"""TrainingJobs as tests write and read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_core.contract import GROUP, JOB_KIND, JOB_PLURAL, LABEL_JOB_NAME, VERSION
from tools.kube.kwok import SECONDS_ANNOTATION
from tools.kube.session import PATIENCE, ClusterSession, eventually

Document = dict[str, Any]


def training_job(
    name: str,
    *,
    replicas: int = 1,
    gpus: int = 1,
    pattern: str = "Ring",
    seconds: str | None = "0.5",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """A job of one role whose simulated pods run that many seconds; None: until they are deleted."""
    ending = {} if seconds is None else {SECONDS_ANNOTATION: seconds}
    template = {
        "metadata": {"annotations": {**ending, **(annotations or {})}},
        "spec": {"containers": [{"name": "trainer", "image": "simulated"}]},
    }
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": gpus, "template": template}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": JOB_KIND,
        "metadata": {"name": name},
        "spec": {"roles": [role], "communication": {"pattern": pattern, "bandwidthSensitivity": "High"}, **spec},
    }


@dataclass(frozen=True, slots=True)
class JobManifest:
    """One job in the cluster."""

    cluster: ClusterSession
    namespace: str
    name: str

    def read(self) -> Document:
        found = self.cluster.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, JOB_PLURAL, self.name)
        return dict(found)

    @property
    def status(self) -> Document:
        return dict(self.read().get("status") or {})

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> Document:
        """One condition, empty where it is not there."""
        return next((dict(c) for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def pods(self) -> list[Any]:
        """The job's pods of all attempts, by name."""
        found = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=f"{LABEL_JOB_NAME}={self.name}").items
        return sorted(found, key=lambda pod: pod.metadata.name)

    def bound(self) -> list[Any]:
        return [pod for pod in self.pods() if pod.spec.node_name]

    def await_phase(self, phase: str, seconds: float = PATIENCE) -> Document:
        """The job's status once it is in that phase; the AssertionError otherwise carries what is known of the job."""
        try:
            eventually(lambda: self.phase == phase, f"{self.name} {phase}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None
        return self.status

    def patch(self, body: Document) -> None:
        self.cluster.custom.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, JOB_PLURAL, self.name, body)

    def delete(self) -> None:
        self.cluster.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, JOB_PLURAL, self.name)

    def finish(self) -> None:
        """Let the job's simulated pods end now, however long they were to run."""
        for pod in self.pods():
            ending = {"metadata": {"annotations": {SECONDS_ANNOTATION: "0"}}}
            self.cluster.core.patch_namespaced_pod(pod.metadata.name, self.namespace, ending)

    def story(self) -> str:
        """Status, pods and logs, for a failed test."""
        return f"status: {self.status}\n{story(self.cluster, self.namespace)}"


def story(cluster: ClusterSession, namespace: str) -> str:
    """What is known of a namespace: pods, events, and the end of each part's log."""
    pods = cluster.kubectl("get", "pods", "-n", namespace, "-o", "wide")
    events = cluster.kubectl("get", "events", "-n", namespace)
    logs = {name: cluster.log_of(name).splitlines()[-25:] for name in cluster.components}
    return "\n".join([pods, events, *(f"{name}:\n" + "\n".join(lines) for name, lines in logs.items())])


def apply(cluster: ClusterSession, namespace: str, document: Document) -> JobManifest:
    """Create a job."""
    cluster.custom.create_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL, document)
    return JobManifest(cluster, namespace, document["metadata"]["name"])
