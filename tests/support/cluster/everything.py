"""One way to write each resource of an API server, found by asking it what it has."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.kube.session import ClusterSession

Object = dict[str, Any]
NAMESPACE: Final = "default"
SAMPLES: Final = Path(__file__).resolve().parents[2] / "cluster" / "data" / "one_of_each.yaml"
TOUCH: Final = {"metadata": {"annotations": {"touched": "yes"}}}
# No admission policy is asked about these: policies and webhooks themselves (or none could be mended), and questions that store
# nothing. Of the first no role of ours gives any.
EXEMPT_GROUPS: Final = ("admissionregistration.k8s.io", "authorization.k8s.io", "authentication.k8s.io")
# Not tried: certificates want a signed request, and componentstatuses cannot be written.
UNTRIED: Final = ("certificatesigningrequests", "podcertificaterequests", "componentstatuses")
METHODS: Final = {"patch": ("UPDATE", "PATCH"), "delete": ("DELETE", "DELETE"), "create": ("CREATE", "POST")}
CONNECTING: Final = (
    "attach",
    "exec",
    "portforward",
    "proxy",
)  # their requests cannot be dry, and reach nothing on simulated nodes
BINDING: Final[Object] = {"metadata": {"name": "sample"}, "target": {"kind": "Node", "name": "sample"}}
# What differs in another one of a kind, where it is more than the name.
OTHERWISE: Final[dict[str, Object]] = {
    "customresourcedefinitions": {"metadata": {"name": "others.example.com"}},
    "apiservices": {"metadata": {"name": "v2.example.com"}},
    "ipaddresses": {"metadata": {"name": "10.96.0.77"}},
}
SPECS: Final[dict[str, Object]] = {
    "customresourcedefinitions": {"names": {"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"}},
    "apiservices": {"version": "v2"},
}
# What is told to a subresource that is created.
BODIES: Final[dict[str, Object]] = {
    "binding": BINDING,
    "eviction": {"metadata": {"name": "sample"}},
    "token": {"spec": {"audiences": [], "expirationSeconds": 600}},
}


@dataclass(frozen=True, slots=True)
class Try:
    """A request; `what` as policies name it."""

    what: str
    method: str
    path: str
    body: object = None
    dry: bool = True


@contextmanager
def one_of_each(cluster: ClusterSession) -> Iterator[list[Try]]:
    """All that can be tried, while the samples are there."""
    text, groups = SAMPLES.read_text(), list(_groups(cluster))  # before one of the samples is a group that nobody serves
    cluster.kubectl("apply", "--server-side", f"--namespace={NAMESPACE}", "-f", "-", stdin=text)
    try:
        yield list(_tries(cluster, groups, {_key(one): one for one in yaml.safe_load_all(text)}))
    finally:
        cluster.kubectl("delete", "--wait=false", f"--namespace={NAMESPACE}", "-f", "-", stdin=text)


def _key(obj: Object) -> tuple[str, str]:
    return obj["apiVersion"], obj["kind"]


def _groups(cluster: ClusterSession) -> Iterator[tuple[str, str, str]]:
    """Each group's name, preferred version and path."""
    yield "", "v1", "/api/v1"
    for group in cluster.parts.api.get("/apis")["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        if group["name"] not in EXEMPT_GROUPS:
            yield group["name"], version, f"/apis/{version}"


def _tries(
    cluster: ClusterSession, groups: list[tuple[str, str, str]], samples: Mapping[tuple[str, str], Object]
) -> Iterator[Try]:
    api = cluster.parts.api
    for name, version, path in groups:
        resources = [one for one in api.get(path)["resources"] if one["name"].partition("/")[0] not in UNTRIED]
        kinds = {one["name"]: (version, one["kind"]) for one in resources if "/" not in one["name"]}
        for one in resources:
            inside = f"namespaces/{NAMESPACE}/" if one["namespaced"] else ""
            plural, _, sub = one["name"].partition("/")
            collection = f"{path}/{inside}{plural}"
            sample = BINDING if plural == "bindings" else samples.get(kinds[plural]) or _copied(cluster, collection)
            yield from _of_resource(f"{name}/{one['name']}", one, collection, sub, sample)


def _copied(cluster: ClusterSession, collection: str) -> Object:
    """What stands there, as it could be made again under another name."""
    found = cluster.parts.api.get(collection)["items"][0]
    found["metadata"] = {"name": found["metadata"]["name"]}
    return dict(found)


def _of_resource(what: str, resource: Mapping[str, Any], collection: str, sub: str, sample: Object) -> Iterator[Try]:
    name = sample["metadata"]["name"]
    path = f"{collection}/{name}{'/' if sub else ''}{sub}"
    if sub in CONNECTING:
        yield Try(f"CONNECT {what}", "POST", path, dry=False)
        return
    for verb in sorted({"create", "patch", "delete"} & set(resource["verbs"])):
        operation, method = METHODS[verb]
        if verb == "create" and not sub:
            yield Try(f"{operation} {what}", method, collection, _another(what.partition("/")[2], sample))
        else:
            body = {"create": BODIES.get(sub, {}), "patch": TOUCH}.get(verb)
            yield Try(f"{operation} {what}", method, path, body)


def _another(plural: str, sample: Object) -> Object:
    made = {**sample, "metadata": {**sample["metadata"], "name": f"{sample['metadata']['name']}-2"}, **OTHERWISE.get(plural, {})}
    return {**made, "spec": {**sample["spec"], **SPECS[plural]}} if plural in SPECS else made
