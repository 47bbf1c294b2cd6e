"""Whether the pods of a gang that are still to be made fit into the namespace's ResourceQuotas: looked at before any is made.

Only pods and GPUs are counted, which a gang is short of as a whole; what else a quota bounds the API server says at the first pod
that it refuses. A quota with scopes counts some pods only, and is left to the API server as well.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.job.quantity import parse_amount

Object = Mapping[str, Any]
PODS: Final = ("pods", "count/pods")


def needed(gpus: Iterable[int], resource: str = contract.RESOURCE) -> dict[str, int]:
    """What pods with so many GPUs of that resource count for."""
    each = list(gpus)
    return {**dict.fromkeys(PODS, len(each)), f"requests.{resource}": sum(each)}


def exceeded(quotas: Iterable[Object], wanted: Mapping[str, int]) -> str:
    """Which quota that would exceed, in the words of the API server; "" for none."""
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for name, number in wanted.items():
            limit, taken = parse_amount(str(hard.get(name, ""))), parse_amount(str(used.get(name, "0")))
            if limit is not None and taken is not None and taken + number > limit:
                return (
                    f"exceeded quota: {quota['metadata']['name']}, requested: {name}={number}, "
                    f"used: {name}={used.get(name, '0')}, limited: {name}={hard[name]}"
                )
    return ""
