"""CDI specifications in the form that nvidia-ctk gives them."""

from typing import Any

from kompakt_device_plugin.cdi import CDI_KIND


def spec(*names: str, kind: str = CDI_KIND) -> dict[str, Any]:
    """A specification that names these devices."""
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": name, "containerEdits": {}} for name in names]}
