"""The one invariant: no GPU is ever held by two pods, whatever comes late, is lost, or happens at the same time.

KOMPAKT_RANDOM_STEPS=100000 searches for so many steps.
"""

import math
import os

from hypothesis import settings

from tests.support.extender.random_cluster import RandomCluster

STEPS_OF_ONE = 50
STEPS = int(os.environ.get("KOMPAKT_RANDOM_STEPS", "6500"))  # as many as take a few seconds

TestNoDoubleBooking = RandomCluster.TestCase
# Some runs end before their last step: a few more of them make up for it.
TestNoDoubleBooking.settings = settings(
    max_examples=math.ceil(1.15 * STEPS / STEPS_OF_ONE), stateful_step_count=STEPS_OF_ONE, deadline=None
)
