"""What communication costs by level in the cluster tests.

So little that jobs of consolidation mode Default wait for seconds: with sensitivity High 0.5 * 0.005 * an hour = 9 s for one
machine rather than one rack, 22.5 s rather than to be spread over racks.
"""

from kompakt_core.placement.model import Level

FACTORS = {Level.MACHINE: 0.0, Level.RACK: 0.005, Level.BLOCK: 0.008, Level.CLUSTER: 0.0125}
SETTINGS = {f"consolidation.levelFactors.{level.lower()}": str(factor) for level, factor in FACTORS.items()}
