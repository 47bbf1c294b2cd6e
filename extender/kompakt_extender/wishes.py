"""How a pod wants its GPUs chosen, read from its annotations."""

from collections.abc import Mapping
from typing import TypeVar

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.names import NAMED, Pattern
from kompakt_core.placement.model import Policy, Wish

_T = TypeVar("_T")


def wish_of(annotations: Mapping[str, str], *, same_numa_node: bool = False) -> Wish:
    """How a pod wants its GPUs chosen, from its input annotations.

    Raises:
        InvalidInput: an annotation holds a word that is not known, or one that is not honoured yet.
    """
    if contract.ANN_EDGES in annotations:
        raise InvalidInput(f"{contract.ANN_EDGES} is not supported in {contract.VERSION}: use {contract.ANN_PATTERN}")
    return Wish(
        pattern=_pattern(annotations),
        policy=_word(annotations, contract.ANN_POLICY, {p.value: p for p in Policy}, Policy.PRESERVE),
        sensitive=_word(annotations, contract.ANN_SENSITIVITY, _SENSITIVE, False),
        required_link=_word(annotations, contract.ANN_REQUIRED_LINK, {"Any": "Any", "NVLink": "NVLink"}, "Any"),
        same_numa_node=same_numa_node,
    )


_SENSITIVE = {"High": True, "Medium": True, "Auto": True, "Low": False, "None": False}


def _pattern(annotations: Mapping[str, str]) -> Pattern:
    pattern = _word(annotations, contract.ANN_PATTERN, {p.value: p for p in Pattern}, Pattern.NONE)
    if pattern is Pattern.CUSTOM:
        right = ", ".join(sorted(p.value for p in NAMED))
        raise InvalidInput(
            f"{contract.ANN_PATTERN}: {pattern.value} is not supported in {contract.VERSION}: right would be {right}"
        )
    return pattern


def _word(annotations: Mapping[str, str], key: str, words: Mapping[str, _T], default: _T) -> _T:
    text = annotations.get(key)
    if text is None:
        return default
    if text not in words:
        raise InvalidInput(f"{key}: {text[:80]!r} is not known; right would be {', '.join(sorted(words))}")
    return words[text]
