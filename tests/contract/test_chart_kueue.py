"""The chart beside Kueue."""

from tests.support.chart import objects, refusal, templated

ON = "kueue.enabled=true"


def told(*settings: str) -> bool:
    spec = objects(*settings)["Deployment", "kompakt-operator"]["spec"]["template"]["spec"]
    return "--kueue=true" in spec["containers"][0]["args"]


def test_the_operator_works_with_kueue_where_it_is_told_to() -> None:
    assert told(ON)
    assert not told()


def test_a_cluster_without_kueue_is_told_what_is_missing() -> None:
    done = templated(ON, apis="v1")
    assert done.returncode != 0
    assert "kueue.x-k8s.io/v1beta1 this cluster does not serve: install Kueue first, or set kueue.enabled=false" in done.stderr
    assert templated(apis="v1").returncode == 0


def test_flavors_cannot_be_read_with_rights_in_one_namespace() -> None:
    assert "needs operator.namespace to be empty" in refusal(ON, 'operator.namespace="ml"')
