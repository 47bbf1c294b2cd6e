"""When a node's device plugin is being replaced: told by the plugin's pods, as a watch delivers them."""

from collections import Counter, defaultdict
from typing import Any

COMPONENT = "app.kubernetes.io/component"
FINISHED = frozenset({"Succeeded", "Failed"})


class PluginChanges:
    """Counts for each node how often its plugin ceased to serve and how often one serves again: odd while none does.

    One serves while it is the only plugin pod of its node, Ready, and not asked to end. So the count is odd from the moment
    when the old pod is deleted until the API server has heard that the new one is Ready, which is later than the new one serves.
    """

    def __init__(self) -> None:
        self._pods: defaultdict[str, dict[str, bool]] = defaultdict(dict)  # by node and uid: whether it serves
        self._counts: Counter[str] = Counter()

    def see(self, kind: str, pod: dict[str, Any]) -> None:
        """Take in one version of any pod; those of plugins count."""
        node = pod["spec"].get("nodeName", "")
        if not node or (pod["metadata"].get("labels") or {}).get(COMPONENT) != "device-plugin":
            return
        pods, uid = self._pods[node], pod["metadata"]["uid"]
        pods.pop(uid, None)
        if kind != "DELETED" and pod.get("status", {}).get("phase") not in FINISHED:
            pods[uid] = _serves(pod)
        if (list(pods.values()) == [True]) == bool(self._counts[node] % 2):
            self._counts[node] += 1

    def count(self, node: str) -> int:
        """How often the state of that node's plugin has changed; 0 where there was never one."""
        return self._counts[node]

    def replaced_since(self, node: str, count: int) -> bool:
        """Whether the plugin was being replaced when `count` was read, or at any time since."""
        return bool(count % 2) or self._counts[node] != count

    def forget(self) -> None:
        """All pods come anew, from a list."""
        self._pods.clear()


def _serves(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
