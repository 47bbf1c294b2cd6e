"""What `activationGradients` is for a job whose spec does not say it: the default as it was when its first attempt began. Pure.

A training goes on as it began, whatever an operator that was upgraded between two attempts takes for the default.
"""

from typing import Final

from kompakt_core.job.model import ActivationGradients, CompressionMode, TrainingJob

DEFAULT: Final = ActivationGradients.BOUNDED


def read_gradients(value: object) -> ActivationGradients | None:
    """status.activationGradients; None where it is missing or malformed."""
    return ActivationGradients(value) if isinstance(value, str) and value in set(ActivationGradients) else None


def in_force(job: TrainingJob, known: ActivationGradients | None, attempts: int) -> ActivationGradients | None:
    """For the next pods of a job that has had so many attempts; `known` as its status has it. None: the mode has no such errors.

    Attempts of which nothing is written had exact gradients: they ran before there was another default, or in another mode.
    """
    if job.compression.mode is not CompressionMode.ERROR_BOUNDED:
        return None
    return job.compression.gradients_asked or known or (ActivationGradients.EXACT if attempts else DEFAULT)
