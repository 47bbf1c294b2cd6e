"""When an API server goes by the policies of a chart: it takes what it read of them into force once a second."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kompakt_client.errors import ApiError, NotFound
from kompakt_client.requests import ApiRequest
from kompakt_client.transport import ApiClient
from kompakt_core.contract import API_VERSION, GROUP, JOB_KIND, JOB_PLURAL, LIMITS_KIND, LIMITS_PLURAL, VERSION
from tools.kube.control_plane import StartFailed
from tools.kube.processes import wait_until

# Twice the API server's interval between two looks at which kinds there are.
READ_SECONDS: Final = 60.0
NAME: Final = "installed"
LIMITS: Final = f"/apis/{API_VERSION}/{LIMITS_PLURAL}"
POLICIES: Final = "admissionregistration.k8s.io"
VALIDATING: Final = "ValidatingAdmissionPolicy"
MUTATING: Final = "MutatingAdmissionPolicy"
VERDICTS: Final[dict[str, dict[str, Any]]] = {
    VALIDATING: {"validations": [{"expression": "false", "message": "policies are in force"}]},
    MUTATING: {
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'in': 'force'}}"}},
        ],
    },
}
ENDS: Final[dict[str, dict[str, Any]]] = {VALIDATING: {"validationActions": ["Deny"]}, MUTATING: {}}


def await_policies(api: ApiClient, chart: Sequence[Mapping[str, Any]], namespace: str) -> None:
    """Return when every policy of the chart's objects, which were written before, is in force, and jobs are judged by Limits.

    Raises:
        StartFailed: it did not come to that.
    """
    lasts = [LastPolicy(api, kind, namespace) for kind in (VALIDATING, MUTATING) if any(one["kind"] == kind for one in chart)]
    for last in lasts:
        last.stand()
    for last in lasts:
        if not wait_until(last.counts, READ_SECONDS):
            raise StartFailed(f"the API server does not go by a {last.kind} after {READ_SECONDS:.0f} s")
        last.remove()
    if has_limits(chart):
        _await_limits(LimitsProbe(api, namespace))


class LastPolicy:
    """A policy about one ConfigMap, written after all others of its kind.

    The API server keeps what it read of policies and of bindings in the order of their writing, and takes all of it into
    force at once: when this one counts, so do those before it.
    """

    def __init__(self, api: ApiClient, kind: str, namespace: str) -> None:
        self._api, self.kind, self._namespace = api, kind, namespace
        # Its own each time: for up to a second another of these stays in force when it is gone.
        self._probe = f"probe-{uuid.uuid4().hex[:8]}"

    def stand(self) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        about = [{"name": "is-the-probe", "expression": f"object.metadata.name == '{self._probe}'"}]
        spec = {"matchConstraints": {"resourceRules": [rule]}, "matchConditions": about, "failurePolicy": "Fail"}
        self._write(self.kind, {**spec, **VERDICTS[self.kind]})
        self._write(f"{self.kind}Binding", {"policyName": NAME, **ENDS[self.kind]})

    def counts(self) -> bool:
        """Whether the ConfigMap, which is not stored, is refused or filled in."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._probe}}
        try:
            return bool(self._api.create(f"/api/v1/namespaces/{self._namespace}/configmaps", body, dryRun="All").get("data"))
        except ApiError as error:
            return "policies are in force" in error.message

    def remove(self) -> None:
        """By name, in whatever version: the controller manager writes a status meanwhile."""
        for kind in (f"{self.kind}Binding", self.kind):
            self._api.json(ApiRequest("DELETE", _path(kind)))

    def _write(self, kind: str, spec: Mapping[str, Any]) -> None:
        body = {"apiVersion": f"{POLICIES}/v1", "kind": kind, "metadata": {"name": NAME}, "spec": spec}
        self._api.apply(_path(kind), body, manager="kompakt-tools")


def plural(kind: str) -> str:
    """As paths name a kind of policy or binding."""
    return f"{kind.lower()}s" if kind.endswith("Binding") else f"{kind.lower().removesuffix('y')}ies"


def _path(kind: str) -> str:
    return f"/apis/{POLICIES}/v1/{plural(kind)}/{NAME}"


def _await_limits(probe: "LimitsProbe") -> None:
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
