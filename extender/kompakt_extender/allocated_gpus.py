"""Which GPUs are allocated by ResourceClaims, whoever wrote these: read from the claims' status and the drivers' ResourceSlices.

kubelet tells of a claim's GPUs once it has prepared them; a scheduler has given them away some seconds before.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kompakt_core.contract.claimed_devices import ClaimedDevice, gpus_by_device
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_extender.monitored_gpus import Lookers
from kompakt_extender.objects import Meta
from kompakt_extender.project import node_name

Owners = Mapping[GpuUuid, PodUid]
Pool = tuple[str, str]  # the driver, and the pool's name
_NO_NODE = NodeName("")


class SliceView(msgspec.Struct, frozen=True):
    """Of a ResourceSlice: its pool, the node whose devices these are ("": not one node's), and the object itself."""

    name: str
    pool: Pool
    node: NodeName
    found: Mapping[str, Any]


class ClaimView(msgspec.Struct, frozen=True):
    """Of a ResourceClaim: the pod that controls it ("": none does), and the devices that it was given to itself. `looks_at`:
    those that it was given with `adminAccess`, for the pods `users`.
    """

    uid: str
    owner: PodUid
    devices: tuple[ClaimedDevice, ...]
    looks_at: tuple[ClaimedDevice, ...] = ()
    users: tuple[PodUid, ...] = ()

    @property
    def pools(self) -> frozenset[Pool]:
        """Where its devices lie."""
        return frozenset((device.driver, device.pool) for device in (*self.devices, *self.looks_at))


class _Result(msgspec.Struct, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices | None = None


class _User(msgspec.Struct):
    resource: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_User] | None = None


class _Claim(msgspec.Struct):
    metadata: Meta
    status: _ClaimStatus | None = None


class _Pool(msgspec.Struct):
    name: str = ""


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    node_name: str | None = None


class _Slice(msgspec.Struct):
    metadata: Meta
    spec: _SliceSpec


_CLAIM, _SLICE = msgspec.json.Decoder(_Claim), msgspec.json.Decoder(_Slice)


def read_claim(raw: bytes) -> ClaimView:
    """A ResourceClaim's JSON. With `adminAccess` a monitor looks at devices that others have: such results take none."""
    claim = _CLAIM.decode(raw)
    allocation = claim.status.allocation if claim.status else None
    results = (allocation.devices.results if allocation and allocation.devices else None) or ()
    owners = claim.metadata.owner_references or ()
    owner = next((one.get("uid", "") for one in owners if one.get("controller") is True and one.get("kind") == "Pod"), "")
    own, looks_at = (
        tuple(ClaimedDevice(one.driver, one.pool, one.device) for one in results if bool(one.admin_access) is admin)
        for admin in (False, True)
    )
    reserved = (claim.status.reserved_for if looks_at and claim.status else None) or ()
    users = tuple(PodUid(one.uid) for one in reserved if one.resource == "pods")
    return ClaimView(claim.metadata.uid, PodUid(owner), own, looks_at, users)


def read_slice(raw: bytes) -> SliceView:
    """A ResourceSlice's JSON."""
    found = _SLICE.decode(raw)
    node = node_name(found.spec.node_name or "")
    return SliceView(found.metadata.name, (found.spec.driver, found.spec.pool.name), node, msgspec.json.decode(raw))


class AllocatedGpus:
    """Follows slices and claims, and tells of each node whose GPUs are allocated to whom, and who only looks at which.

    Names of pools are a driver's own, and a node may have several pools, of one driver or of many.
    """

    def __init__(
        self, told: Callable[[NodeName, Owners], None], looked_at: Callable[[NodeName, Lookers], None] = lambda *_: None
    ) -> None:
        self._told, self._looked_at = told, looked_at
        self.slices: dict[str, SliceView] = {}
        self.claims: dict[str, ClaimView] = {}
        self._of_pool: dict[Pool, dict[str, SliceView]] = {}
        self._in_pool: dict[Pool, dict[str, ClaimView]] = {}
        self._owners: dict[NodeName, dict[Pool, Owners]] = {}
        self._lookers: dict[NodeName, dict[Pool, Lookers]] = {}
        self._node_of: dict[Pool, NodeName] = {}

    def set_slice(self, view: SliceView) -> None:
        before = self.slices.get(view.name)
        if before is not None and before.pool != view.pool:
            self.remove_slice(view.name)
        self.slices[view.name] = view
        self._of_pool.setdefault(view.pool, {})[view.name] = view
        self._tell(view.pool)

    def remove_slice(self, name: str) -> None:
        gone = self.slices.pop(name, None)
        if gone is not None:
            del self._of_pool[gone.pool][name]
            self._tell(gone.pool)

    def set_claim(self, view: ClaimView) -> None:
        before = self.claims.get(view.uid)
        self.claims[view.uid] = view
        self._place(before, view)

    def remove_claim(self, uid: str) -> None:
        self._place(self.claims.pop(uid, None), None)

    def _place(self, before: ClaimView | None, after: ClaimView | None) -> None:
        old = before.pools if before else frozenset()
        new = after.pools if after else frozenset()
        for pool in old:
            if before is not None:
                self._in_pool[pool].pop(before.uid, None)
        for pool in new:
            if after is not None:
                self._in_pool.setdefault(pool, {})[after.uid] = after
        for pool in old | new:
            self._tell(pool)

    def _tell(self, pool: Pool) -> None:
        """Of the node of this pool; pools of no node hold no GPUs that a link graph could have."""
        slices = self._of_pool.get(pool, {}).values()
        node, before = next((one.node for one in slices if one.node), _NO_NODE), self._node_of.get(pool, _NO_NODE)
        self._node_of[pool] = node
        if before not in (node, _NO_NODE):
            self._set(before, pool, {}, frozenset())
        if node != _NO_NODE:
            named = gpus_by_device(one.found for one in slices)
            claims = self._in_pool.get(pool, {}).values()
            owners = {named[device]: one.owner for one in claims for device in one.devices if device in named}
            looks = ((named[device], one.users) for one in claims for device in one.looks_at if device in named)
            self._set(node, pool, owners, frozenset((gpu, user) for gpu, users in looks for user in users))

    def _set(self, node: NodeName, pool: Pool, owners: Owners, lookers: Lookers) -> None:
        pools, looking = self._owners.setdefault(node, {}), self._lookers.setdefault(node, {})
        pools[pool], looking[pool] = owners, lookers
        self._told(node, {gpu: owner for one in pools.values() for gpu, owner in one.items()})
        self._looked_at(node, frozenset().union(*looking.values()))
