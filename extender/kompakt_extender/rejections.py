"""Refusals as short words for programs: labels of metrics and keys of the explain API. Few, fixed, and never a name."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kompakt_extender import words

# A text that is not ours alone (what was wrong with a pod's request, what the API server said) has no word of its own.
OTHER: Final = "Other"
NOT_PLANNED: Final = "NotPlanned"
_CODES: Final[Mapping[str, str]] = {
    **{text: reason.value for reason, text in words.TEXTS.items()},
    words.NOT_PLANNED: NOT_PLANNED,
    words.PLANNED_TAKEN: "PlannedTaken",
    words.UNKNOWN_NODE: "UnknownNode",
    words.NO_PLAN: "NoPlan",
    words.WITHDRAWN: "Withdrawn",
    words.NO_GPUS: "NoGPUs",
}


def code_of(text: str) -> str:
    """The word for a text that filter or bind answered; OTHER for one that is not in the list."""
    return _CODES.get(text, OTHER)


def counted(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs among these texts; each different text is looked up once."""
    counts: Counter[str] = Counter()
    for text, number in Counter(texts).items():
        counts[code_of(text)] += number
    return counts
