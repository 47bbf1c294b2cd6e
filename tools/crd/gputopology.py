"""The GPUTopology resource: one per node, written by the device plugin."""

from kompakt_core import contract
from kompakt_core.topology.graph import LinkKind, PeerAccess
from tools.crd.schema import Schema, atomic, column, conditions, crd, flag, mapped, obj, text, whole, word

MAX_GPUS = 64
MAX_LINKS = MAX_GPUS * (MAX_GPUS - 1) // 2


def definition() -> Schema:
    """The whole CustomResourceDefinition."""
    names = {
        "kind": contract.TOPOLOGY_KIND,
        "listKind": f"{contract.TOPOLOGY_KIND}List",
        "plural": contract.TOPOLOGY_PLURAL,
        "singular": "gputopology",
        "categories": ["kompakt"],
    }
    schema = obj(
        {"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}, "spec": _spec(), "status": _status()},
        required=("spec",),
    )
    columns = [
        column("GPUs", ".status.gpus", "integer"),
        column("Free", ".status.free", "integer"),
        column("Fabric", ".status.fabric"),
        column("Health", ".status.health"),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    return crd(names, "Cluster", schema, columns)


def _spec() -> Schema:
    fabric = obj({"clusterUuid": text(), "cliqueId": whole()})
    # By module id, as the fabric manager numbers GPUs: indices follow the PCI order, which is another one.
    partition = obj({"id": whole(), "moduleIds": atomic(whole(), maxItems=MAX_GPUS)}, required=("id", "moduleIds"))
    paths = atomic(word(LinkKind), maxItems=MAX_GPUS)
    nic = obj({"name": text(), "numaNode": whole(-1), "megabytesPerSecond": whole(), "paths": paths}, required=("name",))
    return obj(
        {
            "nodeUID": text(),
            "source": text(),
            "driverVersion": text(),
            "gpus": atomic(_gpu(), maxItems=MAX_GPUS),
            "links": atomic(_link(), maxItems=MAX_LINKS),
            "nics": atomic(nic, maxItems=64),
            "fabric": fabric,
            "partitions": atomic(partition, maxItems=64),
        },
        required=("nodeUID", "source", "gpus", "links"),
    )


def _gpu() -> Schema:
    return obj(
        {
            "index": whole(0, MAX_GPUS - 1),
            "uuid": text(minLength=1, maxLength=63),
            "pciBusId": text(),
            "moduleId": whole(-1),
            "numaNode": whole(-1),
            "model": text(),
            "memoryBytes": whole(),
            "migEnabled": flag(),
            "health": text(),
            "healthReason": text(maxLength=64),
            "xid": whole(),
            "clique": text(maxLength=64),
        },
        required=("index", "uuid"),
    )


def _link() -> Schema:
    return obj(
        {
            "a": whole(0, MAX_GPUS - 1),
            "b": whole(0, MAX_GPUS - 1),
            "kind": word(LinkKind),
            "lanes": whole(),
            "megabytesPerSecond": whole(),
            "generation": whole(),
            "peerAccess": word(filter(None, PeerAccess)),
            "uneven": flag(),
        },
        required=("a", "b", "kind", "megabytesPerSecond"),
    )


def _status() -> Schema:
    held = obj({"uuid": text(), "namespace": text(), "pod": text(), "podUID": text()}, required=("uuid",))
    return obj(
        {
            "gpus": whole(),
            "free": whole(),
            "fabric": text(),
            "health": text(),
            "held": mapped(held, "uuid", maxItems=1024),
            "conditions": conditions(),
        }
    )
