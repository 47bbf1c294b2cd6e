"""status.expectedPods: what is kept of a pod, and what is read of a status that anybody may have written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.contract.expected_pods import ExpectedPods, encode, readable, trimmed

SINCE = "2026-01-31T12:00:00Z"
POD = {
    "metadata": {"name": "p", "annotations": {c.ANN_PATTERN: "Ring", c.ANN_GPUS: "GPU-0", "else.example/note": "x"}},
    "spec": {
        "schedulerName": c.SCHEDULER_NAME,
        "schedulingGates": [{"name": c.GATE}],
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priority": 0,
        "serviceAccountName": "default",
        "containers": [{"name": "t", "image": "i", "command": ["python"], "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "pod", "attempt", "roles"]), inner),
    max_leaves=12,
)


def test_a_pod_is_kept_without_what_does_not_matter_for_its_place() -> None:
    assert trimmed(POD) == {
        "metadata": {"annotations": {c.ANN_PATTERN: "Ring"}},
        "spec": {
            "schedulerName": c.SCHEDULER_NAME,
            "schedulingGates": [{"name": c.GATE}],
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "priority": 0,
            "containers": [{"name": "t", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
        },
    }


def test_what_is_written_is_read_again() -> None:
    for one in (ExpectedPods(2, SINCE, {"worker": trimmed(POD), "ps": {}}), ExpectedPods(1, SINCE, reason="because")):
        assert readable(encode(one)) == one


@given(JSON | st.fixed_dictionaries({"attempt": JSON, "since": st.just(SINCE) | JSON, "roles": JSON}))
def test_whatever_stands_there_is_read_or_is_nothing(value: Any) -> None:
    found = readable(value)
    assert found is None or (type(found.attempt) is int and all(isinstance(pod, dict) for pod in found.pods.values()))
