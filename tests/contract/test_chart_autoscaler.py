"""The chart beside cluster-autoscaler."""

import pytest

from tests.support.chart import CLAIMS, KUEUE, objects, refusal, templated

CLASS = 'autoscaler.provisioningClassName="best-effort-atomic-scale-up.autoscaling.x-k8s.io"'


def test_the_operator_asks_for_nodes_where_it_is_told_by_which_class() -> None:
    def told(*settings: str) -> list[str]:
        spec = objects(*settings)["Deployment", "kompakt-operator"]["spec"]["template"]["spec"]
        return [word for word in spec["containers"][0]["args"] if word.startswith("--provisioning-class=")]

    assert told(CLASS) == ["--provisioning-class=best-effort-atomic-scale-up.autoscaling.x-k8s.io"]
    assert told() == ["--provisioning-class="]


def test_a_cluster_without_the_kind_is_told_what_is_missing() -> None:
    done = templated(CLASS, apis=f"{KUEUE},{CLAIMS}")
    assert done.returncode != 0
    assert "autoscaling.x-k8s.io/v1 this cluster does not serve: install the CRD of cluster-autoscaler first" in done.stderr
    assert templated(apis=f"{KUEUE},{CLAIMS}").returncode == 0


def test_where_gpus_come_by_claims_an_autoscaler_would_not_see_them() -> None:
    assert "would not see how many GPUs the pods need" in refusal(CLASS, 'allocation="ResourceClaims"')


@pytest.mark.parametrize("name", ["Check-Capacity", "check capacity", "-x", "x-", "a" * 254])
def test_what_is_no_class_s_name_is_refused(name: str) -> None:
    assert "/autoscaler/provisioningClassName" in refusal(f'autoscaler.provisioningClassName="{name}"')
