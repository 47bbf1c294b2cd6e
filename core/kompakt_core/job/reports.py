"""Figures that the runtime leaves in the termination message of each worker, merged over the gang."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from kompakt_core import contract

SUMMED: Final = ("ranks", "plainBytes", "savedBytes", "violations")
SHOWN: Final = ("mode", "target", "denominator")
# What the runtime may have measured, the better first, and of what it is a percentage.
OVERHEAD: Final = {
    "percent": "time of a step without compression: steps with and without were trained in turn",
    "codecPercent": "time of a step besides packing and unpacking, whose times were summed; no steps without were compared",
}
PERCENT: Final = re.compile(r"-?[0-9]{1,6}\.[0-9]", re.ASCII)
LARGEST: Final = 1 << 50  # a petabyte: what is above it is no count of bytes, and a sum over workers still fits int64
LIMIT: Final = 4096  # kubelet's own limit of a termination message


def read_report(message: str) -> dict[str, Any] | None:
    """The runtime's line in a termination message: its last line that is a JSON object of our version; None without one."""
    for line in reversed(message[-LIMIT:].splitlines()):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("kompakt") == contract.TERMINATION_VERSION:
            return found
    return None


def count(report: Mapping[str, Any], key: str) -> int:
    """A field that counts something; 0 where the pod's owner wrote what cannot be a count."""
    value = report.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST else 0


def merged(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """status.compression from the reports of one attempt's workers; empty without any.

    ratio = sum of plainBytes / sum of savedBytes, over all workers: bytes weigh, not workers.
    """
    found = list(reports)
    if not found:
        return {}
    idle = [report for report in found if report.get("active") is not True]
    result: dict[str, Any] = {"active": not idle, "reason": str((idle or found)[0].get("reason", "Unknown"))[:256]}
    result |= {key: str(found[0][key])[:256] for key in SHOWN if key in found[0]}
    result |= {key: sum(count(report, key) for report in found) for key in SUMMED}
    result["steps"] = max(count(report, "steps") for report in found)
    result["complete"] = all(report.get("complete") is True for report in found)
    result["raw"] = _raw(found)
    result |= _smallest_batch(found) | _highest_overhead(found)
    if result["savedBytes"]:
        ratio = Decimal(result["plainBytes"]) / Decimal(result["savedBytes"])
        result["ratio"] = str(ratio.quantize(Decimal("0.01"), ROUND_HALF_EVEN))
    return result


def _smallest_batch(reports: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The smallest suggestion of all workers beside the batch of that one; nothing unless each has one."""
    pairs = [(count(report, "suggestedBatch"), count(report, "batch")) for report in reports]
    suggested, batch = min(pairs)
    return {"batch": batch, "suggestedBatch": suggested} if suggested and batch else {}


def _highest_overhead(reports: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What compression costs in time, of the worker with most, by the best way that all workers could measure; else nothing."""
    told = [report["overhead"] if isinstance(report.get("overhead"), Mapping) else {} for report in reports]
    for name, words in OVERHEAD.items():
        found = [text for costs in told if (text := costs.get(name)) is not None and _is_percent(text)]
        if len(found) == len(told):
            return {"overheadPercent": max(found, key=float), "overheadDenominator": words}
    return {}


def _is_percent(text: object) -> bool:
    return isinstance(text, str) and PERCENT.fullmatch(text) is not None


def _raw(reports: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many tensors were kept plain, by reason, over all workers."""
    total: Counter[str] = Counter()
    for report in reports:
        raw = report.get("raw")
        if isinstance(raw, Mapping):
            total.update({str(reason)[:64]: count(raw, reason) for reason in raw})
    return dict(sorted(total.items()))
