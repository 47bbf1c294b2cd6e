"""Figures leave the process as one small file per rank; the last words of a pod are the sum of its files.

The file's name holds attempt and process id. It is replaced by an atomic rename, so a reader sees an old or a new one,
never half of one. No torch here: a process that fails at start-up reports by the same way.
"""

import contextlib
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import progress
from kompakt_runtime.figures.counted import COMPILED, SWITCHED_OFF, Figures

VERSION: Final = 1  # of the line in the termination message
MOST_BYTES: Final = 2048
DENOMINATOR: Final = "bytes of unique storages that plain autograd keeps only for the backward pass"
ACTIVE: Final = "Active"
NO_TRAINING: Final = "NoTraining"
PAGE_MARK: Final = "# kompakt "  # begins a line of the page of metrics: a comment to all but the operator
EARLY_STEPS: Final = 8  # before, that nothing is compressed yet says nothing
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
# Sums over ranks, and what is counted per rank alike.
SUMS: Final = ("plainBytes", "savedBytes", "heldBytes", "violations")

Report = dict[str, Any]


def report(figures: Figures, failure: str = "", pace: Mapping[str, Any] = NOTHING, ended: bool = False) -> Report:
    """One process's figures; `failure`: why compression never came up; `pace`: as Pace.said; `ended`: nothing will follow."""
    with figures.lock:
        return {
            "reason": failure or figures.failure,
            "ended": ended or figures.measured,
            "forwards": figures.forwards,
            "steps": figures.steps,
            "plainBytes": figures.plain_bytes,
            "savedBytes": figures.saved_bytes,
            "heldBytes": figures.held_bytes,
            "compressed": figures.compressed,
            "checked": figures.checked,
            "violations": figures.violations,
            "switchedOff": figures.switched_off,
            "encoder": figures.encoder,
            "batch": figures.batch,
            "suggestedBatch": figures.suggested_batch,
            "batchMemory": list(figures.batch_memory),
            "measured": figures.measured,
            "pace": dict(pace),
            "overhead": dict(figures.overhead()),
            "overheadSteps": list(figures.overhead_steps()),
            "away": figures.away.said(),
            "peak": figures.holding.said(),
            "budget": dict(figures.budget()),
            "compared": dict(figures.compared()),
            "raw": dict(figures.raw),
            "rawBytes": dict(figures.raw_bytes),
            "keptModules": figures.kept.rows(),
            "overridesMatched": sorted(figures.overrides_matched),
            "noRow": {place: [tensors, nbytes] for place, tensors, nbytes in figures.unknown.rows()},
            "rowsTried": [[tried.place, tried.doubt, tried.seconds] for tried in figures.tried],
            "layers": {
                name: {
                    "plainBytes": row.plain,
                    "savedBytes": row.saved,
                    "outliers": row.outliers,
                    "bound": row.bound,
                    "error": row.error,
                    "sigma": row.sigma,
                    "first": row.first,
                }
                for name, row in figures.layers.items()
            },
        }


def write_report(directory: str, attempt: int, row: Report) -> None:
    """Replaces this process's file."""
    path = Path(directory) / f"figures-{attempt}-{os.getpid()}.json"
    half = path.with_suffix(".part")
    half.write_text(json.dumps(row))
    half.replace(path)


def read_reports(directory: str, attempt: int) -> list[Report]:
    """All processes' files of this attempt; a broken one is left out."""
    rows = []
    for path in sorted(Path(directory).glob(f"figures-{attempt}-*.json")):
        with contextlib.suppress(OSError, ValueError):
            row = json.loads(path.read_text())
            if isinstance(row, dict):
                rows.append(row)
    return rows


def merged(config: RuntimeConfig, rows: list[Report]) -> Report:
    """One pod's summary. Processes that never trained (launchers, data loaders) count only if none did."""
    trained = [row for row in rows if row["forwards"]] or rows
    raw: Counter[str] = Counter()
    for row in trained:
        raw.update(row["raw"])
    sums = {name: sum(row[name] for row in trained) for name in SUMS}
    active, reason = _state(config, trained)
    summary = {
        "kompakt": VERSION,
        "attempt": config.attempt,
        "ranks": sum(1 for row in trained if row["forwards"]),
        "active": active,
        "reason": reason,
        "complete": all(row["ended"] for row in trained),
        "mode": config.mode,
        "target": config.target,
        "plainBytes": sums["plainBytes"],
        "savedBytes": sums["savedBytes"],
        "ratio": f"{sums['plainBytes'] / max(1, sums['savedBytes']):.2f}" if sums["plainBytes"] else "1.00",
        "denominator": DENOMINATOR,
        "heldBytes": sums["heldBytes"],
        "steps": max((row["steps"] for row in trained), default=0),
        "raw": dict(raw.most_common(16)),
        "violations": sums["violations"],
        "encoder": "; ".join(sorted({row["encoder"] for row in trained if row["encoder"]}))[:128],
    }
    summary |= smallest_batch(trained)
    if costs := highest_overhead(trained):
        summary["overhead"] = costs
    if away := in_host_memory(trained):
        summary["offload"] = away
    if peak := highest_peak(trained):
        summary["peak"] = {name: value for name, value in peak.items() if name != "lastTensor"}
    if budget := tightest_budget(trained):
        summary["budget"] = {name: value for name, value in budget.items() if name != "earlier"}
    if nbytes := kept_bytes(trained):
        summary["rawBytes"] = dict(nbytes.most_common(8))
    if any(row["measured"] for row in trained):
        summary["batchMeasured"] = True
    if said := progress.read(config.progress_file):
        summary["progress"] = said
    if paces := [row["pace"] for row in rows if row.get("pace")]:
        summary["pace"] = max(paces, key=lambda pace: float(pace["stepSeconds"]))
    if len(json.dumps(summary)) > MOST_BYTES:
        summary["raw"] = dict(raw.most_common(4))
        summary.get("offload", {}).pop("reasons", None)
        summary.pop("rawBytes", None)
    return summary


