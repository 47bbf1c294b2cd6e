"""To which gang a pod belongs that no TrainingJob made: its label and annotations, written by users in their pod templates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kompakt_core import contract
from kompakt_core.contract import counts, words
from kompakt_core.contract.words import Level
from kompakt_core.errors import InvalidInput

MAX_SIZE: Final = 4096  # pods; the plan of more is larger than etcd takes, as for a TrainingJob
# A worker whose template has the label of a gang belongs to its job all the same.
SELECTOR: Final = f"{contract.LABEL_GANG},!{contract.LABEL_JOB_UID}"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class GangMember:
    """What a pod says of its gang: how many pods that has, and how far it may be spread."""

    size: int
    required_level: Level = Level.CLUSTER


def name(labels: Mapping[str, str]) -> str:
    """The gang's name; empty for a pod of none, and where the label cannot be the name of an object."""
    text = labels.get(contract.LABEL_GANG, "")
    return text if _NAME.fullmatch(text) else ""


def decode(labels: Mapping[str, str], annotations: Mapping[str, str]) -> GangMember | None:
    """None for a pod of no gang.

    Raises:
        InvalidInput: the label is no name, or an annotation is missing or holds what is not known.
    """
    if contract.LABEL_GANG not in labels:
        return None
    if not name(labels):
        right = "a name of lowercase letters, digits and dashes"
        raise InvalidInput(f"label {contract.LABEL_GANG}: {labels[contract.LABEL_GANG]!r} names no gang; right would be {right}")
    level = annotations.get(contract.ANN_REQUIRED_LEVEL, Level.CLUSTER)
    return GangMember(_size(annotations), words.decode(level, Level, contract.ANN_REQUIRED_LEVEL))


def _size(annotations: Mapping[str, str]) -> int:
    size = counts.decode(annotations.get(contract.ANN_GANG_SIZE), contract.ANN_GANG_SIZE, "pods")
    if not 1 <= size <= MAX_SIZE:
        raise InvalidInput(f"{contract.ANN_GANG_SIZE}: a gang of {size} pods; right would be 1 to {MAX_SIZE}")
    return size
