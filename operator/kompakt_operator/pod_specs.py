"""Pods as others need them who count what they take: Kueue and autoscalers. Pure."""

from collections.abc import Mapping
from typing import Any

from kompakt_core.contract import expected_pods

Object = dict[str, Any]


def sized(pod: Mapping[str, Any]) -> Object:
    """The spec with what a pod's size and nodes depend on. Images are part of it: PodTemplates need them.

    `pod`: as the API server would admit it.
    """
    images = {one["name"]: one["image"] for one in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ()))}
    spec: Object = expected_pods.trimmed(pod)["spec"]
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [{**one, "image": images[one["name"]]} for one in spec[name]]
    return spec
