"""What kube-scheduler and an extender say to each other (k8s.io/kube-scheduler/extender/v1): requests in, answers out.

The Go structs carry no JSON tags, so the keys are CamelCase; inside a Pod they are as in the API.
"""

import re
from typing import TypeVar

import msgspec

from kompakt_core.errors import InvalidInput
from kompakt_extender.objects import Pod

_NULL = msgspec.Raw(b"null")


class FullNodes(msgspec.Struct):
    """A NodeList whose nodes stay as they came: they are only handed back."""

    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """Body of filter and prioritize: node names with nodeCacheCapable: true, whole nodes without.

    After `decode_args`, `names` holds the names in either case.
    """

    pod: Pod
    nodes: FullNodes | None = None
    node_names: msgspec.Raw = _NULL
    names: list[str] = []


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


class HostPriority(msgspec.Struct, rename="pascal"):
    """One entry of prioritize's answer; `score` is a whole number 0..10."""

    host: str
    score: int


class BindingResult(msgspec.Struct, rename="pascal"):
    """Answer of bind; an empty error means bound."""

    error: str = ""


class _NodeMeta(msgspec.Struct):
    name: str


class _NamedNode(msgspec.Struct):
    metadata: _NodeMeta


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_BINDING = msgspec.json.Decoder(BindingArgs)
_NAME_LIST = msgspec.json.Decoder(list[str])
_NAMED_NODE = msgspec.json.Decoder(_NamedNode)
_ENCODER = msgspec.json.Encoder()
# Names of pods and nodes are DNS subdomains, those of namespaces labels, uids of Kubernetes are made of the same characters
# (kubernetes.io, "Object Names and IDs"). They become parts of paths, so nothing else may pass.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of filter or prioritize.

    Raises:
        InvalidInput: not JSON, a field of the wrong type, or neither NodeNames nor Nodes.
    """
    args = _decode(_ARGS, body, "ExtenderArgs")
    if args.node_names != _NULL:
        args.names = _NAMES.read(bytes(args.node_names))
    elif args.nodes is not None:
        args.names = list(_by_name(args.nodes))
    else:
        raise InvalidInput("ExtenderArgs names no nodes: right would be a list in NodeNames, or a NodeList in Nodes")
    return args


class _Names:
    """Reads lists of names, and keeps the last: prioritize is asked for those that filter has just let pass.

    The strings are then the same objects, whose hashes are known: half of the time that 5,000 names cost.
    """

    def __init__(self) -> None:
        self._raw, self._names = b"[]", list[str]()

    def read(self, raw: bytes) -> list[str]:
        if raw != self._raw:
            self._raw, self._names = raw, _decode(_NAME_LIST, raw, "ExtenderArgs.NodeNames")
        return self._names


_NAMES = _Names()


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


def encode(answer: FilterResult | BindingResult | list[HostPriority]) -> bytes:
    """The answer as JSON."""
    return _ENCODER.encode(answer)


def encode_filtered(args: ExtenderArgs, result: FilterResult) -> bytes:
    """filter's answer in the form of its question: names for names, whole nodes for whole nodes."""
    if args.nodes is None:
        return _ENCODER.encode(result)
    whole = _by_name(args.nodes)
    kept = FullNodes([whole[name] for name in result.node_names])
    return _ENCODER.encode(_FullResult(kept, None, result.failed_nodes, result.failed_and_unresolvable_nodes, result.error))


_T = TypeVar("_T")


def encode_text(text: str) -> bytes:
    """A JSON string."""
    return _ENCODER.encode(text)


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw, what: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a valid {what}: {error}") from error
