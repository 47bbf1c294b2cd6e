"""What takes time in the cluster tests: how long a Lease holds, and what communication costs by level.

It costs so little that jobs of consolidation mode Default wait for seconds: with sensitivity High 0.5 * 0.005 * an hour = 9 s for
one machine rather than one rack, 22.5 s rather than to be spread over racks.
"""

import os

import pytest

from kompakt_core.placement.model import Level

FACTORS = {Level.MACHINE: 0.0, Level.RACK: 0.005, Level.BLOCK: 0.008, Level.CLUSTER: 0.0125}
FACTOR_SETTINGS = {f"consolidation.levelFactors.{level.lower()}": str(factor) for level, factor in FACTORS.items()}
# A Lease that is taken over within seconds, so that a takeover can be waited for, and yet is kept by a busy machine:
# with a deadline of 3 s kube-scheduler lost it while others used all cores.
LEASE = {"scheduler.lease.duration": "10s", "scheduler.lease.renewDeadline": "8s", "scheduler.lease.retryPeriod": "1s"}
LONG = pytest.mark.skipif(os.environ.get("KOMPAKT_DRILLS") != "all", reason="takes long: KOMPAKT_DRILLS=all runs it")
