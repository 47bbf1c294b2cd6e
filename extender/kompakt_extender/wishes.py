"""How a pod wants its GPUs chosen, read from its annotations."""

from collections.abc import Mapping
from typing import TypeVar

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.edges import Edges, parse_edges
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import Policy, Wish

_T = TypeVar("_T")


def wish_of(annotations: Mapping[str, str], *, same_numa_node: bool = False) -> Wish:
    """How a pod wants its GPUs chosen, from its input annotations.

    Raises:
        InvalidInput: an annotation holds a word that is not known, or edges that are none.
    """
    pattern = _word(annotations, contract.ANN_PATTERN, {p.value: p for p in Pattern}, Pattern.NONE)
    return Wish(
        pattern=pattern,
        policy=_word(annotations, contract.ANN_POLICY, {p.value: p for p in Policy}, Policy.PRESERVE),
        sensitive=_word(annotations, contract.ANN_SENSITIVITY, _SENSITIVE, False),
        required_link=_word(annotations, contract.ANN_REQUIRED_LINK, {"Any": "Any", "NVLink": "NVLink"}, "Any"),
        same_numa_node=same_numa_node,
        edges=_edges(annotations, pattern),
    )


_SENSITIVE = {"High": True, "Medium": True, "Auto": True, "Low": False, "None": False}


def _edges(annotations: Mapping[str, str], pattern: Pattern) -> Edges:
    text = annotations.get(contract.ANN_EDGES)
    if (text is None) == (pattern is Pattern.CUSTOM):
        raise InvalidInput(f"{contract.ANN_EDGES} and {contract.ANN_PATTERN} {Pattern.CUSTOM} go together: give both or neither")
    if text is None:
        return ()
    try:
        return parse_edges(text)
    except InvalidInput as error:
        raise InvalidInput(f"{contract.ANN_EDGES}: {error}") from None


def _word(annotations: Mapping[str, str], key: str, words: Mapping[str, _T], default: _T) -> _T:
    text = annotations.get(key)
    if text is None:
        return default
    if text not in words:
        raise InvalidInput(f"{key}: {text[:80]!r} is not known; right would be {', '.join(sorted(words))}")
    return words[text]
