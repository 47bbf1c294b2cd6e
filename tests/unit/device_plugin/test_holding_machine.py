"""Whatever happens on a node: no GPU is used by two pods, what processes use is reported, and in the end nothing is left over.

KOMPAKT_RANDOM_STEPS=100000 searches for so many steps.
"""

import math
import os

from hypothesis import settings

from tests.support.device_plugin.node_machine import GPUS, Node

STEPS_OF_ONE = 50
STEPS = int(os.environ.get("KOMPAKT_RANDOM_STEPS", "5000"))  # as many as take a few seconds

TestNode = Node.TestCase
TestNode.settings = settings(max_examples=math.ceil(STEPS / STEPS_OF_ONE), stateful_step_count=STEPS_OF_ONE, deadline=None)


def test_a_set_that_went_to_the_other_of_two_pods_is_not_given_away_when_kubelet_and_users_forget_that_pod() -> None:
    """kubelet admits b first, and is taken to admit a. It starts anew before it lists either, and b is deleted by force."""
    node = Node()
    for name in ("b", "a"):
        node.scheduler_binds_a_pod(1, name, list(GPUS))
    node.kubelet_admits_the_oldest_pod(False)
    assert node.used == {"uid-1": node.written["uid-2"]}
    node.kubelet_admits_the_oldest_pod(True)
    node.user_deletes_a_pod_by_force(0)
    node.kubelet_admits_the_oldest_pod(False)
    assert node.used == {"uid-1": node.written["uid-2"]}, "the other one is refused"
    node.teardown()
