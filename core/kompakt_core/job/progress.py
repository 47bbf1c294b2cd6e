"""How far a training is, as its script says: reading it, and when it will be done. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.contract import timestamps
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.reports import read_report

LARGEST: Final = 1 << 53  # whole numbers up to here survive every reader's floating point
FASTEST: Final = 1e12  # samples a second: no machine of any size reads more
LATEST: Final = 4102444800.0  # the year 2100: an estimate beyond it is none
# Names on the page that the runtime serves -> fields (the runtime repeats them; a contract test compares).
METRICS: Final = {
    "kompakt_progress_step": "step",
    "kompakt_progress_total_steps": "total",
    "kompakt_progress_loss": "loss",
    "kompakt_progress_samples_per_second": "samplesPerSecond",
}
LINE: Final = re.compile(r"(\w+) (\S+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Progress:
    """`total`, `loss` and `samples_per_second` None: not said. A loss may be no number."""

    step: int
    total: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A step seen at a moment, in seconds since 1970."""

    moment: float
    step: int


def read(values: Mapping[str, Any]) -> Progress | None:
    """From fields named as in the file; what is malformed counts as not said, and without a step nothing is."""
    step, total = _whole(values.get("step")), _whole(values.get("total"))
    loss, rate = _number(values.get("loss")), _number(values.get("samplesPerSecond"))
    fit = rate if rate is not None and 0 <= rate <= FASTEST else None
    return None if step is None else Progress(step, total, loss, fit)


def read_page(text: str) -> Progress | None:
    """From a page of metrics; None where it names no step."""
    return read(values_of(text, METRICS))


def values_of(text: str, names: Mapping[str, str]) -> dict[str, float | None]:
    """The values of these metrics on a page, by the fields they stand for."""
    matches = filter(None, map(LINE.fullmatch, text.splitlines()))
    return {names[match[1]]: _float(match[2]) for match in matches if match[1] in names}


def at_the_end(pods: Iterable[WorkerPod]) -> dict[str, Any]:
    """status.progress from what the workers left behind: that of the lowest worker index that left one; empty without any."""
    for pod in sorted(pods, key=lambda pod: pod.worker_index):
        for message in pod.reports:
            said = (read_report(message) or {}).get("progress")
            found = read(said) if isinstance(said, Mapping) else None
            if found is not None:
                return written(found, None)
    return {}


def eta(samples: Collection[Sample], total: int | None) -> float | None:
    """When the last step will be done if it goes on as over these samples (oldest first); None where nothing says so."""
    if len(samples) < 2 or total is None:
        return None
    first, *_, last = samples
    if last.step <= first.step or last.moment <= first.moment or total < last.step:
        return None
    moment = last.moment + (total - last.step) * (last.moment - first.moment) / (last.step - first.step)
    return moment if moment < LATEST else None


def halted(before: Mapping[str, Any], slowdown: float, now: float) -> dict[str, Any]:
    """status.progress of an attempt that stops now: in place of its end, the seconds of computing that were still to do.

    `slowdown`: how many seconds longer its steps took for each second of computing.
    """
    end = timestamps.seconds(before.get("eta"))
    rest = {name: value for name, value in before.items() if name != "eta"}
    return rest if end is None else {**rest, "remainingSeconds": int(max(0.0, end - now) / (1 + slowdown))}


def begun(before: Mapping[str, Any]) -> dict[str, Any]:
    """status.progress of the attempt after one that stopped: what is left, if that is known."""
    left = _whole(before.get("remainingSeconds"))
    return {} if left is None else {"remainingSeconds": left}


def written(progress: Progress, end: float | None) -> dict[str, Any]:
    """status.progress: numbers with a fraction as text, since objects hold none."""
    texts = {"loss": progress.loss, "samplesPerSecond": progress.samples_per_second}
    return {
        "step": progress.step,
        **({"total": progress.total} if progress.total is not None else {}),
        **{name: f"{number:.6g}" for name, number in texts.items() if number is not None},
        **({"eta": timestamps.encode(end)} if end is not None else {}),
    }


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= LARGEST and number == int(number) else None
