"""Whatever happens on a node: no GPU is used by two pods, what processes use is reported, and in the end nothing is left over.

KOMPAKT_RANDOM_STEPS=100000 searches for so many steps.
"""

import math
import os

from hypothesis import settings

from tests.support.device_plugin.node_machine import Node

STEPS_OF_ONE = 50
STEPS = int(os.environ.get("KOMPAKT_RANDOM_STEPS", "5000"))  # as many as take a few seconds

TestNode = Node.TestCase
TestNode.settings = settings(max_examples=math.ceil(STEPS / STEPS_OF_ONE), stateful_step_count=STEPS_OF_ONE, deadline=None)
