"""When an API server goes by the policy of Limits: until it has read their kind it refuses every TrainingJob."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kompakt_client.errors import ApiError, NotFound
from kompakt_client.transport import ApiClient
from kompakt_core.contract import API_VERSION, GROUP, JOB_KIND, JOB_PLURAL, LIMITS_KIND, LIMITS_PLURAL, VERSION
from tools.kube.control_plane import StartFailed
from tools.kube.processes import wait_until

# Twice the API server's interval between two looks at which kinds there are.
READ_SECONDS: Final = 60.0
NAME: Final = "installed"
LIMITS: Final = f"/apis/{API_VERSION}/{LIMITS_PLURAL}"


def await_limits(api: ApiClient, chart: Sequence[Mapping[str, Any]], namespace: str) -> None:
    """Return when a job of `namespace` is judged by Limits; at once where the chart's objects hold no such policy.

    Raises:
        StartFailed: it did not come to that.
    """
    if not has_limits(chart):
        return
    probe = LimitsProbe(api, namespace)
    probe.stand()
    if not (wait_until(probe.counts, READ_SECONDS) and wait_until(probe.gone, READ_SECONDS)):
        raise StartFailed(f"the API server does not go by Limits after {READ_SECONDS:.0f} s")


def has_limits(chart: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rendered objects hold a policy that takes Limits as its parameters."""
    policies = [one["spec"] for one in chart if one["kind"] == "ValidatingAdmissionPolicy"]
    return any(policy.get("paramKind", {}).get("kind") == LIMITS_KIND for policy in policies)


class LimitsProbe:
    """Limits that allow one worker in one namespace: a job of two is refused as soon as the API server goes by them.

    Without them an API server that has not read the policy yet could not be told from one that is done: both take jobs.
    """

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def stand(self) -> None:
        here = {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}}
        spec = {"maxWorkers": 1, "namespaceSelector": here}
        body = {"apiVersion": API_VERSION, "kind": LIMITS_KIND, "metadata": {"name": NAME}, "spec": spec}
        self._api.apply(f"{LIMITS}/{NAME}", body, manager="kompakt-tools")

    def counts(self) -> bool:
        """Whether a job is refused for it."""
        return f"Limits {NAME} of the cluster" in self._refusal()

    def gone(self) -> bool:
        """Removes it; whether jobs are taken again."""
        try:
            made = self._api.get(f"{LIMITS}/{NAME}")["metadata"]
            self._api.delete(f"{LIMITS}/{NAME}", made["uid"], made["resourceVersion"])
        except NotFound:
            return not self._refusal()
        return False

    def _refusal(self) -> str:
        """What the API server says of a job of two workers; "" where it takes it."""
        template = {"spec": {"containers": [{"name": "trainer", "image": "never-pulled"}]}}
        roles = [{"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": template}]
        body = {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": {"name": NAME}, "spec": {"roles": roles}}
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self._namespace}/{JOB_PLURAL}"
        try:
            self._api.create(path, body, dryRun="All")
        except ApiError as error:
            return error.message
        return ""
