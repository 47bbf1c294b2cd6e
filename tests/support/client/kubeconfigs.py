"""A kubeconfig with one context, in a file."""

from pathlib import Path
from typing import Any

import yaml

Fields = dict[str, Any] | None


def write_kubeconfig(
    path: Path, server: str, *, name: str = "c", cluster: Fields = None, user: Fields = None, namespace: str = "default"
) -> Path:
    """`name` is that of context, cluster and user; the context is current."""
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path
