"""TrainingJobs on real nodes: a shell script in the smallest image, how far they are, and that they give their GPUs back."""

import json
from typing import Any

from kompakt_core.contract import LABEL_ATTEMPT, LABEL_JOB_NAME
from tools.kube import stack
from tools.kube.kubectl import await_state


def sleeping(seconds: int, code: int = 0) -> str:
    """A script that ends at once when it is told to."""
    return f"trap 'exit 0' TERM; sleep {seconds} & wait $!; exit {code}"


def job(
    name: str,
    image: str,
    script: str,
    *,
    replicas: int = 2,
    gpus: int = 2,
    pod: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """One role of workers; `pod` and `container` are further parts of the template, `spec` of the job."""
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
        **(container or {}),
    }
    template = {"spec": {"containers": [main], "terminationGracePeriodSeconds": 1, **(pod or {})}}
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": gpus, "template": template}
    whole = {"roles": [role], "communication": {"pattern": "Ring"}, "injection": "Never", **spec}
    return {"apiVersion": "kompakt.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": whole}


class Jobs:
    """Those of one test. `apply` makes one, with the arguments of `job`; `delete` removes them all."""

    def __init__(self, world):
        self.world, self.names = world, []

    def apply(self, name, script, **fields):
        self.names.append(name)
        self.world.kubectl.apply(json.dumps(job(name, self.world.images.names["pause"], script, **fields)))

    def delete(self):
        """All at once, and every GPU comes back."""
        if self.names:
            self.world.kubectl("delete", "trainingjobs", *self.names, "--ignore-not-found", "--timeout=120s")
        self.names.clear()
        await_state(lambda: all_free(self.world), "all GPUs free again", 120)


def status(world, name):
    return world.kubectl.get("trainingjob", name).get("status", {})


def phase(world, name):
    return status(world, name).get("phase", "")


def await_phase(world, name, *phases, seconds=90):
    await_state(lambda: phase(world, name) in phases, f"phase {' or '.join(phases)} of {name}", seconds)


def pods_of(world, name, attempt=None):
    selector = f"{LABEL_JOB_NAME}={name}" + (f",{LABEL_ATTEMPT}={attempt}" if attempt else "")
    return world.kubectl.items("pods", f"--selector={selector}")


def all_free(world):
    return all(world.kubectl.get("gputopology", name)["status"]["free"] == 8 for name in stack.REAL_NODES)
