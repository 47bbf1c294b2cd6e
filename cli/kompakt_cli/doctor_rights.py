"""Checks of rights: what who asks may do, and whether the accounts of kompakt have their roles. Pure functions of a reading."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kompakt_cli.access import DEFAULT_SERVICE
from kompakt_cli.doctor_reading import AskedRight, ClusterReading, Item, Unread, is_part
from kompakt_cli.finding import Finding, not_checked, ok, problem, some, warning
from kompakt_core import contract
from kompakt_core.contract import gpu_claim

GROUP: Final = contract.GROUP
OPERATOR: Final = (
    ("watch", contract.JOB_PLURAL, GROUP),
    ("patch", f"{contract.JOB_PLURAL}/status", GROUP),
    ("create", "pods", ""),
    ("create", "services", ""),
)
KUEUE: Final = (("watch", "workloads", "kueue.x-k8s.io"), ("create", "workloads", "kueue.x-k8s.io"))
AUTOSCALER: Final = (
    ("watch", "provisioningrequests", "autoscaling.x-k8s.io"),
    ("create", "provisioningrequests", "autoscaling.x-k8s.io"),
    ("create", "podtemplates", ""),
)
SCHEDULER: Final = (
    ("watch", contract.JOB_PLURAL, GROUP),
    ("patch", f"{contract.JOB_PLURAL}/status", GROUP),
    ("watch", contract.TOPOLOGY_PLURAL, GROUP),
    ("watch", "nodes", ""),
    ("patch", "pods", ""),
)
BINDS: Final = ("create", "pods/binding", "")
CLAIMS: Final = (
    ("watch", gpu_claim.PLURAL, gpu_claim.GROUP),
    ("watch", "resourceslices", gpu_claim.GROUP),
    ("create", gpu_claim.PLURAL, gpu_claim.GROUP),
    ("delete", gpu_claim.PLURAL, gpu_claim.GROUP),
)
PLUGIN: Final = (
    ("watch", "pods", ""),
    ("patch", contract.TOPOLOGY_PLURAL, GROUP),
    ("patch", f"{contract.TOPOLOGY_PLURAL}/status", GROUP),
)
ACCOUNT: Final = "-device-plugin"


def own_rights(namespace: str, release: str) -> dict[AskedRight, str]:
    """What people need, and what it is for."""
    return {
        AskedRight("create", contract.JOB_PLURAL, GROUP, namespace): "run jobs",
        AskedRight("get", contract.JOB_PLURAL, GROUP, namespace): "see jobs",
        AskedRight("get", "pods/log", "", namespace): "read logs of workers",
        AskedRight("get", "services/proxy", "", release, f"{DEFAULT_SERVICE}:http"): "use kompakt explain",
        AskedRight("create", "services/proxy", "", release, f"{DEFAULT_SERVICE}:http"): "use kompakt what-if",
        AskedRight(
            "create", "serviceaccounts/token", "", release, f"{DEFAULT_SERVICE}-reader"
        ): "use kompakt explain without --account",
    }


def accounts_rights(deployments: Iterable[Item]) -> tuple[AskedRight, ...]:
    """What the parts need, by the names of their accounts; the operator perhaps in one namespace only."""
    found = list[AskedRight]()
    for one in deployments:
        pod = one["spec"]["template"]["spec"]
        account = pod.get("serviceAccountName", "")
        words = [word for container in pod["containers"] for word in container.get("args") or ()]
        if is_part(one, "operator"):
            only = next((word.partition("=")[2] for word in words if word.startswith("--namespace=")), "")
            found += [AskedRight(*row, namespace=only, account=account) for row in _of_operator(words)]
        elif is_part(one, "scheduler"):
            found += [AskedRight(*row, account=account) for row in _of_scheduler(words)]
            found += [AskedRight(*row, account=account.removesuffix("-scheduler") + ACCOUNT) for row in PLUGIN]
    return tuple(found)


def _of_operator(words: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """By its arguments: it works with Kueue, and asks an autoscaler for nodes."""
    yield from OPERATOR
    yield from KUEUE if "--kueue=true" in words else ()
    yield from AUTOSCALER if any(word.startswith("--provisioning-class=") and word[-1] != "=" for word in words) else ()


def _of_scheduler(words: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """By its arguments: it explains, or plans claims for another scheduler, or binds pods itself."""
    by_claims = any(word.startswith("--device-class=") for word in words)
    explains = "--explain-only=true" in words
    yield from (row for row in SCHEDULER if row[0] == "watch" or not explains)
    if not (explains or by_claims):
        yield BINDS
    yield from CLAIMS if by_claims else ()


def own(reading: ClusterReading) -> Iterator[Finding]:
    """What who asks may do."""
    purposes = own_rights(reading.namespace, reading.release)
    denied = [one for one in purposes if reading.rights.get(one) is False]
    unknown = [found for one in purposes if isinstance(found := reading.rights.get(one), Unread)]
    if unknown:
        yield not_checked("your rights", unknown[0].why, f"ask for the right to {unknown[0].right}")
    for one in denied:
        yield warning("your rights", f"you may not {one}, so you cannot {purposes[one]}", _cure(one, reading))
    if not (denied or unknown):
        yield ok("your rights", f"run jobs in namespace {reading.namespace}, read their logs, ask explain and what-if")


def _cure(denied: AskedRight, reading: ClusterReading) -> str:
    if denied.namespace == reading.release and denied.resource != contract.JOB_PLURAL:
        return "an administrator names you in the chart value explain.readers (docs/explain.md, Who may ask)"
    return f"an administrator runs: kubectl create rolebinding NAME --clusterrole=edit --user=YOU -n {reading.namespace}"


def of_accounts(reading: ClusterReading) -> Iterator[Finding]:
    """Whether the parts may do what they must."""
    asked = {one: may for one, may in reading.rights.items() if one.account}
    denied = [f"{one.account} may not {one}" for one, may in asked.items() if may is False]
    unknown = [may for may in asked.values() if isinstance(may, Unread)]
    if denied:
        cure = "helm upgrade writes the chart's roles anew; helm get manifest RELEASE shows which should be there"
        yield problem("roles of kompakt", some(denied), cure)
    elif unknown:
        yield not_checked("roles of kompakt", unknown[0].why, f"ask an administrator, who may {unknown[0].right}")
    elif asked:
        yield ok("roles of kompakt", f"{len({one.account for one in asked})} accounts have their roles")
    else:
        yield not_checked(
            "roles of kompakt", "no Deployment of kompakt names an account", "ask for the right to list deployments"
        )
