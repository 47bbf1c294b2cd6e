"""What `kompakt profile` found, as a value, read from the JSON that it writes: a file, or a job's annotation."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.sensitivity import LEVEL_FACTORS, communication
from kompakt_core.profile.stalls import Stalls, StepTimes, stalls

VERSION: Final = 1
MODES: Final = ("one", "all", "cold", "warm", "halves")
MOST: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """What one run gave: seconds per step of the slowest rank, the same for each quarter of the steps, seconds of a step spent
    waiting for data; how many data loaders were used; bytes of gradients of one rank; ranks that trained together.
    """

    step_seconds: float
    parts: tuple[float, ...]
    data_seconds: float
    loaders: int
    gradient_bytes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Profile:
    """`devices`: of this machine, used in all runs but `one`; `kind`: GPU or CPU; `runs` by mode, as in StepTimes.

    The run `halves` has the same number of devices, on `half_machines` machines called `half_machine` (empty: as `machine`).
    """

    machine: str
    devices: int
    kind: str
    warm_up: int
    steps: int
    runs: Mapping[str, ProfiledRun]
    notes: tuple[str, ...] = ()
    half_machines: int = 2
    half_machine: str = ""

    @property
    def together(self) -> bool:
        """Whether the processes of the run on all devices trained together; else there was nothing between them."""
        run = self.runs.get("all") or self.runs.get("halves")
        return run is not None and run.ranks > 1

    @property
    def data_seen(self) -> bool:
        """Whether the script's data came through a loader that could be replaced."""
        return all(self.runs[mode].loaders > 0 for mode in ("all", "warm") if mode in self.runs)

    def times(self) -> StepTimes:
        """What the formulas may use: nothing of devices that do not talk, nor of data that were never replaced."""
        left_out = ({"one", "halves"} if not self.together else set()) | ({"cold", "warm"} if not self.data_seen else set())
        return StepTimes(**{mode: run.step_seconds for mode, run in self.runs.items() if mode not in left_out})

    def stalls(self) -> Stalls:
        return stalls(self.times())

    def plain(self) -> ProfiledRun | None:
        """The run that tells of computing: on one device, where nothing is exchanged; else on all of a machine."""
        return self.runs.get("one") or self.runs.get("all")

    def communication(self, gpus: int, gradient_bytes: int | None = None) -> float | None:
        """The share of communication on so many GPUs; None where the processes did not train together.

        `gradient_bytes`: what is known better than what was seen.
        """
        run = self.plain()
        if run is None or not self.together:
            return None
        factor = LEVEL_FACTORS["Machine"] if run.ranks > 1 else 0.0
        size = run.gradient_bytes if gradient_bytes is None else gradient_bytes
        return communication(size, run.step_seconds, gpus, factor)


def read(text: str, name: str) -> Profile:
    """A profile from JSON that `kompakt profile -o json` wrote. Raises InvalidInput that names the file and the field."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: no JSON ({error}); expected what kompakt profile -o json wrote") from error
    if not isinstance(raw, dict) or raw.get("kompaktProfile") != VERSION or not isinstance(raw.get("runs"), dict):
        raise InvalidInput(f"{name}: no profile of version {VERSION}; expected what kompakt profile -o json wrote")
    unknown = [mode for mode in raw["runs"] if mode not in MODES]
    if unknown or not raw["runs"]:
        raise InvalidInput(f"{name}, runs: got {unknown[:1] or 'none'}; expected some of {', '.join(MODES)}")
    return Profile(
        machine=_text(raw.get("machine"), f"{name}, machine"),
        devices=int(_number(raw.get("devices"), f"{name}, devices", 1)),
        kind=_text(raw.get("kind"), f"{name}, kind"),
        warm_up=int(_number(raw.get("warmUp"), f"{name}, warmUp", 1)),
        steps=int(_number(raw.get("steps"), f"{name}, steps", 1)),
        runs={mode: read_run(run, f"{name}, runs.{mode}") for mode, run in raw["runs"].items()},
        notes=tuple(str(note) for note in raw["notes"]) if isinstance(raw.get("notes"), list) else (),
        half_machines=int(_number(raw.get("halfMachines", 2), f"{name}, halfMachines", 2)),
        half_machine=_text(raw["halfMachine"], f"{name}, halfMachine") if raw.get("halfMachine") else "",
    )


def read_run(raw: object, where: str) -> ProfiledRun:
    """One run of a profile. Raises InvalidInput that names `where` and the field."""
    if not isinstance(raw, dict) or not isinstance(raw.get("parts"), list):
        raise InvalidInput(f"{where}: got {raw!r:.60}; expected an object with step_seconds, parts, ...")
    return ProfiledRun(
        step_seconds=_number(raw.get("step_seconds"), f"{where}.step_seconds", 1e-9),
        parts=tuple(_number(part, f"{where}.parts", 0) for part in raw["parts"]),
        data_seconds=_number(raw.get("data_seconds"), f"{where}.data_seconds", 0),
        loaders=int(_number(raw.get("loaders"), f"{where}.loaders", 0)),
        gradient_bytes=int(_number(raw.get("gradient_bytes"), f"{where}.gradient_bytes", 0)),
        ranks=int(_number(raw.get("ranks"), f"{where}.ranks", 1)),
    )


def slowest(runs: Sequence[ProfiledRun]) -> ProfiledRun:
    """One run from what several processes, or pods, tell of it: at least one. A step is over when the last has ended it."""
    return ProfiledRun(
        step_seconds=max(run.step_seconds for run in runs),
        parts=tuple(map(max, zip(*(run.parts for run in runs), strict=True))),
        data_seconds=max(run.data_seconds for run in runs),
        loaders=sum(run.loaders for run in runs),
        gradient_bytes=max(run.gradient_bytes for run in runs),
        ranks=max(run.ranks for run in runs),
    )


def _number(value: object, where: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST or math.isnan(value):
        raise InvalidInput(f"{where}: got {value!r:.40}; expected a number from {least:g} up")
    return float(value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{where}: got {value!r:.40}; expected a word")
    return value
