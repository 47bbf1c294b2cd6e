"""The fields of a Gang: pods that others made, and that the planner places together."""

from typing import Annotated

from kompakt_core.contract.gang_member import MAX_SIZE
from kompakt_core.contract.words import Level
from kompakt_core.job.scheduling_fields import SchedulingStatus
from kompakt_core.schema.meta import ABSENT, Declared, about
from kompakt_core.schema.standard import StatusCondition


class GangSpec(Declared, frozen=True, kw_only=True):
    """As the pods say it. The planner writes it again when other pods of that name say otherwise."""

    size: Annotated[
        int,
        about("Pods of the gang, as their annotation kompakt.dev/gang-size says.", unit="pods", low=1, high=MAX_SIZE, example=4),
    ]
    required_level: Annotated[
        Level,
        about("How far it may be spread, as the annotation kompakt.dev/required-level says.", example="Rack"),
    ] = Level.CLUSTER


class GangStatus(Declared, frozen=True):
    """Where the gang stands. Programs read conditions."""

    conditions: Annotated[
        tuple[StatusCondition, ...], about("Placed: every pod has its node and GPUs; else why not yet.", key="type")
    ] = ABSENT
    scheduling: Annotated[SchedulingStatus, about("What the planner has decided about the gang.")] = ABSENT
