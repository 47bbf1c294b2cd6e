"""Pods of nobody's job."""

from typing import Any

from kompakt_core import contract as c


def gpu_pod(name: str, gpus: int, notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """One that asks for so many GPUs, of our scheduler."""
    container = {"name": "main", "image": "simulated", "resources": {"limits": {c.RESOURCE: str(gpus)} if gpus else {}}}
    usual = {"schedulerName": c.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name, "annotations": notes or {}}, "spec": {**usual, **spec}}
