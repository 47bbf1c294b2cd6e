"""The watch of the invariant sees what it must see, and only that."""

from typing import Any

import pytest

from tools.kube.holding import GpuHolders, PodGpus, holder


def pod(
    name: str, *, node: str = "", gpus: str = "", planned: str = "", phase: str = "Pending", gated: bool = False
) -> dict[str, Any]:
    annotations = {"kompakt.dev/gpus": gpus, "kompakt.dev/planned-gpus": planned}
    spec: dict[str, Any] = {"schedulingGates": [{"name": "kompakt.dev/placement"}]} if gated else {}
    return {
        "metadata": {"name": name, "namespace": "n", "uid": name, "annotations": annotations},
        "spec": {**spec, "nodeName": node},
        "status": {"phase": phase},
    }


@pytest.fixture
def watching() -> GpuHolders:
    """Fed by hand."""
    return GpuHolders()


def test_bound_pods_hold_what_was_given_released_ones_what_is_planned() -> None:
    assert holder(pod("a", node="x", gpus="g1,g2", planned="g3")) == PodGpus("n/a", frozenset({"g1", "g2"}), planned=False)
    assert holder(pod("a", planned="g3")) == PodGpus("n/a", frozenset({"g3"}), planned=True)


@pytest.mark.parametrize(
    "made", [pod("a", planned="g1", gated=True), pod("a", node="x", gpus="g1", phase="Succeeded"), pod("a", node="x")]
)
def test_gated_finished_and_gpuless_pods_hold_nothing(made: dict[str, Any]) -> None:
    assert holder(made) is None


def test_two_pods_with_one_gpu_are_a_violation(watching: GpuHolders) -> None:
    watching.see("ADDED", pod("a", node="x", gpus="g1,g2"))
    watching.see("ADDED", pod("b", node="x", gpus="g2,g3"))
    assert len(watching.violations) == 1
    assert "['g2']" in watching.violations[0]


def test_a_planned_gpu_counts_as_taken(watching: GpuHolders) -> None:
    watching.see("ADDED", pod("a", planned="g1"))
    watching.see("ADDED", pod("b", node="x", gpus="g1"))
    assert len(watching.violations) == 1


@pytest.mark.parametrize(
    "last", [("DELETED", pod("a", node="x", gpus="g1")), ("MODIFIED", pod("a", node="x", gpus="g1", phase="Failed"))]
)
def test_gpus_of_a_gone_or_finished_pod_are_free_again(watching: GpuHolders, last: tuple[str, dict[str, Any]]) -> None:
    watching.see("ADDED", pod("a", node="x", gpus="g1"))
    watching.see(*last)
    watching.see("ADDED", pod("b", node="x", gpus="g1"))
    assert watching.violations == []


def test_a_plan_may_be_crossed_by_what_kubelet_gave_but_not_be_carried_out(watching: GpuHolders) -> None:
    watching.crossing = True
    watching.see("ADDED", pod("planned", planned="g1"))
    watching.see("ADDED", pod("bound", node="x", gpus="g2"))
    watching.see("MODIFIED", pod("bound", node="x"))  # it waits for its turn to be corrected
    watching.see("MODIFIED", pod("bound", node="x", gpus="g1"))
    watching.see("MODIFIED", pod("planned", planned="g1"))
    assert (len(watching.crossed), watching.violations) == (2, [])
    watching.see("MODIFIED", pod("planned", node="x", gpus="g1"))
    assert len(watching.violations) == 1


def test_a_plan_that_is_crossed_while_no_kubelet_is_killed_is_a_violation(watching: GpuHolders) -> None:
    watching.see("ADDED", pod("planned", planned="g1"))
    watching.see("ADDED", pod("bound", node="x", gpus="g2"))
    watching.see("MODIFIED", pod("bound", node="x", gpus="g1"))
    assert len(watching.violations) == 1


def test_a_corrected_pod_holds_its_gpus_against_bound_ones(watching: GpuHolders) -> None:
    watching.see("ADDED", pod("a", node="x", gpus="g1"))
    watching.see("ADDED", pod("b", node="x", gpus="g2"))
    watching.see("MODIFIED", pod("b", node="x", gpus="g1"))
    assert (watching.crossed, len(watching.violations)) == ([], 1)