def so_far(config: RuntimeConfig, rows: list[Report]) -> str:
    """One pod's summary as a line of the page of metrics; "" while there is nothing to tell."""
    told = any(row["compressed"] or row["reason"] or row["steps"] >= EARLY_STEPS for row in rows)
    return f"{PAGE_MARK}{json.dumps(merged(config, rows))}\n" if told else ""


def smallest_batch(rows: list[Report]) -> Report:
    """The smallest suggestion of all ranks and the batch that rank had; nothing unless each rank has one."""
    row = min(rows, key=lambda row: int(row["suggestedBatch"]), default={})
    if not row.get("suggestedBatch"):
        return {}
    return {"batch": row["batch"], "suggestedBatch": row["suggestedBatch"]}


def batch_memory(rows: list[Report]) -> tuple[int, str]:
    """Bytes that this suggestion rests on, and whose limit that is."""
    row = min(rows, key=lambda row: int(row["suggestedBatch"]), default={})
    nbytes, whose = row.get("batchMemory", (0, ""))
    return int(nbytes), str(whose)


def highest_overhead(rows: list[Report]) -> dict[str, str]:
    """What each rank knows of (see Overhead.said), of the rank with most: where one waits for another all take that long."""
    names = set.intersection(*(set(row["overhead"]) for row in rows)) if rows else set()
    return {name: max((row["overhead"][name] for row in rows), key=float) for name in sorted(names)}


def highest_peak(rows: list[Report]) -> Report:
    """Of the rank that held most at a time; {} where none held anything."""
    return dict(max((row["peak"] for row in rows if row.get("peak")), key=lambda peak: int(peak["bytes"]), default={}))


def tightest_budget(rows: list[Report]) -> Report:
    """Of the rank whose plan needs most of its budget; {} where nobody was given one, or nothing is planned yet."""
    found = (row["budget"] for row in rows if row.get("budget"))
    return dict(max(found, key=lambda budget: float(budget["peakBytes"]) / max(1.0, float(budget["bytes"])), default={}))


def kept_bytes(rows: list[Report]) -> Counter[str]:
    """Bytes that stayed as they are, by reason."""
    nbytes: Counter[str] = Counter()
    for row in rows:
        nbytes.update(row.get("rawBytes", {}))
    return nbytes


def in_host_memory(rows: list[Report]) -> Report:
    """What waited there, summed over ranks, and why the rest stayed; {} where nobody asked for it."""
    found = [row["away"] for row in rows if row["away"]]
    reasons: Counter[str] = Counter()
    for away in found:
        reasons.update(away["reasons"])
    sums = {name: sum(away[name] for away in found) for name in ("tensors", "bytes", "late")}
    return {**sums, "reasons": dict(reasons.most_common(8))} if found else {}


def _state(config: RuntimeConfig, rows: list[Report]) -> tuple[bool, str]:
    failures = [row["reason"] for row in rows if row["reason"]]
    if failures:
        return False, str(failures[0])
    if any(row.get("switchedOff") for row in rows):
        return False, SWITCHED_OFF
    if any(row["compressed"] for row in rows):
        return True, ACTIVE
    if config.mode == "None":
        return False, "ModeNone"
    if not any(row["forwards"] for row in rows):
        return False, COMPILED if any(row["raw"].get(COMPILED) for row in rows) else NO_TRAINING
    return False, "NothingCompressed"


def write_words(config: RuntimeConfig, row: Report) -> None:
    """Writes this process's file and then the pod's summary; whoever ends last writes the complete one."""
    if config.state_dir is None:
        rows = [row]
        write_termination(config.termination_log, merged(config, rows))
        return
    with alone(config.state_dir):
        write_report(config.state_dir, config.attempt, row)
        write_termination(config.termination_log, merged(config, read_reports(config.state_dir, config.attempt)))


@contextlib.contextmanager
def alone(directory: str) -> Iterator[None]:
    """One process of the pod at a time; the lock goes with the process, however it ends."""
    with open(Path(directory) / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_termination(path: str, summary: Report) -> None:
    """Only where Kubernetes put the file (or a person named one): outside a pod nothing is left behind in /dev.

    The file is mounted, so it cannot be exchanged for another. One write of less than a page, and only then what was longer
    before is cut off: whenever the process is killed, the last line that can be read is an old or a new summary.
    """
    try:
        file = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return
    try:
        words = (json.dumps(summary) + "\n").encode()
        os.pwrite(file, words, 0)
        os.ftruncate(file, len(words))
    finally:
        os.close(file)
