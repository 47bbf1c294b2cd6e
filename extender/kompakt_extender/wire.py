"""What kube-scheduler and an extender say to each other (k8s.io/kube-scheduler/extender/v1): requests in, answers out.

The Go structs carry no JSON tags, so the keys are CamelCase; inside a Pod they are as in the API.
"""

from typing import TypeVar

import msgspec

from kompakt_core.errors import InvalidInput
from kompakt_extender.objects import Pod


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """Body of filter and prioritize. NodeNames is set because we run with nodeCacheCapable: true."""

    pod: Pod
    node_names: list[str] | None = None


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


class HostPriority(msgspec.Struct, rename="pascal"):
    """One entry of prioritize's answer; `score` is a whole number 0..10."""

    host: str
    score: int


class BindingResult(msgspec.Struct, rename="pascal"):
    """Answer of bind; an empty error means bound."""

    error: str = ""


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_BINDING = msgspec.json.Decoder(BindingArgs)
_ENCODER = msgspec.json.Encoder()


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of filter or prioritize.

    Raises:
        InvalidInput: not JSON, a field of the wrong type, or no NodeNames (the scheduler runs without nodeCacheCapable).
    """
    args = _decode(_ARGS, body, "ExtenderArgs")
    if args.node_names is None:
        raise InvalidInput(
            "ExtenderArgs.NodeNames is missing: set nodeCacheCapable: true for this extender in the KubeSchedulerConfiguration"
        )
    return args


def decode_binding(body: bytes) -> BindingArgs:
    """Read the body of bind.

    Raises:
        InvalidInput: not JSON, a field of the wrong type, or an empty name, namespace, uid or node.
    """
    args = _decode(_BINDING, body, "ExtenderBindingArgs")
    for key, value in (("PodName", args.name), ("PodNamespace", args.namespace), ("PodUID", args.uid), ("Node", args.node)):
        if not value:
            raise InvalidInput(f"ExtenderBindingArgs.{key} is empty: kube-scheduler always names it")
    return args


def encode(answer: FilterResult | BindingResult | list[HostPriority]) -> bytes:
    """The answer as JSON."""
    return _ENCODER.encode(answer)


_T = TypeVar("_T")


def encode_text(text: str) -> bytes:
    """A JSON string."""
    return _ENCODER.encode(text)


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a valid {what}: {error}") from error
