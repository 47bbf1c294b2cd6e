"""Figures that the runtime leaves in each worker's termination message, and shows so far on its page of metrics: read, merged."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
# What can be, whatever a pod claims. Bytes summed over steps: of 8 ranks with 100 GB each, a million steps are below it.
LARGEST: Final = 1 << 60
MOST_AT_ONCE: Final = 1 << 44  # bytes that one rank has at a time: more than any machine
MOST_RANKS: Final = 1 << 10  # of one pod
MOST_SHOWN: Final = (1 << 63) - 1  # what an object's field holds; a sum over thousands of workers may be more
# The codec keeps 8 bytes or more of a tile of 2,048 numbers, which are of 8 bytes or fewer.
MOST_RATIO: Final = Decimal(2048)
LIMIT: Final = 4096  # kubelet's own limit of a termination message
PAGE_MARK: Final = "# kompakt "  # begins the line of a page of metrics that has the summary (the runtime repeats it)
# What grows all the time and, by itself, is not worth a write of the status.
GROWING: Final = frozenset(
    {"plainBytes", "savedBytes", "steps", "ratio", "raw", "rawBytes", "offloadedBytes", "offloadReasons"}
    | {"memoryBudget"}
    | {"peakBytes", "plainPeakBytes", "peakStep", "peakTensor", "reservedBytes", "allocatedBytes"}
)
UNREADABLE: Final = "Unreadable"  # in place of what is no word
NOTEWORTHY: Final = 0.01  # by what share of itself a ratio or a peak changes before that is news
# Fields of the summary's `budget`, which are those of the status: bytes, and milliseconds as numbers.
BUDGET_BYTES: Final = ("bytes", "peakBytes", "leastBytes", "plainBytes")
BUDGET_TIMES: Final = ("milliseconds", "allMilliseconds", "moreMilliseconds")
MOST_TIME: Final = 1e9  # milliseconds; no step takes days
# Field of the summary's `peak` -> field of the status.
PEAK: Final = {
    "bytes": "peakBytes", "plainBytes": "plainPeakBytes", "step": "peakStep", "reservedBytes": "reservedBytes",
    "allocatedBytes": "allocatedBytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """What a pod's page last said; `pod`: its uid."""

    pod: str
    report: Mapping[str, Any]


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


def read_page(page: str) -> dict[str, Any] | None:
    """The summary so far on a page of metrics; None without one."""
    line = next((line for line in page.splitlines() if line.startswith(PAGE_MARK)), "")
    return read_report(line.removeprefix(PAGE_MARK))


def is_news(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Whether a pod's summary changed by more than that the training went on."""
    if before is None or now is None:
        return now is not None
    old, new = merged([before]), merged([now])
    steady = [{**{k: v for k, v in found.items() if k not in GROWING}, "raw": set(found["raw"])} for found in (old, new)]
    if _within(old) != _within(new):
        return True
    return steady[0] != steady[1] or any(_moved(old, new, name) for name in ("ratio", "peakBytes"))


def _within(found: Mapping[str, Any]) -> bool | None:
    """Whether a step is within its budget of memory; None without a plan."""
    budget = found.get("memoryBudget")
    return None if budget is None else bool(budget["peakBytes"] <= budget["bytes"])


def _moved(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    before, now = float(old.get(name, 0)), float(new.get(name, 0))
    return abs(now - before) > NOTEWORTHY * before


def count(report: Mapping[str, Any], key: str, most: int = LARGEST) -> int:
    """A field that counts something; 0 where the pod's owner wrote what cannot be."""
    value = report.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0


def merged(reports: Iterable[Mapping[str, Any]], workers: int = 0) -> dict[str, Any]:
    """status.compression from the reports of one attempt's workers; empty without any. With fewer than `workers` not complete.

    ratio = sum of plainBytes / sum of savedBytes, over all workers: bytes weigh, not workers. What the codec cannot do is cut.
    """
    found = list(reports)
    if not found:
        return {}
    idle = [report for report in found if report.get("active") is not True]
    result: dict[str, Any] = {"active": not idle, "reason": _words((idle or found)[0].get("reason", "Unknown"))}
    result |= {key: _words(found[0][key]) for key in SHOWN if key in found[0]}
    sums = {key: sum(count(report, key, MOST_RANKS if key == "ranks" else LARGEST) for report in found) for key in SUMMED}
    result |= {key: min(total, MOST_SHOWN) for key, total in sums.items()}
    result["steps"] = max(count(report, "steps") for report in found)
    result["complete"] = len(found) >= workers and all(report.get("complete") is True for report in found)
    result["raw"] = _reasons(report.get("raw") for report in found)
    if any("rawBytes" in report for report in found):
        result["rawBytes"] = _reasons(report.get("rawBytes") for report in found)
    result |= _highest_peak(found)
    result |= _tightest_budget(found)
    result |= _offloaded([away for report in found if isinstance(away := report.get("offload"), Mapping)])
    result |= _smallest_batch(found) | _highest_overhead(found)
    if sums["savedBytes"]:
        ratio = min(Decimal(sums["plainBytes"]) / Decimal(sums["savedBytes"]), MOST_RATIO)
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
    """A step can take a million percent longer, but never less than no time."""
    return isinstance(text, str) and PERCENT.fullmatch(text) is not None and float(text) >= -100


def _highest_peak(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the rank that held most at a time, over all workers: what it held, and what plain autograd would have held there."""
    told = [peak for report in reports if isinstance(peak := report.get("peak"), Mapping) and _held(peak, "bytes")]
    if not told:
        return {}
    worst = max(told, key=lambda peak: _held(peak, "bytes"))
    tensor = {"peakTensor": _words(worst["tensor"])} if "tensor" in worst else {}
    return {status: number for name, status in PEAK.items() if (number := _held(worst, name))} | tensor


def _held(peak: Mapping[str, Any], name: str) -> int:
    return count(peak, name, LARGEST if name == "step" else MOST_AT_ONCE)


def _tightest_budget(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the worker whose plan needs most of its budget; nothing where none has a plan."""
    told = [budget for report in reports if isinstance(budget := report.get("budget"), Mapping)]
    told = [budget for budget in told if all(count(budget, name, MOST_AT_ONCE) for name in BUDGET_BYTES)]
    if not told:
        return {}
    worst = max(told, key=lambda budget: budget["peakBytes"] / budget["bytes"])
    times = {name: f"{worst[name]:.3f}" for name in BUDGET_TIMES if _is_time(worst.get(name))}
    return {"memoryBudget": {**{name: worst[name] for name in BUDGET_BYTES}, **times}}


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TIME


def _offloaded(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What waited in host memory, and why the rest did not, over all workers that were asked for it; nothing without any."""
    sums = {"offloadedBytes": min(sum(count(away, "bytes") for away in told), MOST_SHOWN)}
    return {**sums, "offloadReasons": _reasons(away.get("reasons") for away in told)} if told else {}


def _reasons(told: Iterable[object]) -> dict[str, int]:
    """What is counted by reason (tensors that were kept plain, or their bytes), over all workers."""
    total: Counter[str] = Counter()
    for raw in told:
        if isinstance(raw, Mapping):
            total.update({_words(reason)[:64]: count(raw, reason) for reason in raw})
    return {reason: min(number, MOST_SHOWN) for reason, number in sorted(total.items())}


def _words(value: object) -> str:
    """What can be stored as it is and shown on one line: half of a surrogate pair, say, would never be read back as written.

    Lists and objects are no words; nested deeply enough they could not even be turned into some.
    """
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else UNREADABLE
    return "".join(filter(str.isprintable, text[:256]))
