"""One row of the zoo: a model, what it computes in and a setting of the runtime; and the file that rows are kept in."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.zoo.compressed import Counted, fingerprint
from benchmarks.zoo.gradients import Comparison, LayerError
from benchmarks.zoo.models import ZOO

WARM: Final = 6  # optimizer steps, of which the first, second, third and fifth are measured; the next one is not
MEASURED_EVERY: Final = 32  # steps of a long training


@dataclass(frozen=True)
class InTurn:
    """Bytes of a pass in plain training, in the first step, over or in all WARM first steps, and in the step after them."""

    plain: int
    first: int
    warm: int
    after: int


@dataclass(frozen=True)
class Held:
    """Bytes that the runtime held when the pass backward began, and the most at a time; what the operation with most operands
    reads in plain training, and its name. After WARM steps.
    """

    begins: int
    most: int
    largest: int
    node: str

    @property
    def excess(self) -> float:
        """What was held beyond what had been kept after the pass forward, in operands of that operation."""
        return (self.most - self.begins) / max(1, self.largest)


@dataclass(frozen=True)
class Times:
    """Processor seconds of a step: plain, compressed, and compressed and measured; load: of the machine meanwhile, with ours."""

    plain: float
    ours: float
    measured: float
    load: float

    @property
    def slower(self) -> float:
        """A compressed step's time over a plain one's, with its share of steps that are measured."""
        return (self.ours + max(0.0, self.measured - self.ours) / MEASURED_EVERY) / self.plain


@dataclass(frozen=True)
class Row:
    """kept: live after the pass forward and the loss, above what was live before; its `warm` is a sum.

    counted: the same as `kept.plain`, by hooks; weights: of it, copies of weights; told: the runtime's own words of the step
    after the first ones; peaks: the most live bytes of a pass forward and backward, the worst of the first steps for `warm`;
    readers: what plain autograd keeps, in bytes, by who reads it.
    """

    model: str
    dtype: str
    setting: str
    target: float
    family: str
    parameters: int
    kept: InTurn
    counted: int
    weights: int
    held: Held
    told: Counted
    peaks: InTurn
    times: Times
    gradients: Comparison
    readers: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Over all that plain autograd keeps, after the first steps."""
        return self.kept.plain / self.kept.after

    @property
    def ratio_with_warm(self) -> float:
        return WARM * self.kept.plain / self.kept.warm

    @staticmethod
    def of(found: dict[str, Any]) -> "Row":
        """From what `asdict` made."""
        parts = {"kept": InTurn, "held": Held, "told": Counted, "peaks": InTurn, "times": Times}
        layers = [LayerError(**layer) for layer in found["gradients"]["layers"]]
        gradients = Comparison(**{**found["gradients"], "layers": layers})
        return Row(**{**found, **{name: part(**found[name]) for name, part in parts.items()}, "gradients": gradients})


class Rows:
    """Rows that are known already, and a file of JSON lines that each new one is added to; what was stopped goes on there."""

    def __init__(self, path: str | None, measure: Callable[[str, str, str, float], Row]) -> None:
        self._path, self._measure, self._known = path, measure, dict[str, Row]()
        if path is not None and Path(path).exists():
            for line in map(json.loads, Path(path).read_text().splitlines()):
                self._known[line["key"]] = Row.of(line["row"])

    def row(self, name: str, dtype: str, setting: str, target: float) -> Row:
        """It is measured now if it is not known of this runtime and these versions of torch and of the model's library."""
        library = ZOO[name].library
        versions = f"runtime {fingerprint()}; torch {torch.__version__}; {library} {version(library)}"
        key = f"{name}; {dtype}; {setting} {target}; {versions}"
        if key not in self._known:
            self._known[key] = self._measure(name, dtype, setting, target)
            if self._path is not None:
                with open(self._path, "a") as file:
                    file.write(json.dumps({"key": key, "row": asdict(self._known[key])}) + "\n")
        return self._known[key]
