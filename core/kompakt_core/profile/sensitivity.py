"""How much a training suffers from slow links, from what one step exchanges and how long it takes.

A ring moves 2 (n - 1) / n of the gradients' bytes past each of n GPUs (Patarasuk and Yuan, JPDC 2009). At 12.5 GB/s one way (100
Gb/s) between the machines of a rack, that over the step's computing gives for the layer files that come with a published Dally
simulator (bytes and computing per step; 2 for 2 (n - 1) / n): AlexNet .64, VGG .34, MobileNet .16, ResNet-18 .05, ResNet-50 .05,
which is close to what benchmarks.policies and policy.levels assume for these models.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput

RACK_BYTES_PER_S: Final = 12.5e9
# How much slower than inside a rack it is at each level, where nobody says otherwise (the flat network of benchmarks.policies).
LEVEL_FACTORS: Final[Mapping[str, float]] = MappingProxyType({"Machine": 0.05, "Rack": 1.0, "Block": 2.0, "Cluster": 4.0})
MOST: Final = 1.0  # as much communication as computing: above every model known; a faster network than assumed shows so
# Lowest share of each word: between VGG and MobileNet, between MobileNet and the ResNets, a hundredth (the geometric middles).
WORDS: Final = (("High", 0.23), ("Medium", 0.09), ("Low", 0.01))


def communication(gradient_bytes: int, step_seconds: float, gpus: int, level_factor: float = 0.0) -> float:
    """Seconds of communication per second of computing inside a rack, at most 1; 0 for a single GPU.

    `level_factor`: how much slower than inside a rack the links were over which `step_seconds` was measured (0: nothing of it was
    communication); communication is taken not to overlap computing. Raises InvalidInput for numbers that cannot be.
    """
    if gradient_bytes < 0 or gpus < 1 or not 0 < step_seconds < math.inf or not 0 <= level_factor < math.inf:
        raise InvalidInput(
            f"{gradient_bytes} bytes, {step_seconds} s, {gpus} GPUs, level factor {level_factor}; "
            "expected bytes and factor from 0 up, a time above 0, at least one GPU"
        )
    exchange = 2 * (gpus - 1) / gpus * gradient_bytes / RACK_BYTES_PER_S
    computing = step_seconds - level_factor * exchange
    return MOST if exchange >= MOST * computing else exchange / computing


def word_for(share: float) -> str:
    """bandwidthSensitivity for this share of communication: High, Medium, Low or None. Raises InvalidInput below 0."""
    if not share >= 0:
        raise InvalidInput(f"a share of {share}; expected a number from 0 up")
    return next((word for word, least in WORDS if share >= least), "None")
