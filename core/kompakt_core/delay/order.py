"""In which order gangs are served, and who may be stopped for whom, where durations are unknown."""

import math

from kompakt_core.errors import InvalidInput

FIRST_CLASS_GPU_H = 1.0
CLASS_BASE = 16


def service_class(gpu_hours: float) -> int:
    """The class of a job that has had so much service (GPUs times hours of running): floor(log16(1 + GPU-hours)).

    Lower classes go first, within a class who came first. Ever wider classes serve
    heavy-tailed durations as well as strict least-attained-service, and jobs of like age do not take turns.
    The base is the best of 4, 16 and 64 over four columns of benchmarks.policies (decision 0082). Raises InvalidInput below 0.
    """
    if gpu_hours < 0:
        raise InvalidInput(f"{gpu_hours} GPU-hours; expected a number from 0 up")
    return int(math.log(1 + gpu_hours / FIRST_CLASS_GPU_H, CLASS_BASE) + 1e-9)
