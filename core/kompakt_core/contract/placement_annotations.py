"""How a pod wants its GPUs chosen, as its input annotations say it; written by the operator, or by a user on a plain pod."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.contract import words
from kompakt_core.contract.words import PlacementPolicy, RequiredLink, Sensitivity
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.edges import Edges, parse_edges, text_of
from kompakt_core.patterns.names import Pattern


@dataclass(frozen=True, slots=True)
class PlacementAnnotations:
    """What is absent has the default here. InvalidInput where pattern Custom comes without edges, or edges without it."""

    pattern: Pattern = Pattern.NONE
    edges: Edges = ()
    sensitivity: Sensitivity = Sensitivity.NONE
    policy: PlacementPolicy = PlacementPolicy.PRESERVE
    required_link: RequiredLink = RequiredLink.ANY
    same_numa_node: bool = False

    def __post_init__(self) -> None:
        if bool(self.edges) != (self.pattern is Pattern.CUSTOM):
            both = f"{contract.ANN_EDGES} and {contract.ANN_PATTERN} {Pattern.CUSTOM}"
            raise InvalidInput(f"{both} go together: right would be both or neither")


def encode(asked: PlacementAnnotations) -> dict[str, str]:
    """The annotations of a pod. One NUMA node stands there only where it is demanded."""
    return {
        **({contract.ANN_EDGES: text_of(asked.edges)} if asked.edges else {}),
        contract.ANN_PATTERN: str(asked.pattern),
        contract.ANN_SENSITIVITY: str(asked.sensitivity),
        contract.ANN_POLICY: str(asked.policy),
        contract.ANN_REQUIRED_LINK: str(asked.required_link),
        **({contract.ANN_SAME_NUMA: words.encode_flag(True)} if asked.same_numa_node else {}),
    }


def decode(annotations: Mapping[str, str]) -> PlacementAnnotations:
    """What a pod asks for; other annotations of it are of no matter.

    Raises:
        InvalidInput: an annotation holds a word that is not known or edges that are none, or edges come without pattern Custom.
    """
    return _decode(tuple(map(annotations.get, _READERS)))


def readable(annotations: Mapping[str, str]) -> PlacementAnnotations:
    """The same of a pod that is bound already: an annotation that cannot be read counts as absent, the others stand."""
    try:
        return decode(annotations)
    except InvalidInput:
        return decode(_without_unreadable(annotations))


def _without_unreadable(annotations: Mapping[str, str]) -> Mapping[str, str]:
    kept = {key: annotations[key] for key in _READERS if key in annotations and _is_readable(key, annotations[key])}
    if (contract.ANN_EDGES in kept) != (kept.get(contract.ANN_PATTERN) == Pattern.CUSTOM):
        kept.pop(contract.ANN_EDGES, None)
        if kept.get(contract.ANN_PATTERN) == Pattern.CUSTOM:
            del kept[contract.ANN_PATTERN]
    return kept


def _is_readable(key: str, text: str) -> bool:
    try:
        _READERS[key][1](text, key)
    except InvalidInput:
        return False
    return True


@lru_cache(maxsize=256)  # many pods, few requests
def _decode(texts: tuple[str | None, ...]) -> PlacementAnnotations:
    given = zip(_READERS.items(), texts, strict=True)
    return PlacementAnnotations(**{field: read(text, key) for (key, (field, read)), text in given if text is not None})


def _edges(text: str, where: str) -> Edges:
    try:
        return parse_edges(text)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _word(kind: type[words.Word]) -> Callable[[str, str], words.Word]:
    return lambda text, where: words.decode(text, kind, where)


# Annotation -> field, and who reads its text.
_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    contract.ANN_PATTERN: ("pattern", _word(Pattern)),
    contract.ANN_POLICY: ("policy", _word(PlacementPolicy)),
    contract.ANN_SENSITIVITY: ("sensitivity", _word(Sensitivity)),
    contract.ANN_REQUIRED_LINK: ("required_link", _word(RequiredLink)),
    contract.ANN_SAME_NUMA: ("same_numa_node", words.decode_flag),
    contract.ANN_EDGES: ("edges", _edges),
}
