"""What kube-scheduler and an extender say to each other (k8s.io/kube-scheduler/extender/v1): requests in, answers out.

The Go structs carry no JSON tags, so the keys are CamelCase; inside a Pod they are as in the API.
"""

import re
from typing import Protocol, TypeVar

import msgspec

from kompakt_core.errors import InvalidInput
from kompakt_extender.node_name_lists import NameReader
from kompakt_extender.objects import Meta, Pod, PodSpec

_NULL = msgspec.Raw(b"null")
_ALL_PASS = b'{"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


class FullNodes(msgspec.Struct):
    """A NodeList whose nodes stay as they came: they are only handed back."""

    items: list[msgspec.Raw] | None = None


class _Body(msgspec.Struct, rename="pascal"):
    """Body of filter and prioritize as it came: node names with nodeCacheCapable: true, whole nodes without."""

    pod: msgspec.Raw
    nodes: FullNodes | None = None
    node_names: msgspec.Raw = _NULL


class ExtenderArgs(msgspec.Struct):
    """What filter and prioritize are asked: `names` in either case; whole `nodes`, or the JSON text of the names."""

    pod: Pod
    names: list[str]
    nodes: FullNodes | None
    names_text: bytes = b""


class BindingArgs(msgspec.Struct):
    """Body of bind."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class FilterResult(msgspec.Struct, rename="pascal"):
    """Answer of filter; `failed_and_unresolvable_nodes` are those that no eviction would help."""

    node_names: list[str]
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class _FullResult(msgspec.Struct, rename="pascal"):
    """FilterResult for a scheduler without nodeCacheCapable."""

    nodes: FullNodes
    node_names: None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


class BindingResult(msgspec.Struct, rename="pascal"):
    """Answer of bind; an empty error means bound."""

    error: str = ""


class _NodeMeta(msgspec.Struct):
    name: str


class _NamedNode(msgspec.Struct):
    metadata: _NodeMeta


_BODY = msgspec.json.Decoder(_Body)
_POD = msgspec.json.Decoder(Pod)
_BINDING = msgspec.json.Decoder(BindingArgs)
_NAMED_NODE = msgspec.json.Decoder(_NamedNode)
_ENCODER = msgspec.json.Encoder()
_Read = TypeVar("_Read", covariant=True)
# Names of pods and nodes are DNS subdomains, those of namespaces labels, uids of Kubernetes are made of the same characters
# (kubernetes.io, "Object Names and IDs"). They become parts of paths, so nothing else may pass.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of filter or prioritize.

    Raises:
        InvalidInput: not JSON, a field of the wrong type, or neither NodeNames nor Nodes.
    """
    args = _decode(_BODY, body, "ExtenderArgs")
    pod = _decode(_PODS, bytes(args.pod), "ExtenderArgs.Pod")
    if args.node_names != _NULL:
        text = bytes(args.node_names)
        return ExtenderArgs(pod, _decode(_NAMES, text, "ExtenderArgs.NodeNames"), None, text)
    if args.nodes is not None:
        return ExtenderArgs(pod, list(_by_name(args.nodes)), args.nodes)
    raise InvalidInput("ExtenderArgs names no nodes: right would be a list in NodeNames, or a NodeList in Nodes")


class _Pods:
    """Reads pods, and keeps the last: prioritize is asked for the pod that filter was asked for just before."""

    def __init__(self) -> None:
        self._raw, self._pod = b"", Pod(Meta(), PodSpec())

    def decode(self, raw: bytes) -> Pod:
        if raw != self._raw:
            self._raw, self._pod = raw, _POD.decode(raw)
        return self._pod


_PODS, _NAMES = _Pods(), NameReader()


def _by_name(nodes: FullNodes) -> dict[str, msgspec.Raw]:
    return {_decode(_NAMED_NODE, raw, "Node").metadata.name: raw for raw in nodes.items or ()}


def decode_binding(body: bytes) -> BindingArgs:
    """Read the body of bind.

    Raises:
        InvalidInput: not JSON, a field of the wrong type, or what cannot be a name, namespace, uid or node.
    """
    args = _decode(_BINDING, body, "ExtenderBindingArgs")
    for key, value in (("PodName", args.name), ("PodNamespace", args.namespace), ("PodUID", args.uid), ("Node", args.node)):
        if not value:
            raise InvalidInput(f"ExtenderBindingArgs.{key} is empty: kube-scheduler always names it")
        if not _NAME.fullmatch(value):
            raise InvalidInput(f"ExtenderBindingArgs.{key} is {value[:80]!r}: right would be lower case letters, digits, - and .")
    return args


def encode(answer: FilterResult | BindingResult) -> bytes:
    """The answer as JSON."""
    return _ENCODER.encode(answer)


def encode_filtered(args: ExtenderArgs, result: FilterResult) -> bytes:
    """filter's answer in the form of its question: names for names, whole nodes for whole nodes."""
    if result.node_names is args.names and args.names_text:
        return _ALL_PASS % args.names_text
    if args.nodes is None:
        return _ENCODER.encode(result)
    whole = _by_name(args.nodes)
    kept = FullNodes([whole[name] for name in result.node_names])
    return _ENCODER.encode(_FullResult(kept, None, result.failed_nodes, result.failed_and_unresolvable_nodes, result.error))


def encode_text(text: str) -> bytes:
    """A JSON string."""
    return _ENCODER.encode(text)


class _Decoder(Protocol[_Read]):
    def decode(self, text: bytes, /) -> _Read: ...


def _decode(decoder: _Decoder[_Read], body: bytes | msgspec.Raw, what: str) -> _Read:
    try:
        return decoder.decode(bytes(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a valid {what}: {error}") from error
