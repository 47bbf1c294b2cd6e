"""By which name containers get a node's GPUs, and from whom."""

from dataclasses import dataclass
from enum import StrEnum

from kompakt_core import contract


class Allocation(StrEnum):
    """Who hands out the GPUs: this plugin, or somebody else, and this one only reports."""

    DEVICE_PLUGIN = "device-plugin"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class GpuResource:
    """`name`: the extended resource that pods ask for."""

    name: str = contract.RESOURCE
    allocation: Allocation = Allocation.DEVICE_PLUGIN

    @property
    def ours(self) -> bool:
        """Whether kompakt hands it out."""
        return self.allocation is Allocation.DEVICE_PLUGIN


DEFAULT = GpuResource()
