"""What a pod's spec says of nodes: nodeSelector, required node affinity, tolerations. Kept as the API server sent it.

Read, a megabyte of affinity takes fourteen; so it is kept as text, of unbound pods that ask us for a place and of no others,
in one copy for all workers of a role, and read when such a pod is planned.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from kompakt_core.placement.model import Selector, Toleration
from kompakt_extender.objects import Affinity, NodeSelectorObject, PodSpec, Term, TolerationObject

# Node affinity can ask for labels and for fields; a field is told from a label of the same name by this prefix.
FIELD_PREFIX: Final = "field:"
NAME_FIELD: Final = f"{FIELD_PREFIX}metadata.name"
AT_MOST: Final = 32 << 10  # bytes of these rules and of our annotations together
NO_RULES: Final = b""
_COPIES: Final = 1024  # different ones of which all pods share a copy
_READ_AT_ONCE: Final = 128
_NULL: Final = b"null"


class NodeRules(NamedTuple):
    """The same as core asks for it."""

    node_selector: Mapping[str, str] = {}
    affinity: tuple[tuple[Selector, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class _Written(msgspec.Struct):
    """How they are kept."""

    selector: dict[str, str] | None = None
    required: NodeSelectorObject | None = None
    tolerations: list[TolerationObject] | None = None


_AFFINITY: Final = msgspec.json.Decoder(Affinity | None)
_WRITTEN: Final = msgspec.json.Decoder(_Written)


def written(spec: PodSpec) -> bytes:
    """The rules as they are kept; with `too_large` they are not to be."""
    affinity = affinity_of(spec)
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else msgspec.Raw(_NULL)
    parts = {"selector": spec.node_selector, "required": required, "tolerations": spec.tolerations}
    given = {name: raw for name, raw in parts.items() if bytes(raw) not in (_NULL, b"{}", b"[]")}
    return _shared(msgspec.json.encode(given)) if given else NO_RULES


def affinity_of(spec: PodSpec) -> Affinity | None:
    """Read for those who need to know what kinds of it there are."""
    found: Affinity | None = _AFFINITY.decode(spec.affinity)
    return found


def too_large(spec: PodSpec, annotations: Mapping[str, str]) -> str:
    """Why nobody reads this pod's rules; "" where they are of a size that is kept."""
    noted = sum(len(key) + len(text) for key, text in annotations.items())
    size = noted + sum(memoryview(raw).nbytes for raw in (spec.node_selector, spec.affinity, spec.tolerations))
    if size <= AT_MOST:
        return ""
    return (
        f"its nodeSelector, affinity, tolerations and kompakt.dev annotations take {size} bytes, and at most {AT_MOST} are read: "
        "give the nodes that are meant a label, and ask for that"
    )


@lru_cache(maxsize=_COPIES)
def _shared(raw: bytes) -> bytes:
    return raw


@lru_cache(maxsize=_READ_AT_ONCE)
def read(raw: bytes) -> NodeRules:
    """The rules of a pod."""
    if raw == NO_RULES:
        return NodeRules()
    found = _WRITTEN.decode(raw)
    terms = (found.required.node_selector_terms or ()) if found.required else ()
    tolerations = (Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "") for t in found.tolerations or ())
    return NodeRules(found.selector or {}, tuple(map(_selectors, terms)), tuple(tolerations))


def _selectors(term: Term) -> tuple[Selector, ...]:
    def of(expressions: Iterable[Any], prefix: str) -> Iterable[Selector]:
        return (Selector(prefix + e.key, e.operator, tuple(e.values or ())) for e in expressions)

    # A field is told from a label by its prefix; the ledger adds metadata.name to the labels it shows to core.
    return (*of(term.match_expressions or (), ""), *of(term.match_fields or (), FIELD_PREFIX))
