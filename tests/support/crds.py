"""Our CRDs as they are in crds/."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).resolve().parents[2] / "crds"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def crd(name: str) -> dict[str, Any]:
    """The CRD of that plural, as a new object."""
    found: dict[str, Any] = yaml.load((CRDS / f"{name}.yaml").read_text(), Loader=LOADER)
    return found


@cache
def schema(name: str, *path: str) -> dict[str, Any]:
    """Its schema, or that of the field at the path; to be read only."""
    found: dict[str, Any] = crd(name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in path:
        found = found["properties"][field]
    return found
