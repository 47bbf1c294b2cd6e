"""All checks of a cluster, each with what it needs to have read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kompakt_cli import doctor_claims, doctor_install, doctor_nodes, doctor_others, doctor_rights, doctor_waiting
from kompakt_cli.doctor_reading import AskedRight, ClusterReader, ClusterReading, Item, readable
from kompakt_cli.finding import Finding, not_checked, problem


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """`needs`: fields of the reading without which nothing can be said."""

    name: str
    needs: tuple[str, ...]
    look: Callable[[ClusterReading], Iterator[Finding]]


FIRST: Final = ClusterCheck("Kubernetes", (), doctor_install.kubernetes)
CHECKS: Final = (
    ClusterCheck("parts", ("deployments", "daemonsets", "parts"), doctor_install.parts),
    ClusterCheck("CRDs", ("kinds",), doctor_install.definitions),
    ClusterCheck("CRD schemas", ("definitions",), doctor_install.schemas),
    ClusterCheck("your rights", (), doctor_rights.own),
    ClusterCheck("roles of kompakt", ("deployments",), doctor_rights.of_accounts),
    ClusterCheck("Leases", ("leases",), doctor_install.leases),
    ClusterCheck("other device plugins", ("nodes", "topologies", "daemonsets", "pods"), doctor_nodes.other_plugins),
    ClusterCheck("node labels", ("nodes", "deployments", "daemonsets"), doctor_nodes.labels),
    ClusterCheck("GPU nodes", ("nodes",), doctor_nodes.gpu_nodes),
    ClusterCheck(doctor_claims.CHECK, ("deployments", "topologies", "device_classes", "slices"), doctor_claims.claimed_gpus),
    ClusterCheck("link graphs", ("nodes", "topologies"), doctor_nodes.link_graphs),
    ClusterCheck("container toolkit", ("topologies", "daemonsets"), doctor_nodes.container_toolkit),
    ClusterCheck("clock of this machine", (), doctor_install.own_clock),
    ClusterCheck("node clocks", ("node_leases",), doctor_install.node_clocks),
    ClusterCheck(doctor_others.KUEUE, ("deployments", "kueue_kinds"), doctor_others.kueue),
    ClusterCheck(doctor_others.AUTOSCALER, ("deployments", "autoscaler_kinds"), doctor_others.autoscaler),
    ClusterCheck("pods", ("pods",), doctor_waiting.pods),
    ClusterCheck("jobs", ("jobs",), doctor_waiting.jobs),
)
INSTALL: Final = (
    "helm install kompakt charts/kompakt -n {} --create-namespace (docs/install.md); --kompakt-namespace names another place"
)


def findings(reading: ClusterReading) -> list[Finding]:
    """All that can be said; where kompakt is not installed, only that."""
    first = list(FIRST.look(reading))
    if absent(reading):
        cure = INSTALL.format(reading.release)
        return [*first, problem("kompakt", f"is not installed in namespace {reading.release}: no CRD, no Deployment", cure)]
    return [*first, *(found for check in CHECKS for found in checked(check, reading))]


def absent(reading: ClusterReading) -> bool:
    """Whether nothing of kompakt is there."""
    seen = not reading.lacking("kinds", "deployments")
    return seen and not readable(reading.kinds) and not readable(reading.deployments)


def checked(check: ClusterCheck, reading: ClusterReading) -> Iterator[Finding]:
    """What a check finds, or which right it lacks."""
    lacking = reading.lacking(*check.needs)
    if lacking:
        rights = ", ".join(dict.fromkeys(one.right for one in lacking))
        yield not_checked(
            check.name, lacking[0].why, f"ask for the right to {rights}, or let an administrator run kompakt doctor"
        )
    else:
        yield from check.look(reading)


def read(kubeconfig: str | None, context: str | None, release: str) -> ClusterReading:
    """The cluster that kubectl would ask. Raises InvalidInput where there is none, or nobody answers."""
    from kompakt_cli.access import api_of

    api, namespace = api_of(kubeconfig, context)

    def wanted(deployments: tuple[Item, ...]) -> tuple[AskedRight, ...]:
        return (*doctor_rights.own_rights(namespace, release), *doctor_rights.accounts_rights(deployments))

    return ClusterReader(api, release, namespace).read(wanted)
