"""What is measured of a trace of a column: its figures under every policy. Part of the digest of figures, see runs.py."""

from dataclasses import replace
from typing import Annotated

import msgspec

from benchmarks.protocol.columns import BY_NAME
from benchmarks.protocol.entries import RUN
from kompakt_core.errors import Bug
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.cluster_file import read_shape
from kompakt_simulator.figures import summarize
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate


class PolicyFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds: average completion time and p99 of the queue time."""

    avg_jct_s: Annotated[float, msgspec.Meta(gt=0)]
    p99_queue_s: Annotated[float, msgspec.Meta(ge=0)]


def simulated(name: str, seed: int) -> dict[str, PolicyFigures]:
    """By policy. Raises Bug where a policy broke a rule or left jobs out: their times would be missing in its mean."""
    column = BY_NAME[name]
    jobs, shape, network = column.trace(seed), read_shape(column.cluster), column.network()
    figures = {}
    for entry in RUN:
        setting, cluster = replace(entry.setting, network=network), ClusterState.of(shape)
        told = summarize(simulate(jobs, cluster, POLICIES[entry.policy], PLACEMENTS["levels"], setting))
        if told.violations or told.refused:
            raise Bug(f"{name}, seed {seed}, {entry.label}: {told.violations} broken rules, {told.refused} jobs left out")
        figures[entry.label] = PolicyFigures(told.avg_jct_s, told.p99_queue_s)
    return figures
