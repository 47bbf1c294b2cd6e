"""Which GPUs a claim of ours can be given: those that a driver for dynamic resource allocation publishes whole, for one claim
alone, and without a taint. Pure.

API resource.k8s.io/v1. Taints stand in ResourceSlices (drivers write there that a device is unhealthy) and in DeviceTaintRules
(administrators write these); both count alike (KEP-5055). Claims of ours tolerate none.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kompakt_core.contract.claimed_devices import PARENT, ClaimedDevice, entries, mapping, published, text_attribute
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.ids import GpuUuid

OFFERED: Final = ""
NOT_PUBLISHED: Final = "NotPublished"  # no device has the GPU's UUID
TAINTED: Final = "Tainted"
SHARED: Final = "Shared"  # several claims may be given the device at once
# Of an effect that is not known the API says: treat it as None.
_EFFECTS: Final = ("NoSchedule", "NoExecute")
Offers = Mapping[GpuUuid, str]


def offers(
    slices: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]], devices: ClaimedDevices
) -> dict[GpuUuid, str]:
    """Why a claim cannot be given a GPU, in a word, of each that the driver publishes whole; OFFERED where it can be.

    `rules`: DeviceTaintRules.
    """
    found: dict[GpuUuid, str] = {}
    rules = [spec for spec in (mapping(one.get("spec")) for one in rules) if _keeps_off(spec.get("taint"))]
    for device, raw in published(slices).items():
        uuid = text_attribute(device.driver, raw, devices.key)
        if device.driver == devices.driver and uuid and not text_attribute(device.driver, raw, PARENT):
            # NVIDIA's driver publishes a GPU a second time for virtual machines. Which of the two a DeviceClass selects is not
            # known here, so what keeps claims off one of them counts.
            found[GpuUuid(uuid)] = found.get(GpuUuid(uuid)) or _problem(device, raw, rules)
    return found


def _problem(device: ClaimedDevice, raw: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> str:
    if raw.get("allowMultipleAllocations") is True:
        return SHARED
    if any(map(_keeps_off, entries(raw.get("taints")))) or any(_selects(rule, device) for rule in rules):
        return TAINTED
    return OFFERED


def _keeps_off(taint: object) -> bool:
    return mapping(taint).get("effect") in _EFFECTS


def _selects(rule: Mapping[str, Any], device: ClaimedDevice) -> bool:
    """A rule without a selector selects nothing, an empty one everything."""
    selector = rule.get("deviceSelector")
    wanted = mapping(selector)
    asked = ((wanted.get("driver"), device.driver), (wanted.get("pool"), device.pool), (wanted.get("device"), device.name))
    return isinstance(selector, Mapping) and all(want is None or want == has for want, has in asked)
