"""Who has which GPUs: nodes, pods, topologies and claims as they are seen, and the states of nodes that follow."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kompakt_core.contract.offered_devices import TAINTED
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.placement.model import NodeState, Snapshot
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.cluster_view import ClusterView, gives_more
from kompakt_extender.node_state import Claim, ClaimSource, announces_gpus, node_state
from kompakt_extender.reservations import Reservations, lowest_free, with_taken
from kompakt_extender.views import NodeView, PodView, TopologyView

_NO_PODS: Final[Mapping[PodUid, PodView]] = {}
_NO_CLAIMS: Final[Mapping[tuple[PodUid, ClaimSource], Claim]] = {}
GONE_AT_MOST: Final = 1000  # pods that went lately: an answer comes within seconds


def _counts(pod: PodView) -> bool:
    """Whether it has GPUs, or may come to have some."""
    return bool(pod.gpus) and not pod.finished


class GpuLedger:
    """Nodes, pods, topologies and claims, indexed by node; states are computed when asked for and kept until touched."""

    def __init__(self) -> None:
        self.nodes: dict[NodeName, NodeView] = {}
        self.topologies: dict[NodeName, TopologyView] = {}
        self.pods: dict[PodUid, PodView] = {}
        self._bound: dict[NodeName, dict[PodUid, PodView]] = {}
        self._claims: dict[NodeName, dict[tuple[PodUid, ClaimSource], Claim]] = {}
        self._claims_of: dict[PodUid, dict[ClaimSource, list[NodeName]]] = {}
        self._allocated: dict[NodeName, Mapping[GpuUuid, PodUid]] = {}  # by ResourceClaims: to which pod
        self._states: dict[NodeName, NodeState] = {}
        self._bares: dict[NodeName, NodeState] = {}  # with nothing hidden
        self._free: Counter[int] = Counter()  # as ClusterView.free
        self._dirty: set[NodeName] = set()
        self._priorities: Counter[int] = Counter()  # of unfinished pods that ask for GPUs
        self._watchers: list[set[NodeName]] = []
        self._changes: dict[NodeName, asyncio.Event] = {}
        self._withdrawn: set[PodUid] = set()
        self._gone: dict[PodUid, None] = {}  # in order; a uid never comes back
        self.reserved = Reservations()
        self._cluster_view = ClusterView(-1, 0, {}, {}, self.reserved, {})
        self.version = 0
        self.freed_version = 0  # how often a node was seen to have more to give than before, or another reservation hid it
        self.machines_version = 0  # how often a node or a link graph came, changed or went

    # What is seen in the cluster

    def set_node(self, node: NodeView) -> None:
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self.machines_version += 1
            self._touch(node.name)

    def remove_node(self, name: NodeName) -> None:
        self.nodes.pop(name, None)
        self.machines_version += 1
        self._touch(name)

    def set_topology(self, topology: TopologyView) -> None:
        if self.topologies.get(topology.name) != topology:
            self.machines_version += self._graph(topology.name) != topology.graph
            self.topologies[topology.name] = topology
            self._touch(topology.name)

    def remove_topology(self, name: NodeName) -> None:
        self.topologies.pop(name, None)
        self.machines_version += 1
        self._touch(name)

    def set_allocated(self, name: NodeName, owners: Mapping[GpuUuid, PodUid]) -> None:
        """Which GPUs of a node ResourceClaims were given, and the pods that control these claims."""
        if self._allocated.get(name, {}) != owners:
            self._allocated[name] = owners
            self._touch(name)

    def given_to(self, pod: PodUid, node: NodeName) -> frozenset[GpuUuid]:
        """The GPUs of a node that this pod's ResourceClaims were given."""
        return frozenset(gpu for gpu, owner in self._allocated.get(node, {}).items() if owner == pod)

    def lost(self, pod: PodUid, node: NodeName, gpus: Iterable[GpuUuid]) -> str:
        """Why a pod's ResourceClaim will not be given these GPUs; empty: it may be, or was. Slices may be gone for a moment."""
        owners, graph = self._allocated.get(node, {}), self._graph(node)
        if any(owners.get(gpu, pod) != pod for gpu in gpus):
            return "another ResourceClaim was given GPUs of the plan first"
        tainted = {gpu.uuid for gpu in graph.gpus if gpu.health_reason == TAINTED} if graph else set()
        return "a taint lies on GPUs of the plan" if any(gpu in tainted and gpu not in owners for gpu in gpus) else ""

    def set_pod(self, pod: PodView) -> bool:
        """A pod as it was read or watched; answers whether it was news.

        Once it is bound or finished its claims end: what it holds stands on the pod itself. A watch may be behind what was
        read by name: an older version would take a bound pod off its node again and give its GPUs away twice.
        """
        old = self.pods.get(pod.uid)
        if pod.uid in self._gone:  # an answer that is later than the watch
            return False
        if old is not None and 0 < pod.version < old.version:
            return False
        if old is not None and msgspec.structs.replace(old, version=pod.version) == pod:
            self.pods[pod.uid] = pod
            return True
        self._forget(pod.uid)
        self.pods[pod.uid] = pod
        self._priorities[pod.priority] += _counts(pod)
        if pod.node is not None or pod.finished:
            self.drop_claims(pod.uid)
        else:
            self._claim_annotation(pod)
        if pod.node is not None and not pod.finished:
            self._bound.setdefault(pod.node, {})[pod.uid] = pod
            self._touch(pod.node)
        return True

    def remove_pod(self, uid: PodUid) -> None:
        """The pod is gone, and its claims with it."""
        self._gone[uid] = None
        if len(self._gone) > GONE_AT_MOST:
            del self._gone[next(iter(self._gone))]
        self._forget(uid)
        self.drop_claims(uid)
        self.pods.pop(uid, None)
        self._withdrawn.discard(uid)

    # What we decided

    def claim(self, source: ClaimSource, pod: PodView, node: NodeName, gpus: tuple[GpuUuid, ...]) -> None:
        """Take GPUs for a pod until it is seen bound, finished or gone, or the claim is dropped."""
        self._claims.setdefault(node, {})[pod.uid, source] = Claim(pod, node, gpus)
        nodes = self._claims_of.setdefault(pod.uid, {}).setdefault(source, [])
        if node not in nodes:
            nodes.append(node)
        self._touch(node)
        if source is ClaimSource.PLAN:
            self._claim_annotation(pod)

    def drop_claims(self, uid: PodUid, *sources: ClaimSource) -> None:
        """End a pod's claims of these sources (none given: all)."""
        mine = self._claims_of.get(uid, {})
        for source in sources or tuple(mine):
            for node in mine.pop(source, ()):
                self._claims[node].pop((uid, source), None)
                self._touch(node)
        if not mine:
            self._claims_of.pop(uid, None)

    def drop_claim(self, uid: PodUid, source: ClaimSource, node: NodeName) -> None:
        """End one claim on one node."""
        nodes = self._claims_of.get(uid, {}).get(source, [])
        if node in nodes:
            nodes.remove(node)
            self._claims[node].pop((uid, source), None)
            self._touch(node)

    def claims_of(self, uid: PodUid, source: ClaimSource) -> tuple[Claim, ...]:
        """A pod's claims of one source."""
        return tuple(self._claims[node][uid, source] for node in self._claims_of.get(uid, {}).get(source, ()))

    def binds_any(self, pods: Iterable[PodView]) -> bool:
        """Whether a bind of one of these pods is under way, or its outcome unknown."""
        return any(self.claims_of(pod.uid, ClaimSource.BIND) for pod in pods)

    def withdraw(self, uid: PodUid) -> None:
        """The plan written on this pod counts no longer, and never again until `restore`."""
        self._withdrawn.add(uid)
        self.drop_claims(uid, ClaimSource.ANNOTATION, ClaimSource.PLAN)

    def restore(self, uid: PodUid) -> None:
        """What is planned on this pod counts (again)."""
        self._withdrawn.discard(uid)
        pod = self.pods.get(uid)
        if pod is not None and pod.node is None and not pod.finished:
            self._claim_annotation(pod)

    def reserve_counts(self, job_uid: str, gpus: Mapping[NodeName, int], priority: int) -> None:
        """Hide so many GPUs of these nodes from all but this job of that priority and jobs of a higher one, as they are free or
        become so; replaces the counts of before.
        """
        touched = {*self.reserved.counts, *gpus}
        self.reserved = self.reserved.with_counts(job_uid, gpus, priority)
        self.freed_version += 1
        for name in touched:
            self._touch(name)

    def unreserve_counts(self, job_uid: str) -> None:
        """No counts are reserved for this job any longer."""
        if self.reserved.counts_for == job_uid:
            self.reserve_counts("", {}, 0)

    def reserve_gpus(self, job_uid: str, gpus: Mapping[NodeName, tuple[GpuUuid, ...]], priority: int) -> None:
        """Hide exactly these GPUs from all but this job of that priority and jobs of a higher one, free or not, until
        `unreserve_gpus`.
        """
        self.unreserve_gpus(job_uid)
        self.reserved = self.reserved.with_gpus(job_uid, gpus, priority)
        self.freed_version += 1
        for name in gpus:
            self._touch(name)

    def unreserve_gpus(self, job_uid: str) -> None:
        """No exact GPUs are reserved for this job any longer."""
        touched = self.reserved.nodes_of(job_uid)
        self.reserved = self.reserved.without_gpus(job_uid)
        self.freed_version += 1
        for name in touched:
            self._touch(name)

    def any_below(self, priority: int) -> bool:
        """Whether any unfinished pod of lower priority asks for GPUs, wherever it stands."""
        return any(count and one < priority for one, count in self._priorities.items())

    @property
    def unknown_binds(self) -> int:
        """How many binds are not seen on their pods yet."""
        return sum(len(sources.get(ClaimSource.BIND, ())) for sources in self._claims_of.values())

    # What follows from it

    @property
    def awaits_reports(self) -> bool:
        """Whether a node that announces GPUs, by resource or label, has no GPUTopology that can be read yet."""
        return any(announces_gpus(node) and self._graph(name) is None for name, node in self.nodes.items())

    def _graph(self, name: NodeName) -> LinkGraph | None:
        topology = self.topologies.get(name)
        return None if topology is None else topology.graph

    def bound_to(self, node: NodeName) -> Mapping[PodUid, PodView]:
        """Unfinished pods bound to a node."""
        return self._bound.get(node, _NO_PODS)

    def unreported(self, node: NodeName, gpus: int, but: str = "") -> bool:
        """Whether a pod of that many GPUs (not that of uid `but`) is bound there, or about to be, and not reported as holding."""
        topology = self.topologies.get(node)
        reported = {uid for _, uid in topology.held} if topology else set()
        waiting = [claim.pod for claim in self.claims_on(node, ClaimSource.BIND) if claim.pod.uid != but]
        return any(one.gpus == gpus and one.uid not in reported for one in (*self.bound_to(node).values(), *waiting))

    def claims_on(self, node: NodeName, *sources: ClaimSource) -> tuple[Claim, ...]:
        """The claims of these sources on a node (none given: all)."""
        return tuple(
            claim for (_, source), claim in self._claims.get(node, _NO_CLAIMS).items() if not sources or source in sources
        )

    def users_of(self, node: NodeName) -> Iterator[tuple[PodView, tuple[GpuUuid, ...]]]:
        """Who has GPUs of a node, and which: its unfinished pods, and those that have a claim on it."""
        yield from ((pod, pod.written_gpus) for pod in self.bound_to(node).values())
        yield from ((claim.pod, claim.gpus) for claim in self.claims_on(node))

    def state(self, name: NodeName) -> NodeState | None:
        """A node with everything taken into account; None for a node that is not there."""
        self._refresh()
        return self._states.get(name)

    def state_for(self, name: NodeName, uid: PodUid) -> NodeState | None:
        """A node as this pod may see it: its own claims are free for itself."""
        if uid not in self._claims_of:
            return self.state(name)
        others = tuple(claim for claim in self.claims_on(name) if claim.pod.uid != uid)
        state, number = self._bare(name, others), self.reserved.counts.get(name, 0)
        if state is None:
            return None
        state = self.reserved.hide_gpus(state, {self.pods[uid].job_uid} if uid in self.pods else ())
        # Counts are taken from what is free for all: a pod's own claims are none of it.
        bare = self._bare(name, self.claims_on(name)) if number else None
        return state if bare is None else with_taken(state, lowest_free(self.reserved.hide_gpus(bare), number))

    def cluster_view(self) -> ClusterView:
        """All nodes at this moment, for any job to read."""
        self._refresh()
        if self._cluster_view.version != self.version:
            found = ((name, self._bare(name, self.claims_on(name))) for name in self.reserved.nodes)
            bare = {name: state for name, state in found if state is not None}
            self._cluster_view = ClusterView(
                self.version, self.freed_version, dict(self._states), bare, self.reserved, +self._free
            )
        return self._cluster_view

    def snapshot(self, job_uid: str = "", priority: int | None = None) -> Snapshot:
        """All nodes at this moment, as this job may see them; None: it sees nothing of what is reserved for others."""
        return Snapshot(self.cluster_view().seen_by(job_uid, priority))

    def subscribe(self) -> set[NodeName]:
        """A set into which the name of every node that changes is put; who reads it empties it."""
        changed: set[NodeName] = set(self.nodes)
        self._watchers.append(changed)
        return changed

    def unsubscribe(self, changed: set[NodeName]) -> None:
        """Stop filling the set."""
        self._watchers = [one for one in self._watchers if one is not changed]

    def next_change(self, node: NodeName) -> asyncio.Event:
        """Is set when that node next changes."""
        return self._changes.setdefault(node, asyncio.Event())

    def _claim_annotation(self, pod: PodView) -> None:
        """What is planned on a pod counts once it is released. Not so what an earlier plan wrote there: bind refuses that."""
        known = self.claims_of(pod.uid, ClaimSource.ANNOTATION)
        written = pod.planned_node, pod.planned_gpus
        outdated = any((one.node, one.gpus) != written for one in self.claims_of(pod.uid, ClaimSource.PLAN))
        if not outdated and len(known) == 1 and (known[0].node, known[0].gpus) == written:
            return
        self.drop_claims(pod.uid, ClaimSource.ANNOTATION)
        released = pod.ours and pod.job_uid and not pod.gated and pod.uid not in self._withdrawn
        if released and not outdated and pod.planned_node and pod.planned_gpus:
            self.claim(ClaimSource.ANNOTATION, pod, pod.planned_node, pod.planned_gpus)

    def _forget(self, uid: PodUid) -> None:
        old = self.pods.get(uid)
        if old is not None:
            self._priorities[old.priority] -= _counts(old)
        if old is not None and old.node is not None and uid in self._bound.get(old.node, {}):
            del self._bound[old.node][uid]
            self._touch(old.node)

    def _touch(self, name: NodeName) -> None:
        self.version += 1
        self._dirty.add(name)
        for changed in self._watchers:
            changed.add(name)
        if (change := self._changes.pop(name, None)) is not None:
            change.set()

    def _refresh(self) -> None:
        for name in tuple(self._dirty):
            self._dirty.discard(name)
            state = self._bare(name, self.claims_on(name))
            self._note(name, state)
            if state is None:
                self._states.pop(name, None)
            else:
                self._states[name] = self.reserved.hide_all(state)
        self._dirty.clear()  # or it stays slow to look through once it was large

    def _note(self, name: NodeName, state: NodeState | None) -> None:
        """What a node has to give, with nothing hidden, beside what it had."""
        before = self._bares.pop(name, None)
        self.freed_version += gives_more(before, state)
        if before is not None:
            self._free[before.free.bit_count()] -= 1
        if state is not None:
            self._bares[name] = state
            self._free[state.free.bit_count()] += 1

    def _bare(self, name: NodeName, claims: tuple[Claim, ...]) -> NodeState | None:
        """A node without any reservation hidden."""
        node = self.nodes.get(name)
        if node is None:
            return None
        return node_state(node, self.topologies.get(name), self.bound_to(name).values(), claims, self._allocated.get(name, ()))
