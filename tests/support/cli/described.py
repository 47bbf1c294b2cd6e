"""The cluster of docs/explain.md and docs/tasks/read-a-report.md."""

import json

from kompakt_extender.wire import decode_args
from tests.support.extender.explain_client import SENSITIVE, ExplainClient
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World


async def described() -> ExplainClient:
    """A DGX-1, eight A100 with bridges, three tainted nodes; a pod bound as kube-scheduler would have it, a gang that waits."""
    world = World()
    world.add_node("node-1", "dgx1-v100")
    world.add_node("node-2", "a100-pcie-8-bridge-pairs")
    for name in ("sim-0", "sim-1", "sim-2"):
        world.add_node(name, "dgx1-v100")
        world.nodes[name]["spec"] |= {"taints": [{"key": "mine", "effect": "NoSchedule"}]}
        world.put("nodes", name, world.nodes[name])
    client = ExplainClient(Leader(world))
    leader = client.leader
    leader.take_over()
    made = world.add_pod(pod("trainer", 4, annotations=SENSITIVE))
    leader.see()
    asked = decode_args(json.dumps({"Pod": made, "NodeNames": list(world.nodes)}).encode())
    leader.answers.filter(asked)
    leader.answers.prioritize(asked)
    assert await leader.bind("trainer", "node-1") == ""
    world.report("node-1")
    leader.see()
    world.add_gang("large", 2, 8)
    await leader.settle()
    return client
