"""Progress of a long sequence for a person at a terminal, and how long each step took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StepPrinter:
    """Named steps in order; lines are printed at once, with the seconds since the beginning."""

    began: float = field(default_factory=time.monotonic)
    taken: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        print(f"[{start - self.began:5.0f} s] {name}", flush=True)
        yield
        self.taken.append((name, time.monotonic() - start))

    def say(self, text: str) -> None:
        """A line within the step."""
        print(f"          {text}", flush=True)

    def show(self, text: str) -> None:
        """What a program printed, within the step."""
        for line in text.splitlines():
            self.say(line)
