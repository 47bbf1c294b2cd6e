"""Where compiled code reads a value of which gradients are made that go on, as text for an operator's argument."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache


@dataclass(frozen=True)
class ReadPlace:
    """Where a value is read. kind, number: of such places of one parameter, which is the first that is handed over with it;
    linear: how many of those are of layers, by which it is known where the code runs; operands, given: which of them have
    products that read what the value is made into, and an input of the code; inputs: does the backward pass make gradients of
    anything but parameters? known: how many are of layers with those that errors go between; targets: for each gradient that goes
    on, which of these it is for; sources: for inputs that gradients went into, their places among the inputs, and of which of
    these layers. What is handed over after those is a parameter whose gradient is made there.
    """

    kind: str
    number: int
    linear: int
    operands: tuple[int, ...]
    given: tuple[int, ...]
    inputs: bool
    known: int
    targets: tuple[tuple[int, ...], ...]
    sources: tuple[tuple[int, tuple[int, ...]], ...]


def to_text(place: ReadPlace) -> str:
    """For an operator's argument."""
    return json.dumps(asdict(place))


@lru_cache(maxsize=4096)
def of_text(text: str) -> ReadPlace:
    """As `to_text` wrote it."""
    read = json.loads(text)
    sources = tuple((place, tuple(layers)) for place, layers in read["sources"])
    every = {name: tuple(read[name]) for name in ("operands", "given")}
    return ReadPlace(**{**read, **every, "targets": tuple(map(tuple, read["targets"])), "sources": sources})
