"""Pods that others made get the runtime by an annotation: as the operator injects it into workers."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_operator import injection
from tools.kube.session import ClusterSession

NAMESPACE = "default"
WANTED = {c.ANN_COMPRESSION: "ErrorBounded"}


def pod(notes: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    """Two containers, of which the second asks for GPUs."""
    main = {"name": "trainer", "image": "trainer", "resources": {"limits": {c.RESOURCE: "1"}}, **container}
    helper = {"name": "helper", "image": "helper", "env": [{"name": "PYTHONPATH", "value": "/helper"}]}
    spec = {"schedulerName": c.SCHEDULER_NAME, "containers": [helper, main]}
    return {"metadata": {"name": "p", "annotations": WANTED if notes is None else notes}, "spec": spec}


def admitted(cluster: ClusterSession, made: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The pod's spec as the API server would store it, and what it warns of."""
    answer = cluster.core.create_namespaced_pod_with_http_info(NAMESPACE, made, dry_run="All")
    spec = cluster.api.sanitize_for_serialization(answer[0])["spec"]
    return spec, answer[2].get("Warning", "")


def trainer(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in spec["containers"] if one["name"] == "trainer"]
    return found


def environment(spec: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in trainer(spec).get("env", ())}


def without_defaults(found: Any, wanted: Any) -> Any:
    """What is found of what is wanted: the API server adds defaults."""
    if isinstance(wanted, dict):
        return {key: without_defaults(found.get(key), value) for key, value in wanted.items()}
    return found


def test_a_pod_gets_the_runtime_as_a_worker_gets_it(guarded: ClusterSession) -> None:
    spec, warning = admitted(guarded, pod())
    assert warning == ""
    assert environment(spec) == {
        "PYTHONPATH": injection.BOOTSTRAP,
        c.ENV_MODE: "ErrorBounded",
        c.ENV_TARGET: "0.01",
        c.ENV_STATE_DIR: c.INJECT_STATE_PATH,
    }
    (init,) = spec["initContainers"]
    wanted = injection.init_container(init["image"])
    assert without_defaults(init, {key: value for key, value in wanted.items() if key != "volumeMounts"}) == {
        key: value for key, value in wanted.items() if key != "volumeMounts"
    }
    assert wanted["volumeMounts"][0] in [without_defaults(mount, wanted["volumeMounts"][0]) for mount in init["volumeMounts"]]
    mounts = {mount["mountPath"]: mount for mount in trainer(spec)["volumeMounts"]}
    assert all(without_defaults(mounts[one["mountPath"]], one) == one for one in injection.mounts())
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert all(volumes[one["name"]] == one for one in injection.volumes())
    (helper,) = [one for one in spec["containers"] if one["name"] == "helper"]
    assert helper["env"] == [{"name": "PYTHONPATH", "value": "/helper"}]


def test_what_the_container_says_itself_stands(guarded: ClusterSession) -> None:
    own = [{"name": "A", "value": "a"}, {"name": "PYTHONPATH", "value": "/app"}, {"name": c.ENV_TARGET, "value": "0.05"}]
    mount = {"name": "data", "mountPath": "/data"}
    made = pod({**WANTED, c.ANN_TARGET: "0.02"}, env=own, volumeMounts=[mount])
    made["spec"] |= {"volumes": [{"name": "data", "emptyDir": {}}], "initContainers": [{"name": "first", "image": "first"}]}
    spec, warning = admitted(guarded, made)
    assert warning == ""
    assert environment(spec)["PYTHONPATH"] == f"{injection.BOOTSTRAP}:/app"
    assert (environment(spec)["A"], environment(spec)[c.ENV_TARGET]) == ("a", "0.05")
    assert [one["name"] for one in spec["initContainers"]] == [c.INJECT_INIT_CONTAINER, "first"]
    assert "data" in {one["name"] for one in spec["volumes"]}
    assert "/data" in {one["mountPath"] for one in trainer(spec)["volumeMounts"]}


@pytest.mark.parametrize(
    ("notes", "container", "words"),
    [
        ({}, {}, ""),
        ({c.ANN_COMPRESSION: "None"}, {}, ""),
        ({c.ANN_COMPRESSION: "Fast"}, {}, "is ErrorBounded, Lossless or None"),
        (WANTED, {"resources": {}}, f"exactly one container asks for {c.RESOURCE}"),
        (WANTED, {"envFrom": [{"configMapRef": {"name": "settings"}}]}, "which kompakt cannot read"),
        (
            WANTED,
            {"env": [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "path"}}}]},
            "which kompakt cannot read",
        ),
    ],
)
def test_a_pod_that_cannot_have_it_stays_as_it_is_with_a_warning(
    guarded: ClusterSession, notes: dict[str, str], container: dict[str, Any], words: str
) -> None:
    spec, warning = admitted(guarded, pod(notes, **container))
    assert words in warning
    assert bool(words) == bool(warning)
    assert "initContainers" not in spec
    assert c.ENV_MODE not in environment(spec)


def test_a_path_in_env_goes_before_what_envfrom_may_hold(guarded: ClusterSession) -> None:
    container = {"envFrom": [{"configMapRef": {"name": "settings"}}], "env": [{"name": "PYTHONPATH", "value": "/app"}]}
    spec, warning = admitted(guarded, pod(**container))
    assert (environment(spec)["PYTHONPATH"], warning) == (f"{injection.BOOTSTRAP}:/app", "")
