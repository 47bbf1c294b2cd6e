"""What communication costs: speed = 1 / (1 + c * m(level) * n), from a file or nothing at all.

c: seconds of communication per second of computing of the job's model, at level factor 1. m: factor of the smallest level
that contains the job's GPUs. n: factor for GPUs that share their machine's network card, by the most GPUs that the job has
on one machine; 1 inside a machine, and wherever the file is silent. A job of one GPU communicates with nobody.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import GpuSet, Shape
from kompakt_simulator.trace import Job

_KEYS = ("levels", "models", "unnamed", "nic")
_LEVEL_NAMES = {level.lower(): level for level in Level}


@dataclass(frozen=True, slots=True)
class Network:
    """`models`: c by model. `unnamed`: c of jobs whose trace names no model; the job's number picks one. `nic`: n by GPUs."""

    levels: Mapping[Level, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    unnamed: tuple[float, ...] = ()
    nic: Mapping[int, float] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether nothing costs anything."""
        return not any(self.levels.values())

    def ratio(self, job: Job) -> float:
        """c of a job. Raises InvalidInput for a model that the file does not name, where the trace gives no ratio either."""
        if job.gpus == 1 or self.free:
            return 0.0
        if job.comm_ratio is not None:
            return job.comm_ratio
        if not job.model and self.unnamed:
            pick = int.from_bytes(hashlib.sha256(str(job.number).encode()).digest()[:4], "big")
            return self.unnamed[pick % len(self.unnamed)]
        family = job.model.partition(" (")[0]  # "ResNet-50 (batch size 64)" may stand there as a whole or without the rest
        for name in (job.model, family):
            if name in self.models:
                return self.models[name]
        known = ", ".join(sorted(self.models)) or "none"
        what = f"model {job.model!r} is" if job.model else "no model is named, and jobs without one are"
        raise InvalidInput(f"job {job.number}: {what} not in the network file; known models: {known}; or give comm_ratio")

    def slowdowns(self, ratio: float, shape: Shape, gpus: int) -> dict[Level, float]:
        """c * m * n of a job of so many GPUs by level, with n for machines filled as far as they go."""
        card = self._card(min(gpus, max(shape.sizes)))
        return {level: ratio * m * (1.0 if level is Level.MACHINE else card) for level, m in self.levels.items()}

    def slowdown(self, ratio: float, shape: Shape, gpus: GpuSet) -> float:
        """c * m(level) * n of the set."""
        if not ratio:
            return 0.0
        level = shape.level_of(gpus)
        if level is Level.MACHINE or not self.nic:
            return ratio * self.levels.get(level, 0.0)
        return ratio * self.levels.get(level, 0.0) * self._card(max(shape.per_machine(gpus).values()))

    def _card(self, gpus: int) -> float:
        known = [number for number in self.nic if number <= gpus]
        return self.nic[max(known)] if known else 1.0


FREE = Network()


def load_network(path: str, shape: Shape) -> Network:
    """The network in a JSON file. Raises InvalidInput that names the file, the line or the entry, and what is allowed."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"network {path}: {getattr(error, 'strerror', None) or error}; give the path of a JSON file"
        ) from error
    return parse_network(text, path, shape)


def parse_network(text: str, name: str, shape: Shape) -> Network:
    """The network in a JSON text; see load_network. Every level that the cluster has must be given."""
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InvalidInput(f"{name}, line {line}: no JSON ({error}); expected an object with {', '.join(_KEYS)}") from error
    if not isinstance(raw, dict) or not set(raw) <= set(_KEYS) or "levels" not in raw:
        given = ", ".join(map(str, raw)) if isinstance(raw, dict) else type(raw).__name__
        raise InvalidInput(f"{name}: got {given[:200]}; expected an object with levels, and models, unnamed, nic if needed")
    unnamed = raw.get("unnamed", [])
    if not isinstance(unnamed, list):
        raise InvalidInput(f"{name}, unnamed: got {unnamed!r:.80}; expected a list of numbers")
    return Network(
        levels=_levels(raw["levels"], name, shape),
        models=_numbers(raw.get("models", {}), name, "models"),
        unnamed=tuple(_number(value, name, f"unnamed[{index}]") for index, value in enumerate(unnamed)),
        nic=_nic(raw.get("nic", {}), name),
    )


def _levels(raw: object, name: str, shape: Shape) -> dict[Level, float]:
    wanted = [level.lower() for level, _ in shape.levels.sizes]
    numbers = _numbers(raw, name, "levels")
    unknown = [key for key in numbers if key not in _LEVEL_NAMES]
    missing = [key for key in wanted if key not in numbers]
    if unknown or missing:
        problem = f"unknown level {unknown[0]!r}" if unknown else f"level {missing[0]} is missing"
        raise InvalidInput(f"{name}, levels: {problem}; expected {', '.join(wanted)}")
    return {_LEVEL_NAMES[key]: value for key, value in numbers.items()}


def _nic(raw: object, name: str) -> dict[int, float]:
    numbers = _numbers(raw, name, "nic")
    bad = [key for key in numbers if not (key.isascii() and key.isdigit() and 1 <= int(key[:7]) <= 1024)]
    if bad:
        raise InvalidInput(f"{name}, nic: got {bad[0][:40]!r}; expected numbers of GPUs on one machine, from 1 to 1024")
    return {int(key): value for key, value in numbers.items()}


def _numbers(raw: object, name: str, entry: str) -> dict[str, float]:
    if not isinstance(raw, dict):
        raise InvalidInput(f"{name}, {entry}: got {raw!r:.80}; expected an object of numbers")
    return {str(key): _number(value, name, f"{entry}.{key}") for key, value in raw.items()}


def _number(value: object, name: str, entry: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1_000_000:
        raise InvalidInput(f"{name}, {entry[:100]}: got {value!r:.80}; expected a number from 0 to 1000000")
    return float(value)
