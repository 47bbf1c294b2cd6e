"""Checks where a driver hands out GPUs by the claims of kompakt's planner: its DeviceClass, and which GPUs it publishes. Pure
functions of a reading.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kompakt_cli.doctor_reading import ClusterReading, by_claims, planner_option, readable
from kompakt_cli.finding import Finding, ok, problem, some, warning
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.contract.offered_devices import NOT_PUBLISHED, OFFERED, offers
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.wire import graph_from_spec

CHECK: Final = "claimed GPUs"


def devices(reading: ClusterReading) -> ClaimedDevices:
    """For what the planner writes claims, by its options."""
    words = (planner_option(reading, option) for option in ("--device-class=", "--dra-driver=", "--device-key="))
    return ClaimedDevices(*words)


def claimed_gpus(reading: ClusterReading) -> Iterator[Finding]:
    """What no claim of kompakt could be given. Nothing where GPUs come by a device plugin."""
    if not by_claims(reading):
        return
    wanted = devices(reading)
    if all(one["metadata"]["name"] != wanted.device_class for one in readable(reading.device_classes)):
        cure = f"{wanted.driver}'s own chart makes it; or set resourceClaims.deviceClass to one of: kubectl get deviceclasses"
        yield problem(CHECK, f"there is no DeviceClass {wanted.device_class}: no claim of kompakt is allocated", cure)
        return
    kept = dict(_kept_off(reading, offers(readable(reading.slices), readable(reading.taint_rules), wanted)))
    missing = {name: problems for name, problems in kept.items() if NOT_PUBLISHED in problems.values()}
    if missing:
        cure = (
            f"kubectl get resourceslices --field-selector=spec.driver={wanted.driver} -o yaml: does the driver run there, "
            f"and is resourceClaims.key ({wanted.key}) the attribute with the UUID?"
        )
        names = [f"{name} ({len(problems)})" for name, problems in sorted(missing.items())]
        yield problem(CHECK, f"{wanted.driver} publishes no device for GPUs of {some(names)}: nothing is planned on these", cure)
    tainted = [
        f"{name} GPU {gpu}" for name, found in sorted(kept.items()) for gpu, word in found.items() if word != NOT_PUBLISHED
    ]
    if tainted:
        cure = (
            "kubectl get resourceslices,devicetaintrules -o yaml says by which taint, and whether several claims share the device"
        )
        yield warning(CHECK, f"tainted or shared, so nothing is planned on them: {some(tainted)}", cure)
    if not kept:
        yield ok(CHECK, f"{wanted.driver} publishes every GPU")


def _kept_off(reading: ClusterReading, offered: Mapping[GpuUuid, str]) -> Iterator[tuple[str, dict[int, str]]]:
    """Of each node with such GPUs, why by index. What cannot be read is for the check of link graphs."""
    for one in readable(reading.topologies):
        with suppress(InvalidInput):
            gpus = graph_from_spec(one.get("spec") or {}).gpus
            words: dict[int, str] = {gpu.index: offered.get(gpu.uuid, NOT_PUBLISHED) for gpu in gpus}
            found = {index: word for index, word in words.items() if word != OFFERED}
            if found:
                yield str(one["metadata"]["name"]), found
