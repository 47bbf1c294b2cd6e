"""One step from what was held to what is held, as values."""

from dataclasses import replace

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_device_plugin.holding import NodeHolding, NodeWitnesses, next_holding, suspects
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.pods import NodePods
from tests.support.device_plugin.api import pod_object
from tests.support.device_plugin.pods import holding, node_pod, takes

GPUS = tuple(f"GPU-{number}" for number in range(4))
A, ENTRY = node_pod("a", size=1), JournalEntry(GPUS[:1], "uid-a", "ns", "a")
NOTHING = NodeWitnesses(listed={}, handed=(), in_vain=frozenset(), pods=(), gone=(), young=frozenset())
ONE = holding(a=GPUS[:1])


def step(before: tuple[GpuHolder, ...], seen: NodeWitnesses, *alive: str) -> NodeHolding:
    return next_holding(before, seen, suspects(before, seen) & set(alive))


def test_a_pod_that_was_forgotten_before_this_process_began_keeps_its_uid() -> None:
    """kubelet lists it on, then forgets it too: its processes are looked for by its uid."""
    listed = replace(NOTHING, listed=takes(a=GPUS[:1]))
    for before, handed in ((ONE, ()), ((), (ENTRY,))):
        first = step(before, replace(listed, handed=handed), "uid-a")
        assert first.held == ONE
        assert step(first.held, NOTHING, "uid-a").held == ONE
        assert step(first.held, NOTHING).held == ()


def test_what_kubelet_offers_again_is_held_while_its_pod_has_processes() -> None:
    """It may have forgotten the pod before the watch tells that it was deleted by force."""
    seen = replace(NOTHING, handed=(ENTRY,), in_vain=frozenset({ENTRY}), pods=(A,))
    assert suspects(ONE, seen) == {"uid-a"}
    assert step(ONE, seen, "uid-a").held == ONE
    assert step(ONE, seen).held == ()


def test_a_set_whose_pod_has_another_one_is_somebodys() -> None:
    """Two pods of one size asked at the same moment and got each other's set; one of them was deleted by force at once."""
    gone = node_pod("b", size=1)
    other = JournalEntry(GPUS[1:2], "uid-b", "ns", "b")
    seen = replace(NOTHING, listed=takes(a=GPUS[1:2]), handed=(ENTRY, other), pods=(A,), gone=(gone,))
    found = step((), seen, "uid-b")
    assert found.held == tuple(sorted(holding(a=GPUS[1:2], b=GPUS[:1])))
    assert (found.ownerless, found.over) == ({ENTRY}, (other,))
    assert step((), seen).held == holding(a=GPUS[1:2])


def test_a_later_pod_of_the_same_name_tells_that_the_earlier_one_was_deleted() -> None:
    pods = NodePods(lambda: 10.0)
    earlier, later = pod_object("a", 1, uid="uid-1"), pod_object("a", 1, uid="uid-2")
    earlier["metadata"]["resourceVersion"], later["metadata"]["resourceVersion"] = "5", "7"
    pods.event("ADDED", earlier)
    pods.add([later])
    assert ([pod.uid for pod in pods.all()], [one.pod.uid for one in pods.gone()]) == (["uid-2"], ["uid-1"])
    pods.add([earlier])
    pods.event("DELETED", earlier)
    assert [pod.uid for pod in pods.all()] == ["uid-2"]
