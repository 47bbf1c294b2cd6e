"""What happens to real nodes."""

from contextlib import contextmanager

from tools.kube import node
from tools.kube.kubectl import await_state, condition

# In place of the minute that workers give a lost node unless their template says otherwise.
SOON = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for state in ("not-ready", "unreachable")
]


@contextmanager
def lost_node(world):
    """The second machine is gone at once; it comes back, with its disk, when the block ends."""
    lost = world.cluster.nodes[1]
    node.kill(lost, world.cluster.spaces)
    try:
        await_state(lambda: not condition(world.kubectl.get("node", lost.name), "Ready"), "NotReady", 30)
        yield
    finally:
        node.start(lost, world.cluster.spaces)
    await_state(lambda: condition(world.kubectl.get("node", lost.name), "Ready"), "Ready again", 60)
