"""Sentences below a report's table: what stayed as it is and where, what the first step did, what was not measured, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kompakt_runtime.config import RuntimeConfig, SiteOverride
from kompakt_runtime.figures import export
from kompakt_runtime.figures.kept import KeptModules, Row
from kompakt_runtime.report.rows import LayerReport, megabytes

MODULES: Final = 5  # named for each reason
FAR: Final = 2.0  # times the target, as the runtime tolerates where it measures
BATCH_STEPS: Final = 3  # as headroom.STEPS, which needs torch

Tried = Mapping[str, tuple[tuple[str, float], ...]]


def kept(raw: Mapping[str, int], sums: Mapping[str, int], modules: KeptModules, everything: bool) -> list[str]:
    """How much stayed as it is for which reason, and the modules that have most of it."""
    if not raw:
        return []
    rows = modules.rows()
    words = ", ".join(f"{reason} {raw[reason]}{_size(sums.get(reason, 0), rows.get(reason, []))}" for reason in raw)
    named = {reason: [row for row in rows.get(reason, []) if row[0]] for reason in raw}
    return [f"kept as it is: {words}", *(f"  {reason} in {_named(rows, everything)}" for reason, rows in named.items() if rows)]


def _size(nbytes: int, rows: list[Row]) -> str:
    held = sum(size for _, _, size in rows)
    if nbytes or not held:
        return f" ({megabytes(nbytes)} MB)" if nbytes else ""
    return f" ({megabytes(held)} MB that the program holds itself, in no sum)"


def _named(rows: list[Row], everything: bool) -> str:
    first = rows if everything else rows[:MODULES]
    words = [f"{module} {tensors} ({megabytes(nbytes)} MB)" for module, tensors, nbytes in first]
    rest = rows[len(first) :]
    more = [f"{len(rest)} more modules ({megabytes(sum(nbytes for _, _, nbytes in rest))} MB)"] if rest else []
    return ", ".join(words + more)


def in_the_first_step(layers: Iterable[LayerReport], target: str) -> list[str]:
    """What the model gives for the steps before a layer was measured."""
    firsts = [(layer.first, layer.name, layer.of_weights) for layer in layers if layer.first is not None]
    if not firsts:
        return []
    worst, name, of_weights = max(firsts)
    found = [f"before a layer was measured, as estimated afterwards: sigma at most {worst:.2f} of its target ({name})"]
    if worst > FAR:
        whose = "its weight gradient" if of_weights else "the gradient behind it"
        share = f"by the estimate {whose} was off by {worst * float(target):.0%} of a step"
        found.append(f"in that step {name} was far above its target: {share}; later steps have measured bounds")
    return found


def batch(rows: list[export.Report], config: RuntimeConfig, steps: int) -> list[str]:
    """How large a batch would fit and what that rests on, or why none is named; nothing where nobody asked."""
    if found := export.smallest_batch(rows):
        nbytes, whose = export.batch_memory(rows)
        memory = f", by {nbytes / 1e9:.1f} GB: {whose}" if nbytes else ""
        larger = f"at least a batch of {found['suggestedBatch']} would fit where {found['batch']} ran"
        return [f"{larger}, for each rank and forward pass{memory}"]
    if config.batch != "Suggest":
        return []
    if steps < BATCH_STEPS:
        return [f"no batch is suggested: that takes {BATCH_STEPS} optimizer steps, this run had {steps}"]
    return ["no batch is suggested: no module was given a tensor whose first dimension could be the batch, or none fits"]


def time_of_a_step(overhead: Mapping[str, str], counts: list[tuple[int, int]]) -> list[str]:
    """counts: of each process, steps that it takes to measure that and steps that there were."""
    if "percent" in overhead:
        return [f"a step takes {overhead['percent']} % longer than without compression (steps with and without, in turn)"]
    if "codecPercent" in overhead:
        return [f"packing and unpacking take {overhead['codecPercent']} % of a step's other time"]
    needed, had = min(counts, key=lambda one: one[1] - one[0], default=(0, 0))
    if not needed:
        return []
    if had < needed:
        return [f"time of a step: not measured; that takes {needed} optimizer steps, this run had {had}"]
    return [f"time of a step: not measured; too few of the first {had} optimizer steps ran undisturbed"]


def budget(found: Mapping[str, Any], config: RuntimeConfig) -> list[str]:
    """What a budget of memory costs and what more would buy, or one that is sure to work; nothing where nobody gave one."""
    if not found:
        asked, enough = config.memory_budget, "a plan takes four optimizer steps or more, of a few thousand tensors each"
        return [] if asked is None else [f"memory budget {asked.text}: all was packed; {enough}"]
    size = {name: f"{megabytes(found[name])} MB" for name in ("bytes", "peakBytes", "leastBytes", "plainBytes")}
    if not found["reached"]:
        workers = ", ".join(f"{megabytes(nbytes)} MB on {n} workers" for n, nbytes in found["sharded"].items())
        sharding = "sharding weights, gradients and optimizer state by FSDP2 would leave"
        shared = f"; {sharding} {workers}, by arithmetic" if workers else ""
        took = f"with all that may be packed a step takes {size['leastBytes']}; a budget of as much is sure to work"
        return [f"memory budget {found['asked']} ({size['bytes']}) not reached: {took}{shared}"]
    earlier = f"; plan of an earlier attempt: {found['earlier']}" if found.get("earlier") else ""
    return [
        f"memory budget {found['asked']} ({size['bytes']}): a step takes at most {size['peakBytes']} with {found['packed']} of"
        f" {found['layers']} layers packed, which cost {found['milliseconds']} ms of it; all packed: {size['leastBytes']},"
        f" {found['allMilliseconds']} ms; none: {size['plainBytes']}; 1 GiB more would save"
        f" {found['milliseconds'] - found['moreMilliseconds']:.3f} ms{earlier}"
    ]


def unmatched(overrides: Iterable[SiteOverride], matched: set[str]) -> list[str]:
    return [f"override '{one.modules}' matched no module" for one in overrides if one.modules not in matched]


def waited(away: Mapping[str, Any]) -> list[str]:
    """In host memory."""
    if not away:
        return []
    late = f", {away['late']} of them fetched only when they were wanted" if away["late"] else ""
    stayed = ", ".join(f"{reason} {count}" for reason, count in away["reasons"].items())
    return [
        f"waited in host memory: {megabytes(away['bytes'])} MB in {away['tensors']} tensors{late}",
        *([f"stayed on the device: {stayed}"] if stayed else []),
    ]


def no_row_of(rows: list[export.Report]) -> dict[str, tuple[int, int]]:
    """Most bytes first."""
    tensors: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for row in rows:
        for place, (count, size) in row.get("noRow", {}).items():
            tensors[place] += count
            nbytes[place] += size
    return {place: (tensors[place], size) for place, size in nbytes.most_common()}


def unknown(no_row: Mapping[str, tuple[int, int]]) -> list[str]:
    places = [f"{place} {megabytes(nbytes)} MB in {tensors}" for place, (tensors, nbytes) in no_row.items()]
    return [f"kept because nobody wrote down what is read of it: {', '.join(places)}"] if places else []


def tried_of(rows: list[export.Report]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Of several processes the longest time counts: each tries on its own."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for place, doubt, seconds in row.get("rowsTried", []):
            seen = found.setdefault(doubt, {})
            seen[place] = max(seconds, seen.get(place, 0.0))
    return {doubt: tuple(sorted(places.items())) for doubt, places in sorted(found.items())}


def trials(tried: Tried) -> list[str]:
    if not tried:
        return []
    seconds = sum(seconds for places in tried.values() for _, seconds in places)
    words = f"tried on this machine: {len({place for places in tried.values() for place, _ in places})} rows of the table"
    doubts = (f"; {doubt}: {', '.join(place for place, _ in places)}" for doubt, places in tried.items() if doubt)
    return [f"{words} in {seconds:.2f} s{''.join(doubts)}"]
