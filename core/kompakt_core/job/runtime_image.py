"""Which image carries the runtime into a job's pods: that of the first attempt, whose numerics all later ones have. Pure."""

from kompakt_core.job.model import TrainingJob


def read_image(value: object) -> str:
    """status.runtimeImage; "" where it is missing or malformed."""
    return value if isinstance(value, str) else ""


def in_force(job: TrainingJob, known: str, offered: str) -> str:
    """For the next pods; `known` as the status has it, `offered` by this operator to jobs that begin. "": none gets it."""
    return (known or offered) if job.injects else ""
