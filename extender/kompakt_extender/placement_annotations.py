"""How a pod wants its GPUs chosen, read from its annotations."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.edges import Edges, parse_edges
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import Policy, Wish

_T = TypeVar("_T")


_PATTERNS = {word.value: word for word in Pattern}
_POLICIES = {word.value: word for word in Policy}
_SENSITIVE = {"High": True, "Medium": True, "Auto": True, "Low": False, "None": False}
_LINKS = {"Any": "Any", "NVLink": "NVLink"}
_FLAGS = {"true": True, "false": False}


def wish_of(annotations: Mapping[str, str], *, same_numa_node: bool = False) -> Wish:
    """How a pod wants its GPUs chosen, from its input annotations; `same_numa_node`: its TrainingJob demands that.

    Raises:
        InvalidInput: an annotation holds a word that is not known, or edges that are none.
    """
    get = annotations.get
    return _wish(
        get(contract.ANN_PATTERN),
        get(contract.ANN_POLICY),
        get(contract.ANN_SENSITIVITY),
        get(contract.ANN_REQUIRED_LINK),
        get(contract.ANN_EDGES),
        get(contract.ANN_SAME_NUMA),
        same_numa_node,
    )


@lru_cache(maxsize=256)  # many pods, few wishes
def _wish(
    pattern: str | None,
    policy: str | None,
    sensitivity: str | None,
    link: str | None,
    edges: str | None,
    numa: str | None,
    same_numa_node: bool,
) -> Wish:
    shape = _word(pattern, contract.ANN_PATTERN, _PATTERNS, Pattern.NONE)
    return Wish(
        pattern=shape,
        policy=_word(policy, contract.ANN_POLICY, _POLICIES, Policy.PRESERVE),
        sensitive=_word(sensitivity, contract.ANN_SENSITIVITY, _SENSITIVE, False),
        required_link=_word(link, contract.ANN_REQUIRED_LINK, _LINKS, "Any"),
        same_numa_node=_word(numa, contract.ANN_SAME_NUMA, _FLAGS, False) or same_numa_node,
        edges=_edges(edges, shape),
    )


def _edges(text: str | None, pattern: Pattern) -> Edges:
    if (text is None) == (pattern is Pattern.CUSTOM):
        raise InvalidInput(f"{contract.ANN_EDGES} and {contract.ANN_PATTERN} {Pattern.CUSTOM} go together: give both or neither")
    if text is None:
        return ()
    try:
        return parse_edges(text)
    except InvalidInput as error:
        raise InvalidInput(f"{contract.ANN_EDGES}: {error}") from None


def _word(text: str | None, key: str, words: Mapping[str, _T], default: _T) -> _T:
    if text is None:
        return default
    if text not in words:
        raise InvalidInput(f"{key}: {text[:80]!r} is not known; right would be {', '.join(sorted(words))}")
    return words[text]
