"""The words of objects that several packages decide by. What only a TrainingJob says stands in `job.choices`."""

from enum import StrEnum


class Level(StrEnum):
    """How far a gang is spread, from the narrowest outwards."""

    MACHINE = "Machine"
    RACK = "Rack"
    BLOCK = "Block"
    CLUSTER = "Cluster"


class PlacementPolicy(StrEnum):
    """How a GPU set is chosen among those that fit; `placement.policies` has the rows."""

    BEST = "Best"
    PRESERVE = "Preserve"
    PACKED = "Packed"
    FIRST = "First"


class Sensitivity(StrEnum):
    """How much a job suffers from slow links; `policy.levels` says what each word is taken to cost."""

    HIGH = "High"
    MEDIUM = "Medium"
    AUTO = "Auto"
    LOW = "Low"
    NONE = "None"
