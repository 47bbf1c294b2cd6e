"""What `kompakt doctor` reads of a cluster, with the rights of a kubeconfig; what it may not read says which right is missing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kompakt_core import contract
from kompakt_core.contract import gpu_claim
from kompakt_core.errors import InvalidInput

if TYPE_CHECKING:
    from kompakt_client.transport import ApiClient

PAGE: Final = 500
NODE_LEASES: Final = "kube-node-lease"
PART: Final = "app.kubernetes.io/component"
PARTS: Final = "app.kubernetes.io/name=kompakt"
PLURALS: Final = (contract.JOB_PLURAL, contract.TOPOLOGY_PLURAL, contract.LIMITS_PLURAL, contract.GANG_PLURAL)
MACHINES_VOLUME: Final = "machines"
Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unread:
    """`right`: what one must be allowed to; `why`: the API server's words."""

    right: str
    why: str


Items = tuple[Item, ...] | Unread


@dataclass(frozen=True, slots=True)
class AskedRight:
    """Something that somebody wants to do. `account`: a service account of the release; empty: whoever asks."""

    verb: str
    resource: str  # resource or resource/subresource
    group: str = ""
    namespace: str = ""
    name: str = ""
    account: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{f' {self.name}' if self.name else ''}{where}"


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """Objects as the API server shows them. `now`: its clock when Leases were read; `ahead`: seconds of this machine's clock."""

    release: str
    namespace: str
    version: str
    now: float
    ahead: float = 0.0
    kinds: Items = ()
    definitions: Items = ()
    deployments: Items = ()
    daemonsets: Items = ()
    parts: Items = ()  # pods of kompakt
    machines: Items = ()  # the ConfigMap with descriptions
    leases: Items = ()
    node_leases: Items = ()
    nodes: Items = ()
    topologies: Items = ()
    pods: Items = ()
    jobs: Items = ()
    device_classes: Items = ()
    slices: Items = ()
    taint_rules: Items = ()
    kueue_kinds: Items = ()
    autoscaler_kinds: Items = ()
    rights: Mapping[AskedRight, bool | Unread] = field(default_factory=dict)

    def lacking(self, *names: str) -> list[Unread]:
        """What could not be read of these fields."""
        return [found for name in names if isinstance(found := getattr(self, name), Unread)]


def readable(items: Items) -> tuple[Item, ...]:
    """The objects; none where they could not be read, which a check has ruled out before."""
    return () if isinstance(items, Unread) else items


def option(reading: ClusterReading, option: str) -> str:
    """An option of the device plugin's command line, such as --source=; empty where it is not given, or may not be seen."""
    return _option(reading.daemonsets, "device-plugin", option)


def _option(workloads: Items, part: str, option: str) -> str:
    mine = [one["spec"]["template"]["spec"] for one in readable(workloads) if is_part(one, part)]
    words = [word for pod in mine for one in pod["containers"] for word in one.get("args") or ()]
    return next((word.removeprefix(option) for word in words if word.startswith(option)), "")


def others_hand_out(reading: ClusterReading) -> bool:
    """Whether somebody else hands out the GPUs (chart value allocation: Report or ResourceClaims)."""
    return option(reading, "--allocation=") == "report"


def planner_option(reading: ClusterReading, option: str) -> str:
    """The same of the planner's command line."""
    return _option(reading.deployments, "scheduler", option)


def operator_option(reading: ClusterReading, option: str) -> str:
    """The same of the operator's command line."""
    return _option(reading.deployments, "operator", option)


def by_claims(reading: ClusterReading) -> bool:
    """Whether they do what kompakt's planner chose, by ResourceClaims."""
    return planner_option(reading, "--device-class=") != ""


def only_reports(reading: ClusterReading) -> bool:
    """Whether kompakt chooses nothing (chart value allocation: Report)."""
    return others_hand_out(reading) and not by_claims(reading)


