"""What kubectl shows of our resources, and how an older CRD becomes ours: by client-side apply, with everything still there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from tests.support.crds import CRDS, crd
from tools.kube.jobs import training_job
from tools.kube.session import ClusterSession, eventually

GROUP = ("kompakt.dev", "v1alpha1")
# What an earlier release's CRDs did not have.
NEW = {
    "trainingjobs": frozenset({"description"}),
    "gputopologies": frozenset({"description", "shortNames", "maximum", "maxLength"}),
}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def older(node: Any, new: frozenset[str], named: bool = False) -> Any:
    """As it was before these keys were known; `named`: the keys are names of fields."""
    if isinstance(node, dict):
        kept = node.items() if named else ((key, value) for key, value in node.items() if key not in new)
        return {key: older(value, new, key == "properties" and not named) for key, value in kept}
    return [older(item, new) for item in node] if isinstance(node, list) else node


def explained(cluster: ClusterSession, field: str) -> str:
    return " ".join(str(cluster.kubectl("explain", field)).split())


@pytest.fixture
def old_crds(cluster: ClusterSession) -> Iterator[client.ApiextensionsV1Api]:
    """The CRDs as an earlier release left them; afterwards ours are in force again."""
    extensions = client.ApiextensionsV1Api(cluster.api)
    for name in NEW:
        body = older(crd(name), NEW[name])
        found = extensions.read_custom_resource_definition(f"{name}.kompakt.dev")
        body["metadata"]["resourceVersion"] = found.metadata.resource_version
        extensions.replace_custom_resource_definition(f"{name}.kompakt.dev", body)
    eventually(
        lambda: "Shape of the communication" not in explained(cluster, "trainingjob.spec.communication.pattern"), "old CRDs"
    )
    yield extensions
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))


def test_an_older_crd_is_upgraded_in_place_by_client_side_apply(
    cluster: ClusterSession, namespace: str, old_crds: client.ApiextensionsV1Api
) -> None:
    body = training_job("job", managedBy="example.com/somebody-else")
    cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "trainingjobs", body)
    before = [old_crds.read_custom_resource_definition(f"{name}.kompakt.dev") for name in NEW]
    cluster.kubectl("apply", "-f", str(CRDS))
    after = [old_crds.read_custom_resource_definition(f"{name}.kompakt.dev") for name in NEW]
    assert [crd.metadata.uid for crd in after] == [crd.metadata.uid for crd in before]
    assert all(json.loads(crd.metadata.annotations[LAST_APPLIED]) for crd in after), "kubectl kept its copy"
    eventually(lambda: "gput" in str(cluster.kubectl("api-resources", "--api-group=kompakt.dev", "--cached=false")), "short name")
    assert cluster.custom.get_namespaced_custom_object(*GROUP, namespace, "trainingjobs", "job")["spec"]["roles"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("trainingjob", "one gang of worker pods"),
        ("trainingjob.spec", "What is to run, on which GPUs"),
        ("trainingjob.spec.placement.requiredLevel", "Hard limit on how wide the gang may spread"),
        ("trainingjob.spec.placement.consolidation.rackWaitSeconds", "Unit: seconds. Default: 1800. Example: 900"),
        ("trainingjob.status.scheduling.plan.value", "Unit: MB/s."),
        ("gputopology.spec.links.megabytesPerSecond", "Unit: MB/s (10^6 bytes)."),
    ],
)
def test_kubectl_explains_a_field(cluster: ClusterSession, field: str, words: str) -> None:
    eventually(lambda: words in explained(cluster, field), f"{field} explained")
