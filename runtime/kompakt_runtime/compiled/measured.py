"""What errors in a value do to the gradients that compiled code makes of it: measured by running that part of the graph again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kompakt_runtime.bounds.nonlinear import Operation
from kompakt_runtime.bounds.passed_on import PassedOn
from kompakt_runtime.bounds.sigma import Contraction
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.compiled.programs import SliceProgram, of_program
from kompakt_runtime.compiled.weight_gradients import CONVOLVED
from kompakt_runtime.saved.noise import Noise, wide

Tensor = Any


@dataclass(frozen=True, eq=False)
class ReadOnce:
    """One value between its passes. bound: of its copy; leaves: parameters whose gradients are made where it is read; operands:
    sites whose products read what it is made into, with their parameters; given: those whose products read an input; passed_on:
    between which layers errors go through it, None where one is not known; sources: inputs that gradients went into.
    """

    operation: Operation
    bound: float
    leaves: Sequence[Tensor]
    operands: Sequence[tuple[Site, Tensor]]
    given: Sequence[tuple[Site, Tensor]]
    passed_on: PassedOn | None
    sources: Sequence[int]

    def see(self, value: Tensor, inputs: Sequence[Tensor], text: str, noise: Noise) -> None:
        """value: as it is read; inputs: what is read beside it."""
        program = of_program(text)
        exact = program.run(inputs, value)
        self._see_operands(exact, program)
        noisy = program.run(inputs, noise.widened(value, self.bound))
        deltas = [(exact[number], noisy[number]) for number in program.deltas]
        leaves = [(weight, exact[number], noisy[number]) for weight, number in zip(self.leaves, program.leaves, strict=True)]
        pairs = zip(self.operands, program.operands, strict=True)
        operands = [(site, exact[one.operand], noisy[one.operand]) for (site, _), one in pairs]
        passed_on = self.passed_on
        if passed_on is not None and self.sources:
            whole = _squares([exact[number] for number in program.deltas])
            passed_on = replace(passed_on, shares=self._made(program, inputs, value, noise) / whole)
        self.operation.see_again(deltas, leaves, operands, passed_on)

    def _made(self, program: SliceProgram, inputs: Sequence[Tensor], value: Tensor, noise: Noise) -> Tensor:
        """The squared sizes of the deltas, a row for each source: as made of that alone, since a backward pass is linear in
        gradients, or of noise as large.
        """
        nothing = {place: torch.zeros_like(inputs[place]) for place in self.sources}

        def made_of(these: dict[int, Tensor]) -> Tensor:
            found = program.run([these.get(place, one) for place, one in enumerate(inputs)], value)
            return _squares([found[number] for number in program.deltas])

        rows = []
        for place in self.sources:
            exact, errors = inputs[place], noise.like(inputs[place])
            passed = made_of(nothing | {place: errors}) * (_squares([exact]) / _squares([errors]))
            rows.append(torch.maximum(made_of(nothing | {place: exact}), passed))
        return torch.stack(rows)

    def _see_operands(self, exact: dict[int, Tensor], program: SliceProgram) -> None:
        """Layers whose operand is in no pass's memory are measured here, of both their passes at once."""
        layers, reads = (*self.operands, *self.given), (*program.operands, *program.given)
        for (site, weight), one in zip(layers, reads, strict=True):
            if site.observing and one.measured:
                operand, delta = exact[one.operand], exact[one.delta]
                operand = operand.mT if one.features_first else operand
                contraction = contraction_of(one.read.place, operand, weight, one.read.arguments, one.read.outputs_at)
                site.measure(operand, contraction).see((delta.mT if one.read.turned else delta,))


def contraction_of(
    place: str, operand: Tensor, weight: Tensor, arguments: tuple[Any, ...], outputs_at: int | None
) -> Contraction:
    """How a product or a convolution reads it."""
    return Contraction(place, tuple(operand.shape), tuple(weight.shape), 1.0, arguments, outputs_at)


def matrix(place: str, x: Tensor) -> Tensor:
    """As a product reads it."""
    return x if place == CONVOLVED else x.reshape(-1, x.shape[-1])


def _squares(gradients: Sequence[Tensor]) -> Tensor:
    """The squared size of each."""
    return torch.stack([torch.linalg.vector_norm(one, dtype=wide(one)).square().double() for one in gradients])


def failing(operation: Operation, failed: Callable[[str], None], what: Callable[[], None]) -> None:
    """A measurement must not end a backward pass."""
    try:
        with torch.no_grad():
            what()
    except Exception as problem:
        operation.finish()
        failed(f"ObserveFailed{type(problem).__name__}")
