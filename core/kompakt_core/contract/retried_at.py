"""When the extender last had kube-scheduler try a rejected pod again, as it stands on the pod."""

from collections.abc import Mapping
from datetime import datetime

from kompakt_core import contract
from kompakt_core.contract import timestamps


def encode(moment: datetime) -> dict[str, str]:
    """The annotation."""
    return {contract.ANN_RETRIED_AT: timestamps.encode(moment)}


def decode(annotations: Mapping[str, str]) -> datetime | None:
    """The moment; None where it never happened. Raises InvalidInput for anything but a moment."""
    text = annotations.get(contract.ANN_RETRIED_AT)
    return None if text is None else timestamps.decode(text, contract.ANN_RETRIED_AT)
