"""What a training was measured to do: by its own steps while it ran, or by `kompakt profile` before. Kept in status.profile, used
for Auto. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from msgspec.structs import replace

from kompakt_core.job.model import Sensitivity, TrainingJob
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.progress import values_of
from kompakt_core.job.reports import MOST_AT_ONCE, read_report
from kompakt_core.profile.document import Profile
from kompakt_core.profile.sensitivity import LEVEL_FACTORS, MOST, communication, word_for

# Names on the page that the runtime serves -> fields (the runtime repeats them; a contract test compares).
METRICS: Final = {
    "kompakt_step_seconds": "stepSeconds",
    "kompakt_gradient_bytes": "gradientBytes",
    "kompakt_ranks": "ranks",
}
# Where the figures come from, in status.profile: what the job itself did counts before what was measured elsewhere.
STEPS: Final = "Steps"
BEFOREHAND: Final = "Annotation"
LONGEST_STEP: Final = 86400.0
MOST_BYTES: Final = MOST_AT_ONCE  # gradients of one rank, all at a time
MOST_RANKS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """`gradient_bytes`: what one step of one rank has; `ranks`: processes that train together, as they count themselves."""

    step_seconds: float
    gradient_bytes: int
    ranks: int


def read(values: Mapping[str, Any]) -> Pace | None:
    """From fields named as the runtime writes them; None where one is missing or cannot be.

    Times to two digits: a smaller change is no news.
    """
    seconds = _number(values.get("stepSeconds"), 1e-6, LONGEST_STEP)
    size = _number(values.get("gradientBytes"), 0, MOST_BYTES)
    ranks = _number(values.get("ranks"), 1, MOST_RANKS)
    if seconds is None or size is None or ranks is None:
        return None
    return Pace(float(f"{seconds:.2g}"), int(size), int(ranks))


def read_page(text: str) -> Pace | None:
    """From a page of metrics; None where it does not say."""
    return read(values_of(text, METRICS))


def at_the_end(pods: Iterable[WorkerPod]) -> Pace | None:
    """From what the workers left behind: that of the slowest."""
    reports = (read_report(message) or {} for pod in pods for message in pod.reports)
    said = (read(report["pace"]) for report in reports if isinstance(report.get("pace"), Mapping))
    return max((pace for pace in said if pace is not None), key=lambda pace: pace.step_seconds, default=None)


def profile_of(job: TrainingJob, pace: Pace | None, level: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """status.profile. `pace`: what was heard of its steps, None = nothing (new); `level`: how the gang was placed; `before`: what
    stands there.
    """
    stalls = _stalls(job.profile) if job.profile is not None else {}
    if pace is not None:
        return written(pace, job, level) | stalls
    if before and before.get("source", STEPS) == STEPS:
        return {name: value for name, value in before.items() if name != "stalls"} | stalls
    return _beforehand(job.profile, job) | stalls if job.profile is not None else {}


def written(pace: Pace, job: TrainingJob, level: str) -> dict[str, Any]:
    """What its steps say. `level`: how the gang was placed; unknown counts as a machine.

    What the user says of gradients counts before what was seen.
    """
    size = _gradient_bytes(job, pace.gradient_bytes)
    share = communication(size, pace.step_seconds, _gpus(job), LEVEL_FACTORS.get(level, LEVEL_FACTORS["Machine"]))
    return {
        "source": STEPS,
        "stepSeconds": f"{pace.step_seconds:.2g}",
        "gradientBytes": size,
        "ranks": pace.ranks,
        **({"level": level} if level in LEVEL_FACTORS else {}),
        "communication": f"{share:.2g}",
        "sensitivity": word_for(share),
    }


def _beforehand(profile: Profile, job: TrainingJob) -> dict[str, Any]:
    run = profile.plain() or next(iter(profile.runs.values()))
    size = _gradient_bytes(job, run.gradient_bytes)
    share = profile.communication(_gpus(job), size)
    told = {} if share is None else {"communication": f"{share:.2g}", "sensitivity": word_for(share)}
    seconds = f"{run.step_seconds:.2g}"
    return {"source": BEFOREHAND, "stepSeconds": seconds, "gradientBytes": size, "ranks": run.ranks, **told}


def _stalls(profile: Profile) -> dict[str, Any]:
    found = profile.stalls()
    named = {field.name: getattr(found, field.name) for field in fields(found)}
    told = {
        name: {"seconds": f"{stall.seconds:.3g}", "percent": f"{stall.percent:.1f}"}
        for name, stall in named.items()
        if stall is not None
    }
    return {"stalls": told} if told else {}


def _gradient_bytes(job: TrainingJob, seen: int) -> int:
    declared = job.communication.gradient_bytes
    return seen if declared < 0 else declared


def _gpus(job: TrainingJob) -> int:
    return sum(role.replicas * role.gpus_per_replica for role in job.roles)


def slowdown(profile: Mapping[str, Any], level: str) -> float:
    """Seconds of communication per second of computing at that level, by status.profile; 0 where it does not say."""
    try:
        share = float(profile.get("communication", 0))
    except (TypeError, ValueError):
        return 0.0
    return share * LEVEL_FACTORS.get(level, 0.0) if 0 <= share <= MOST else 0.0


def resolved(job: TrainingJob, before: Mapping[str, Any]) -> TrainingJob:
    """The job with what was measured in place of Auto; `before`: status.profile as it stands. A declared word stays."""
    word = profile_of(job, None, "", before).get("sensitivity")
    if job.communication.sensitivity is not Sensitivity.AUTO or word not in set(Sensitivity):
        return job
    return replace(job, communication=replace(job.communication, sensitivity=Sensitivity(word)))


def _number(value: object, low: float, high: float) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    return float(value) if good and isinstance(value, int | float) else None
