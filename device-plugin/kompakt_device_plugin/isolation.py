"""Whether this node's container runtime shows GPUs to whoever asks by NVIDIA_VISIBLE_DEVICES.

Kubernetes does not say, and NVIDIA's runtime cannot be asked. Two things tell: what a container that asked was shown
(`isolation_probe`), which is true of the handler that it runs under; and the setting in the configuration of NVIDIA's toolkit,
which all its handlers may share.
"""

import json
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kompakt_core.contract.conditions import ConditionReason
from kompakt_device_plugin.isolation_probe import shown_gpus

SETTING: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
REMEDY: Final = f"set {SETTING} = false in the config.toml of NVIDIA's container toolkit on this node"
AGAIN: Final = "then restart this node's device plugin, which asks when it begins"
_MOST: Final = 1 << 20  # bytes of a file; some thousand are usual


class IsolationLevel(StrEnum):
    """What follows for a node that is not known to be isolated."""

    DEFAULT = "default"  # it says so
    STRICT = "strict"  # it offers no GPU either


@dataclass(frozen=True, slots=True)
class Isolation:
    """What is known of a node; `isolated` None: nothing yet. `strict`: unless it is isolated it offers nothing."""

    isolated: bool | None
    reason: ConditionReason
    message: str
    strict: bool = False

    @property
    def forbids(self) -> bool:
        """Whether the node may offer no GPU."""
        return self.strict and not self.isolated


@dataclass(frozen=True, slots=True)
class NodeIsolation:
    """Looks on one node. `probe`: the file that `isolation_probe` writes, or this process's own /dev where its container itself
    asked by the variable. `toolkit`: the folder of the toolkit's config.toml, where that is looked at.
    """

    level: IsolationLevel = IsolationLevel.DEFAULT
    probe: Path | None = None
    toolkit: Path | None = None

    def __call__(self) -> Isolation | None:
        """What is known now; None where nobody wants to know."""
        strict = self.level is IsolationLevel.STRICT
        if self.probe is None and self.toolkit is None and not strict:
            return None
        found = _judged(self._shown(), self._accepts())
        return Isolation(*found, strict=strict)

    def _shown(self) -> list[str] | None:
        """The GPUs that a container was shown which asked; None where that is not known."""
        if self.probe is None:
            return None
        if self.probe.is_dir():
            return shown_gpus(self.probe)
        try:
            return [str(name) for name in json.loads(_text(self.probe))]
        except (OSError, ValueError, TypeError):
            return None

    def _accepts(self) -> bool | str:
        """Whether the toolkit's configuration lets anybody ask; else why that cannot be read. No file: no toolkit there."""
        if self.toolkit is None:
            return False
        try:
            accepts = tomllib.loads(_text(self.toolkit / "config.toml")).get(SETTING, True)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            return f"the toolkit's config.toml cannot be read: {error}"[:300]
        return accepts is not False


def _judged(shown: list[str] | None, accepts: bool | str) -> tuple[bool | None, ConditionReason, str]:
    asks = "a container without GPUs that asks by NVIDIA_VISIBLE_DEVICES"
    if shown:
        said = f"{asks} is shown {', '.join(shown[:16])} here: {REMEDY}; {AGAIN}"
        return False, ConditionReason.VARIABLE_HONOURED, said
    if accepts is True:
        said = f"{asks} is shown them under every handler of NVIDIA's runtime here: {REMEDY}"
        return False, ConditionReason.VARIABLE_HONOURED, said
    if shown is None or accepts:
        why = accepts or "the container that asks has not said yet what it was shown; if it cannot start, its Events say why"
        return None, ConditionReason.NOT_PROBED, f"whether {asks} is shown some is not known: {why}"
    return True, ConditionReason.VARIABLE_REFUSED, f"{asks} was shown none"


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(_MOST).decode()
