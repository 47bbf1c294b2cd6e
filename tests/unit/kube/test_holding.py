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


def test_bound_pods_hold_what_was_given_released_ones_what_is_planned() -> None:
    assert holder(pod("a", node="x", gpus="g1,g2", planned="g3")) == PodGpus("n/a", frozenset({"g1", "g2"}), planned=False)
    assert holder(pod("a", planned="g3")) == PodGpus("n/a", frozenset({"g3"}), planned=True)


@pytest.mark.parametrize(
    "made", [pod("a", planned="g1", gated=True), pod("a", node="x", gpus="g1", phase="Succeeded"), pod("a", node="x")]
)
def test_gated_finished_and_gpuless_pods_hold_nothing(made: dict[str, Any]) -> None:
    assert holder(made) is None


def seen(*events: tuple[str, dict[str, Any]], crossing: bool = False) -> GpuHolders:
    """After these events, while a kubelet is killed or not."""
    watching = GpuHolders()
    watching.crossing = crossing
    for kind, one in events:
        watching.see(kind, one)
    return watching


def bound(name: str, gpus: str = "", **more: str) -> dict[str, Any]:
    return pod(name, node="x", gpus=gpus, **more)


A, B, PLANNED = ("ADDED", bound("a", "g1")), ("ADDED", bound("b", "g2")), ("ADDED", pod("planned", planned="g1"))


@pytest.mark.parametrize(
    ("events", "violations"),
    [
        pytest.param([("ADDED", bound("a", "g1,g2")), ("ADDED", bound("b", "g2,g3"))], 1, id="by two"),
        pytest.param([PLANNED, A], 1, id="by one for which it is planned"),
        pytest.param([A, ("DELETED", bound("a", "g1")), ("ADDED", bound("b", "g1"))], 0, id="not by one that is gone"),
        pytest.param([A, ("MODIFIED", bound("a", "g1", phase="Failed")), ("ADDED", bound("b", "g1"))], 0, id="or finished"),
        pytest.param([PLANNED, B, ("MODIFIED", bound("b", "g1"))], 1, id="by a plan that a correction crosses"),
        pytest.param([A, B, ("MODIFIED", bound("b", "g1"))], 1, id="by a corrected one"),
    ],
)
def test_a_gpu_is_held_twice(events: list[tuple[str, dict[str, Any]]], violations: int) -> None:
    found = seen(*events)
    assert (len(found.violations), found.crossed) == (violations, [])
    assert violations == 0 or ("['g2']" if "g1,g2" in str(events) else "['g1']") in found.violations[0]


def test_a_plan_may_be_crossed_by_what_kubelet_gave_but_not_be_carried_out() -> None:
    waits = ("MODIFIED", bound("b"))  # for its turn to be corrected
    watching = seen(PLANNED, B, waits, ("MODIFIED", bound("b", "g1")), ("MODIFIED", PLANNED[1]), crossing=True)
    assert (len(watching.crossed), watching.violations) == (2, [])
    watching.see("MODIFIED", bound("planned", "g1"))
    assert len(watching.violations) == 1


def plugin(name: str, *, ready: bool = True, ending: bool = False, node: str = "x") -> dict[str, Any]:
    """A version of a device plugin's pod."""
    found = pod(name, node=node, phase="Running")
    found["metadata"] |= {"labels": {"app.kubernetes.io/component": "device-plugin"}}
    found["metadata"] |= {"deletionTimestamp": "now"} if ending else {}
    found["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return found


SERVES = ("ADDED", plugin("old"))
ENDS = ("MODIFIED", plugin("old", ending=True))
NEXT = [("DELETED", plugin("old", ending=True)), ("ADDED", plugin("new", ready=False)), ("MODIFIED", plugin("new"))]
CORRECTED = ("MODIFIED", bound("b", "g1"))


@pytest.mark.parametrize(
    ("events", "crossed"),
    [
        pytest.param([SERVES, PLANNED, B, ENDS, *NEXT, CORRECTED], 1, id="of a pod that was bound before"),
        pytest.param([SERVES, PLANNED, ENDS, B, *NEXT, CORRECTED], 1, id="or meanwhile"),
        pytest.param([SERVES, PLANNED, ENDS, *NEXT[:2], B, NEXT[2], CORRECTED], 1, id="or while the new plugin is not Ready"),
        pytest.param([SERVES, PLANNED, B, ENDS, CORRECTED], 1, id="and corrected before there is a new one"),
        pytest.param([SERVES, PLANNED, B, ENDS, *NEXT, CORRECTED, ("MODIFIED", PLANNED[1])], 2, id="the plan seen again"),
        pytest.param([SERVES, PLANNED, ENDS, B, CORRECTED], 1, id="bound and corrected meanwhile"),
        pytest.param([SERVES, PLANNED, B, CORRECTED, ENDS, *NEXT, CORRECTED], 0, id="not of one that was corrected before"),
        pytest.param([SERVES, PLANNED, ENDS, *NEXT, B, CORRECTED], 0, id="not of one that was bound later"),
        pytest.param([SERVES, B, ENDS, *NEXT, CORRECTED, PLANNED], 0, id="not a plan for a pod that came later"),
        pytest.param(
            [("ADDED", plugin("o", node="y")), PLANNED, B, ("DELETED", plugin("o", node="y")), CORRECTED], 0, id="not elsewhere"
        ),
        pytest.param([PLANNED, B, CORRECTED], 0, id="not where there is no plugin"),
    ],
)
def test_a_plan_may_be_crossed_while_the_nodes_plugin_is_replaced(events: list[tuple[str, dict[str, Any]]], crossed: int) -> None:
    watching = seen(*events)
    assert (len(watching.crossed), bool(watching.violations)) == (crossed, crossed == 0)


def test_what_two_bound_pods_hold_counts_also_while_a_plugin_is_replaced() -> None:
    assert len(seen(SERVES, A, B, ENDS, CORRECTED).violations) == 1


def test_after_a_list_a_plugin_that_served_before_serves_still() -> None:
    watching = seen(SERVES, PLANNED, B)
    watching.forget()
    for kind, one in (SERVES, PLANNED, B, CORRECTED):
        watching.see(kind, one)
    assert watching.violations