class ClusterReader:
    """Reads one cluster. `clock` is this machine's, in seconds since 1970."""

    def __init__(self, api: "ApiClient", release: str, namespace: str, clock: Callable[[], float] = time.time) -> None:
        self._api, self._release, self._namespace, self._clock = api, release, namespace, clock

    def read(self, wanted: Callable[[tuple[Item, ...]], tuple[AskedRight, ...]]) -> ClusterReading:
        """All of it; `wanted` says by the Deployments which rights to ask about. Raises InvalidInput where nobody answers."""
        version, ahead, now = self._first()
        here = f"namespaces/{quote(self._release, safe='')}"
        leases = "/apis/coordination.k8s.io/v1/namespaces"
        ours = f"/apis/{contract.API_VERSION}"
        deployments = self._listed(f"/apis/apps/v1/{here}/deployments", PARTS)
        daemonsets = self._listed("/apis/apps/v1/daemonsets")
        return ClusterReading(
            self._release,
            self._namespace,
            version,
            now,
            ahead,
            kinds=self._resources(ours),
            definitions=self._definitions(),
            deployments=deployments,
            daemonsets=daemonsets,
            parts=self._listed(f"/api/v1/{here}/pods", PARTS),
            machines=self._machines(daemonsets, here),
            leases=self._listed(f"{leases}/{quote(self._release, safe='')}/leases"),
            node_leases=self._listed(f"{leases}/{NODE_LEASES}/leases"),
            nodes=self._listed("/api/v1/nodes"),
            topologies=self._listed(f"{ours}/{contract.TOPOLOGY_PLURAL}"),
            pods=self._listed("/api/v1/pods"),
            jobs=self._listed(f"{ours}/{contract.JOB_PLURAL}"),
            device_classes=self._listed(f"/apis/{gpu_claim.API_VERSION}/deviceclasses"),
            slices=self._listed(f"/apis/{gpu_claim.API_VERSION}/resourceslices"),
            taint_rules=self._listed(f"/apis/{gpu_claim.API_VERSION}/devicetaintrules"),
            kueue_kinds=self._resources("/apis/kueue.x-k8s.io/v1beta1"),
            autoscaler_kinds=self._resources("/apis/autoscaling.x-k8s.io/v1"),
            rights={one: self._may(one) for one in wanted(readable(deployments))},
        )

    def _first(self) -> tuple[str, float, float]:
        """Version, seconds by which this machine's clock is ahead, and the API server's clock. Its header has whole seconds."""
        from kompakt_client.errors import ApiError
        from kompakt_client.requests import ApiRequest

        began = self._clock()
        try:
            answer = self._api.exchange(ApiRequest("GET", "/version"))
            version = str(self._api.get("/version")["gitVersion"])
        except (ApiError, KeyError) as error:
            raise InvalidInput(f"the API server cannot be reached: {error}; try `kubectl version`") from None
        ended = self._clock()
        told = next((value for name, value in answer.headers.items() if name.lower() == "date"), "")
        server = parsedate_to_datetime(told).timestamp() + 0.5 if told else ended
        return version, (began + ended) / 2 - server, server

    def _resources(self, path: str) -> Items:
        found = self._got(path, "get /apis/*")
        return found if isinstance(found, Unread) else tuple(found.get("resources") or ())

    def _definitions(self) -> Items:
        found: list[Item] = []
        for plural in PLURALS:
            name = f"{plural}.{contract.GROUP}"
            one = self._got(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", "get customresourcedefinitions")
            if isinstance(one, Unread):
                return one
            found += [one] if one else []
        return tuple(found)

    def _machines(self, daemonsets: Items, here: str) -> Items:
        """The ConfigMap that the device plugin's DaemonSet mounts."""
        if isinstance(daemonsets, Unread):
            return daemonsets
        mine = [one for one in daemonsets if is_part(one, "device-plugin") and one["metadata"]["namespace"] == self._release]
        volumes = [volume for one in mine for volume in one["spec"]["template"]["spec"].get("volumes") or ()]
        names = [volume["configMap"]["name"] for volume in volumes if volume["name"] == MACHINES_VOLUME]
        found = self._got(f"/api/v1/{here}/configmaps/{names[0]}", f"get configmaps in {self._release}") if names else {}
        return found if isinstance(found, Unread) else (found,) if found else ()

    def _got(self, path: str, right: str) -> "dict[str, Any] | Unread":
        """One object; empty where there is none."""
        from kompakt_client.errors import ApiError, NotFound

        try:
            return self._api.get(path)
        except NotFound:
            return {}
        except ApiError as error:
            return Unread(right, error.message)

    def _listed(self, path: str, selector: str = "") -> Items:
        """All objects below a path; none where the API server has no such kind."""
        found: list[Item] = []
        query: dict[str, str | int] = {"limit": PAGE, **({"labelSelector": selector} if selector else {})}
        while True:
            page = self._page(path, query)
            if isinstance(page, Unread):
                return page
            found += page.get("items") or ()
            if not (go_on := (page.get("metadata") or {}).get("continue")):
                return tuple(found)
            query["continue"] = go_on

    def _page(self, path: str, query: Mapping[str, str | int]) -> "dict[str, Any] | Unread":
        from kompakt_client.errors import ApiError, NotFound

        *_, above, plural = path.split("/")
        where = f" in namespace {above}" if "/namespaces/" in path else ""
        try:
            return self._api.list(path, query)
        except NotFound:
            return {}
        except ApiError as error:
            return Unread(f"list {plural}{where}", error.message)

    def _may(self, asked: AskedRight) -> bool | Unread:
        """By the API server's word."""
        from kompakt_client.errors import ApiError

        kind = "SubjectAccessReview" if asked.account else "SelfSubjectAccessReview"
        resource, _, part = asked.resource.partition("/")
        attributes = {"verb": asked.verb, "group": asked.group, "resource": resource, "subresource": part}
        attributes |= {"namespace": asked.namespace, "name": asked.name}
        user = {"user": f"system:serviceaccount:{self._release}:{asked.account}"} if asked.account else {}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {**user, "resourceAttributes": attributes}}
        try:
            answer = self._api.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
        except ApiError as error:
            return Unread(f"create {kind.lower()}s.authorization.k8s.io", error.message)
        return bool((answer.get("status") or {}).get("allowed"))


def is_part(item: Item, part: str) -> bool:
    """Whether it is an object of that part of kompakt."""
    labels = item["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/name") == "kompakt" and labels.get(PART) == part
