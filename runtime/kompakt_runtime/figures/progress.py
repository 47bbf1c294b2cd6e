"""How far the training is: a small file that the user's script may write, and the page that shows it.

The file named by KOMPAKT_PROGRESS_FILE holds one JSON object, {"step": 120, "total": 1000, "loss": 0.53,
"samplesPerSecond": 812.4}; all but `step` may be missing. What is right is taken, the rest left out. No torch here.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kompakt_runtime.figures.pace import METRICS as PACE

MOST_BYTES: Final = 4096
LARGEST: Final = 1 << 53  # whole numbers up to here survive every reader's floating point
# Field of the file -> name and help on the page.
METRICS: Final = {
    "step": ("kompakt_progress_step", "Optimizer steps done, as the script says."),
    "total": ("kompakt_progress_total_steps", "Optimizer steps to do in all, as the script says."),
    "loss": ("kompakt_progress_loss", "Last loss, as the script says."),
    "samplesPerSecond": ("kompakt_progress_samples_per_second", "Samples per second, as the script says."),
}
WHOLE: Final = ("step", "total")
SUMS: Final = {
    "plainBytes": ("kompakt_activation_plain_bytes_total", "Bytes that plain autograd would have kept for backward passes."),
    "savedBytes": ("kompakt_activation_saved_bytes_total", "Bytes that were kept instead."),
}

# Field of a process's `peak` -> name and help; of the rank that held most.
PEAKS: Final = {
    "bytes": ("kompakt_activation_peak_bytes", "The most bytes held for backward passes at a time."),
    "lastBytes": ("kompakt_activation_step_peak_bytes", "The same in the last step."),
    "plainBytes": ("kompakt_activation_plain_peak_bytes", "The most that plain autograd would have held at a time."),
    "reservedBytes": ("kompakt_reserved_bytes", "The most that PyTorch had taken from the GPU."),
    "allocatedBytes": ("kompakt_allocated_bytes", "The most of it that tensors had at a time."),
}
PASSED: Final = ("kompakt_activation_raw_bytes_total", "Bytes that were kept as they are, by reason.")

Progress = dict[str, Any]


def read(path: str | None) -> Progress:
    """What the file says; empty without a file, and for one that is no JSON object or names no step."""
    if path is None:
        return {}
    try:
        with Path(path).open("rb") as file:
            found = json.loads(file.read(MOST_BYTES + 1)[:MOST_BYTES])
    except (OSError, ValueError, RecursionError):
        return {}
    good = (
        {name: found[name] for name in METRICS if name in found and _is_right(name, found[name])}
        if isinstance(found, dict)
        else {}
    )
    return good if "step" in good else {}


def _is_right(name: str, value: object) -> bool:
    """A loss may be NaN: that is worth seeing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name in WHOLE:
        return isinstance(value, int) and 0 <= value <= LARGEST
    return name == "loss" or (math.isfinite(value) and value >= 0)


def page(progress: Mapping[str, Any], pace: Mapping[str, Any], reports: Iterable[Mapping[str, Any]]) -> str:
    """In the exposition format of Prometheus; `pace`: Pace.said; `reports`: export.read_reports."""
    lines = [_metric(*METRICS[name], "gauge", value) for name, value in progress.items()]
    lines += [_metric(*PACE[name], "gauge", value) for name, value in pace.items()]
    rows = [row for row in reports if row.get("forwards")]
    if rows:
        lines += [_metric(*words, "counter", sum(row[name] for row in rows)) for name, words in SUMS.items()]
        worst = max((row.get("peak") or {"bytes": 0} for row in rows), key=lambda peak: int(peak["bytes"]))
        lines += [_metric(*PEAKS[name], "gauge", worst[name]) for name in PEAKS if worst.get(name)]
        lines += _by_reason(rows)
    return "".join(lines)


def _by_reason(rows: list[Mapping[str, Any]]) -> list[str]:
    nbytes: Counter[str] = Counter()
    for row in rows:
        nbytes.update(row.get("rawBytes", {}))
    name, words = PASSED
    lines = [f'{name}{{reason="{reason}"}} {count}\n' for reason, count in sorted(nbytes.items())]
    return [f"# HELP {name} {words}\n# TYPE {name} counter\n", *lines] if lines else []


def _metric(name: str, words: str, kind: str, value: float) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{name} {_number(value)}\n"


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)
