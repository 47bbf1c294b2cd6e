"""What the API server's rejection of one of the gang's objects means for the job: data, of which a condition is made at last."""

import re
from dataclasses import dataclass, replace
from typing import Final

from kompakt_core.contract.conditions import Condition, ConditionReason, Type, condition
from kompakt_operator import provisioning
from kompakt_operator.kueue import API_VERSION, KIND
from kompakt_operator.perform import NameTaken, NotMade

# Kubernetes has no reason of its own for these two: only its words tell them from other rejections with the same code.
QUOTA: Final = "exceeded quota"  # how the ResourceQuota admission plugin words its rejection
# How those of webhooks and admission policies begin, whatever code their author chose: a policy may change, a template not.
DENIED: Final = re.compile(r"^admission webhook \"|ValidatingAdmissionPolicy '[^']*' with binding ")
NO_KUEUE: Final = f"the cluster serves no Workloads of Kueue ({API_VERSION})"
FOR_NODES: Final = frozenset({provisioning.KIND, "PodTemplate"})
UNREADABLE: Final = frozenset({400, 422})  # 400 is what cannot be read as such an object at all: a memory limit of "x"


@dataclass(frozen=True, slots=True)
class ObjectRejection:
    """Why an object of the gang was not made. `shown_as`: the condition of the job that says so; `final`: trying again is no use.

    `detail`: what the API server said. `of_gang`: the gang cannot be without it.
    """

    reason: str
    final: bool
    detail: str
    shown_as: Type
    of_gang: bool = True

    @property
    def condition(self) -> Condition:
        """For the job's owner."""
        return condition(self.shown_as, True, self.reason, self.detail)


def judged(rejected: NotMade | NameTaken) -> ObjectRejection | None:
    """What it means for the job; None where it only asks for a requeue."""
    found = _judged(rejected)
    return found if found is None else replace(found, of_gang=rejected.kind not in FOR_NODES)


def _judged(rejected: NotMade | NameTaken) -> ObjectRejection | None:
    if isinstance(rejected, NameTaken):
        return ObjectRejection(ConditionReason.NAME_TAKEN, False, str(rejected), Type.STALLED)
    if rejected.status == 403 and QUOTA in rejected.message:
        return ObjectRejection(ConditionReason.QUOTA_EXCEEDED, False, rejected.message, Type.RECONCILING)
    if rejected.kind == KIND and rejected.status == 404:
        return ObjectRejection(ConditionReason.QUEUES_NOT_SERVED, False, NO_KUEUE, Type.STALLED)
    denied = rejected.status == 403 or DENIED.search(rejected.message) is not None
    if rejected.kind == "Pod" and rejected.status in UNREADABLE and not denied:
        return ObjectRejection(ConditionReason.INVALID_TEMPLATE, True, rejected.message, Type.FAILED)
    if denied or rejected.status in UNREADABLE or (rejected.kind in FOR_NODES and rejected.status == 404):
        # Of other kinds nothing comes from the template: what spoils or refuses them is the cluster's, and may be mended there.
        words = rejected.message if rejected.kind == "Pod" else f"{rejected.kind} {rejected.name}: {rejected.message}"
        return ObjectRejection(f"{rejected.kind}sForbidden", False, words, Type.STALLED)
    return None
