"""What cluster-autoscaler reads and writes, and a stand-in for it: the test itself adds nodes."""

import time
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from tools.kube import golang, simulated
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine

GROUP, VERSION, PLURAL = "autoscaling.x-k8s.io", "v1", "provisioningrequests"
CLASS: Final = f"best-effort-atomic-scale-up.{GROUP}"
CONSUMES: Final = f"{GROUP}/consume-provisioning-request"
Object = dict[str, Any]


def define(cluster: ClusterSession) -> None:
    """Its CRD, as its Go module has it; the kind is served when this returns."""
    path = golang.sources("kueue", "k8s.io/autoscaler/cluster-autoscaler/apis") / "config" / "crd"
    cluster.kubectl("apply", "--server-side", "-f", str(path))
    eventually(lambda: PLURAL in cluster.kubectl("api-resources", "--cached=false"), "its kind is served")


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Of one namespace's requests."""

    cluster: ClusterSession
    namespace: str

    @property
    def requests(self) -> list[Object]:
        """All there are."""
        found = self.cluster.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        return list(found["items"])

    @property
    def templates(self) -> list[str]:
        """Names of the namespace's PodTemplates."""
        return [one.metadata.name for one in self.cluster.core.list_namespaced_pod_template(self.namespace).items]

    def asked(self) -> Object:
        """The one request, once it is there."""
        found = eventually(lambda: self.requests, "nodes are asked for")
        assert len(found) == 1
        return dict(found[0])

    def gpus(self, request: Object) -> int:
        """How many all its pods need."""
        return sum(one["count"] * self._gpus_of(one["podTemplateRef"]["name"]) for one in request["spec"]["podSets"])

    def _gpus_of(self, template: str) -> int:
        spec = self.cluster.core.read_namespaced_pod_template(template, self.namespace).template.spec
        assert spec.scheduling_gates is None
        return sum(int((one.resources.limits or {}).get(c.RESOURCE, 0)) for one in spec.containers)

    def tells(self, request: Object, type_: str, message: str, moment: float | None = None) -> None:
        """A condition of the request becomes true. `moment`: when, in seconds since the epoch; default: now."""
        when = timestamps.encode(time.time() if moment is None else moment)
        told = {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": when}
        before = [one for one in (request.get("status") or {}).get("conditions") or () if one["type"] != type_]
        status = {"status": {"conditions": [*before, told]}}
        name = request["metadata"]["name"]
        self.cluster.custom.patch_namespaced_custom_object_status(GROUP, VERSION, self.namespace, PLURAL, name, status)

    def adds_nodes(self, request: Object, prefix: str) -> list[SimulatedMachine]:
        """As many machines of eight GPUs as the request needs; it does not look for room on those that are there."""
        made = [SimulatedMachine(f"{prefix}-{number}", "dgx1-v100", 8) for number in range(-(-self.gpus(request) // 8))]
        self.tells(request, "Provisioned", f"{len(made)} nodes come")
        simulated.add_machines(self.cluster.plane, made)
        return made
