"""Checks of what the operator is told to work with: whether the cluster serves the kinds of Kueue and cluster-autoscaler. Pure
functions of a reading.
"""

from collections.abc import Iterator
from typing import Final

from kompakt_cli.doctor_reading import ClusterReading, Items, operator_option, readable
from kompakt_cli.finding import Finding, ok, problem

KUEUE: Final = "Kueue"
AUTOSCALER: Final = "autoscaler"


def kueue(reading: ClusterReading) -> Iterator[Finding]:
    """Nothing where the operator does not ask it."""
    if operator_option(reading, "--kueue=") == "true":
        served = _serves(reading.kueue_kinds, "workloads")
        cure = "install Kueue, or set kueue.enabled=false"
        found = "is asked when jobs in queues may run"
        yield ok(KUEUE, found) if served else problem(KUEUE, "its Workloads are not served", cure)


def autoscaler(reading: ClusterReading) -> Iterator[Finding]:
    """Nothing where no autoscaler is asked for nodes."""
    if name := operator_option(reading, "--provisioning-class="):
        served = _serves(reading.autoscaler_kinds, "provisioningrequests")
        cure = "install the CRD of cluster-autoscaler, or leave autoscaler.provisioningClassName empty"
        found = f"is asked for nodes by class {name}"
        yield ok(AUTOSCALER, found) if served else problem(AUTOSCALER, "ProvisioningRequests are not served", cure)


def _serves(kinds: Items, plural: str) -> bool:
    return any(one.get("name") == plural for one in readable(kinds))
