"""What a refusal of one of the gang's objects says about the job: the condition that its owner reads."""

import re
from typing import Final

from kompakt_core.job.conditions import Condition, Type, condition
from kompakt_operator.perform import NameTaken, NotMade

QUOTA: Final = "exceeded quota"  # how the ResourceQuota admission plugin words its refusal
# How those of webhooks and admission policies begin, whatever code their author chose: a policy may change, a template not.
DENIED: Final = re.compile(r"^admission webhook \"|ValidatingAdmissionPolicy '[^']*' with binding ")
UNREADABLE: Final = frozenset({400, 422})  # 400 is what cannot be read as such an object at all: a memory limit of "x"


def judged(refusal: NotMade | NameTaken) -> tuple[Condition | None, bool]:
    """The condition for a refusal, and whether it is final; None for one that only says: look again."""
    if isinstance(refusal, NameTaken):
        return condition(Type.STALLED, True, "NameTaken", str(refusal)), False
    if refusal.status == 403 and QUOTA in refusal.message:
        return condition(Type.RECONCILING, True, "QuotaExceeded", refusal.message), False
    denied = refusal.status == 403 or DENIED.search(refusal.message) is not None
    if refusal.kind == "Pod" and refusal.status in UNREADABLE and not denied:
        return condition(Type.FAILED, True, "InvalidTemplate", refusal.message), True
    if denied or refusal.status in UNREADABLE:
        # Of other kinds nothing comes from the template: what spoils or refuses them is the cluster's, and may be mended there.
        words = refusal.message if refusal.kind == "Pod" else f"{refusal.kind} {refusal.name}: {refusal.message}"
        return condition(Type.STALLED, True, f"{refusal.kind}sForbidden", words), False
    return None, False
