"""What communication costs: speed = 1 / (1 + c * m(level) * n), from a YAML or JSON file or nothing at all.

c: seconds of communication per second of computing of the job's model, at level factor 1. m: factor of the smallest level
that contains the job's GPUs. n: factor for GPUs that share their machine's network card, by the most GPUs that the job has
on one machine; 1 inside a machine, and wherever the file is silent. A job of one GPU communicates with nobody.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_core.topology.document import Document, read_document
from kompakt_simulator.cluster import ClusterShape, GpuSet
from kompakt_simulator.cluster_file import SHAPE_KEYS, shape_in
from kompakt_simulator.files import read_text
from kompakt_simulator.jobs import TraceJob

_ROOT = "network"
_KEYS = ("levels", "models", "unnamed", "nic")
_NUMBER = re.compile(r"([0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9})([eE][+-]?[0-9]{1,2})?", re.ASCII)  # what YAML leaves a word
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

    def ratio(self, job: TraceJob) -> float:
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
        at = f"job {job.number}" + (f", line {job.line} of the trace" if job.line else "")
        raise InvalidInput(f"{at}: {what} not in the network file; known models: {known}; or give comm_ratio")

    def slowdowns(self, ratio: float, shape: ClusterShape, gpus: int) -> dict[Level, float]:
        """c * m * n of a job of so many GPUs by level, with n for machines filled as far as they go."""
        card = self._card(min(gpus, max(shape.sizes)))
        return {level: ratio * m * (1.0 if level is Level.MACHINE else card) for level, m in self.levels.items()}

    def slowdown(self, ratio: float, shape: ClusterShape, gpus: GpuSet) -> float:
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


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A network file as it was read. `shape`: the cluster that it describes under racks or blocks, None where it does not."""

    document: Document
    shape: ClusterShape | None


def load_network(path: str) -> NetworkFile:
    """A network file, plain or gzip. Raises InvalidInput that names the file and the line, and what is allowed."""
    return parse_network(read_text(path, "network", "give the path of a YAML or JSON file"), path)


def parse_network(text: str, name: str) -> NetworkFile:
    """The same from a text. Raises InvalidInput."""
    document = read_document(text, _ROOT, name)
    raw, allowed = document.value, (*_KEYS, *_LEVEL_NAMES, *SHAPE_KEYS)
    wanted = "expected levels (or machine, rack, ... by themselves), and models, unnamed, nic, racks or blocks if needed"
    if not isinstance(raw, dict):
        raise document.wrong(_ROOT, f"got {raw!r:.80}; {wanted}")
    unknown = [key for key in raw if key not in allowed]
    if unknown:
        raise document.wrong(f"{_ROOT}.{unknown[0]}", f"unknown entry {unknown[0][:80]!r}; {wanted}")
    if ("levels" in raw) == any(key in _LEVEL_NAMES for key in raw):
        raise document.wrong(_ROOT, f"got {', '.join(raw)[:200] or 'nothing'}; {wanted}")
    return NetworkFile(document, shape_in(document, _ROOT))


def network_on(file: NetworkFile, shape: ClusterShape) -> Network:
    """The network of a cluster of this shape. Every level that the cluster has must be given. Raises InvalidInput."""
    document, raw = file.document, file.document.value
    unnamed = raw.get("unnamed", [])
    if not isinstance(unnamed, list):
        raise _wrong(document, "unnamed", f"got {unnamed!r:.80}; expected a list of numbers")
    return Network(
        levels=_levels(document, shape),
        models=_numbers(document, "models"),
        unnamed=tuple(_number(document, f"unnamed[{index}]", value) for index, value in enumerate(unnamed)),
        nic=_nic(document),
    )


def _levels(document: Document, shape: ClusterShape) -> dict[Level, float]:
    raw = document.value
    wanted = [level.lower() for level, _ in shape.levels.sizes]
    alone = {key: _number(document, key, raw[key]) for key in raw if key in _LEVEL_NAMES}
    numbers = alone or _numbers(document, "levels")
    unknown = [key for key in numbers if key not in _LEVEL_NAMES]
    missing = [key for key in wanted if key not in numbers]
    if unknown or missing:
        problem = f"unknown level {unknown[0][:40]!r}" if unknown else f"level {missing[0]} is missing"
        raise _wrong(document, f"levels.{unknown[0]}" if unknown else "levels", f"{problem}; expected {', '.join(wanted)}")
    given = [key for key in _LEVEL_NAMES if key in numbers]
    for inner, outer in pairwise(given):
        if numbers[outer] < numbers[inner]:
            at = outer if alone else f"levels.{outer}"
            raise _wrong(
                document, at, f"got {numbers[outer]:g}; expected at least {numbers[inner]:g}, which {inner} has inside it"
            )
    return {_LEVEL_NAMES[key]: value for key, value in numbers.items()}


def _nic(document: Document) -> dict[int, float]:
    numbers = _numbers(document, "nic")
    bad = [key for key in numbers if not (key.isascii() and key.isdigit() and 1 <= int(key[:7]) <= 1024)]
    if bad:
        raise _wrong(document, f"nic.{bad[0]}", f"got {bad[0][:40]!r}; expected numbers of GPUs on one machine, from 1 to 1024")
    return {int(key): value for key, value in numbers.items()}


def _numbers(document: Document, entry: str) -> dict[str, float]:
    raw = document.value.get(entry, {})
    if not isinstance(raw, dict):
        raise _wrong(document, entry, f"got {raw!r:.80}; expected an object of numbers")
    return {key: _number(document, f"{entry}.{key}", value) for key, value in raw.items()}


def _number(document: Document, entry: str, value: object) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1_000_000:
        raise _wrong(document, entry, f"got {value!r:.80}; expected a number from 0 to 1000000")
    return float(value)


def _wrong(document: Document, entry: str, words: str) -> InvalidInput:
    return document.wrong(f"{_ROOT}.{entry}", f"{entry[:100]}: {words}")
