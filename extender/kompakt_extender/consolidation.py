"""How long a job's gang waits for a better level: by what its user wrote, else by the cluster's policy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kompakt_core.contract import placement_annotations
from kompakt_core.contract.words import Sensitivity
from kompakt_core.job.model import Consolidation, ConsolidationMode
from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import dally, kompakt, never_relax
from kompakt_core.policy.levels import COMMUNICATION, LEVEL_FACTORS, slowdowns
from kompakt_core.policy.model import Timers
from kompakt_core.policy.place_or_wait import NO_DELAY, DelayConfig
from kompakt_extender.views import PodView

POLICIES: Final = ("kompakt", "no-wait", "never-relax", "fixed")


FIXED: Final = Timers(600, 1800, 3600)


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """What jobs of mode Default do: `name` is one of POLICIES; `timers` are those of fixed, `factors` those of kompakt.

    `overtaken_at_most`: when so many later gangs went before one that is not of NoWait, GPUs are reserved for it.
    `reserved_seconds`: reserved GPUs fall when nothing of what is waited for has become free for so long.
    `preemption`: whether running gangs of lower priority end for one without a place; `bare_pods`: plain pods that nothing makes
    anew, too.
    """

    name: str = "kompakt"
    timers: Timers = FIXED
    factors: Mapping[Level, float] = field(default_factory=lambda: LEVEL_FACTORS)
    overtaken_at_most: int = 100
    preemption: bool = True
    reserved_seconds: int = 3600
    bare_pods: bool = False


DEFAULT: Final = ClusterPolicy()


def patience_of(
    wanted: Consolidation,
    cluster: ClusterPolicy,
    pods: Iterable[PodView],
    measured: float | None = None,
    remaining_s: float | None = None,
) -> DelayConfig:
    """How this gang waits. `dally` is the policy of plain timers; in the cluster they count seconds, there are no leases.

    `measured`: as in policy.levels.slowdowns; `remaining_s`: as in core's Waiting.
    """
    match wanted.mode:
        case ConsolidationMode.NO_WAIT:
            return NO_DELAY
        case ConsolidationMode.NEVER_RELAX:
            return DelayConfig(never_relax, overtaken_at_most=cluster.overtaken_at_most)
        case ConsolidationMode.FIXED:
            seconds = (wanted.machine_wait_seconds, wanted.rack_wait_seconds, wanted.block_wait_seconds)
            return DelayConfig(dally, Timers(*seconds), overtaken_at_most=cluster.overtaken_at_most)
    return replace(_by_policy(cluster, pods, measured), remaining_s=remaining_s)


def _by_policy(cluster: ClusterPolicy, pods: Iterable[PodView], measured: float | None) -> DelayConfig:
    most = cluster.overtaken_at_most
    match cluster.name:
        case "never-relax":
            return DelayConfig(never_relax, overtaken_at_most=most)
        case "fixed":
            return DelayConfig(dally, cluster.timers, overtaken_at_most=most)
        case "kompakt":
            slowdown = slowdowns(_sensitivity(pods), cluster.factors, measured)
            return DelayConfig(kompakt, slowdown=slowdown, overtaken_at_most=most)
    return NO_DELAY


def _sensitivity(pods: Iterable[PodView]) -> str:
    """The most sensitive word among the gang's pods; a pod without one is not sensitive."""
    found = (placement_annotations.readable(pod.annotations).sensitivity.value for pod in pods)
    return max(found, key=lambda word: COMMUNICATION.get(word, 0.0), default=Sensitivity.NONE.value)
