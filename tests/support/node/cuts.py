"""Connections that a network policy takes away: what a network plugin does about one, done by hand on the pod's node.

The plugin of these nodes (a bridge) enforces no policies. Packets are dropped without an answer, those of open connections too.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.node.world import World
from tools.kube import node
from tools.kube.command import output
from tools.kube.namespaces import ADDRESS

API_SERVER = ADDRESS
SYSTEM = "kompakt-system"


def part_pods(world: World, part: str) -> list[dict[str, Any]]:
    """Pods of one part of kompakt."""
    return world.kubectl.items("pods", f"--namespace={SYSTEM}", f"--selector=app.kubernetes.io/component={part}")


@contextmanager
def cut(world: World, pod: dict[str, Any], address: str) -> Iterator[None]:
    """Nothing passes between that pod and an address beyond its node, in either direction, until the block ends."""
    own = pod["status"]["podIP"]
    with ExitStack() as stack:
        for source, target in ((own, address), (address, own)):
            rule = ["-s", source, "-d", target, "-j", "DROP"]
            _iptables(world, pod, "--insert", rule)
            stack.callback(_iptables, world, pod, "--delete", rule)
        yield


def _iptables(world: World, pod: dict[str, Any], what: str, rule: list[str]) -> None:
    (one,) = (one for one in world.cluster.nodes if one.name == pod["spec"]["nodeName"])
    output(node.inside(one, world.cluster.spaces, ["iptables", "--wait", what, "FORWARD", *rule]))
