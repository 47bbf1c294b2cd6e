"""`spec.placement`: which GPUs a gang may get, and how long it waits for better ones."""

from itertools import pairwise
from typing import Annotated, ClassVar, Final

from msgspec import field

from kompakt_core.contract.words import Level, PlacementPolicy, RequiredLink
from kompakt_core.job import rejections
from kompakt_core.job.choices import MAX_WAIT_SECONDS, ConsolidationMode
from kompakt_core.schema.meta import Declared, ValidationRule, about, unless

WAITS: Final = {"machineWaitSeconds": 600, "rackWaitSeconds": 1800, "blockWaitSeconds": 3600}
_UNCHANGED: Final = " && ".join(f"self.{name} == {seconds}" for name, seconds in WAITS.items())
_IN_ORDER: Final = " && ".join(f"self.{a} <= self.{b}" for a, b in pairwise(WAITS))


class Consolidation(Declared, frozen=True):
    """How long to wait for a better level. The seconds count in mode Fixed only; each is at least the one before."""

    mode: Annotated[
        ConsolidationMode,
        about(
            "Default: as the cluster is set. Fixed: machineWaitSeconds, rackWaitSeconds and blockWaitSeconds. NoWait: take "
            "the first place that fits. NeverRelax: wait for the best level for ever.",
            example="NoWait",
        ),
    ] = ConsolidationMode.DEFAULT
    machine_wait_seconds: Annotated[
        int,
        about(
            "How long the gang waits for one machine, from the moment at which it could first be placed. Mode Fixed only.",
            unit="seconds",
            low=0,
            high=MAX_WAIT_SECONDS,
            example=300,
        ),
    ] = WAITS["machineWaitSeconds"]
    rack_wait_seconds: Annotated[
        int,
        about(
            "How long the gang waits for one rack, from the same moment; at least machineWaitSeconds. Mode Fixed only.",
            unit="seconds",
            low=0,
            high=MAX_WAIT_SECONDS,
            example=900,
        ),
    ] = WAITS["rackWaitSeconds"]
    block_wait_seconds: Annotated[
        int,
        about(
            "How long the gang waits for one block of racks, from the same moment; at least rackWaitSeconds. Mode Fixed only.",
            unit="seconds",
            low=0,
            high=MAX_WAIT_SECONDS,
            example=3600,
        ),
    ] = WAITS["blockWaitSeconds"]

    RULES: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            f"self.mode == 'Fixed' || {_UNCHANGED}",
            rejections.WAITS,
            unless(lambda found: found.mode is ConsolidationMode.FIXED or found == Consolidation(found.mode)),
        ),
        ValidationRule(
            _IN_ORDER,
            rejections.WAITS_ORDER,
            unless(lambda found: found.machine_wait_seconds <= found.rack_wait_seconds <= found.block_wait_seconds),
        ),
    )


class Placement(Declared, frozen=True):
    """Which GPUs may be chosen."""

    policy: Annotated[
        PlacementPolicy,
        about(
            "How a set of GPUs is chosen. Best: the highest value for the pattern. Preserve: the highest value, then the most "
            "NVLink left for others. Packed: the fewest whole islands broken. First: the lowest indices.",
            example="Packed",
        ),
    ] = PlacementPolicy.PRESERVE
    required_link: Annotated[
        RequiredLink,
        about(
            "NVLink: the pattern uses NVLink only; the gang waits until such GPUs are free. Any: other links may be used.",
            example="NVLink",
        ),
    ] = RequiredLink.ANY
    same_numa_node: Annotated[
        bool,
        about(
            "true: all GPUs of a pod are attached to one NUMA node. Promises nothing where NUMA nodes are unknown.", example=True
        ),
    ] = field(default=False, name="sameNUMANode")
    required_level: Annotated[
        Level,
        about(
            "Hard limit on how wide the gang may spread: Machine, Rack, Block, or Cluster for anywhere. Racks and blocks come "
            "from node labels.",
            example="Rack",
        ),
    ] = Level.CLUSTER
    consolidation: Annotated[
        Consolidation, about("How long the gang waits for a better level than the one that is free now.")
    ] = Consolidation()
