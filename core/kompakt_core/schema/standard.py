"""Declarations that the Kubernetes API gives in this form to everybody."""

from typing import Annotated, Literal

from kompakt_core.schema.meta import ABSENT, Declared, about, moment


class StatusCondition(Declared, frozen=True, kw_only=True):
    """metav1.Condition."""

    type: Annotated[str, about("Type of the condition.", longest=316, example="Running")]
    status: Annotated[Literal["True", "False", "Unknown"], about("Whether the condition holds.", example="True")]
    reason: Annotated[
        str,
        about(
            "Why, in one word.",
            longest=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            example="AllRunning",
        ),
    ]
    message: Annotated[str, about("Why, as a sentence.", longest=32768, example="all workers run")]
    last_transition_time: Annotated[str, moment("When status last changed.")]
    observed_generation: Annotated[int, about("metadata.generation that the condition is about.", low=0, example=3)] = ABSENT
