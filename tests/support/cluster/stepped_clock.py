"""A wall clock that a test steps, under programs that ask the C library for the time: ours do, those written in Go do not.

Of our own since libfaketime (0.9.10) makes `time.sleep` of Python 3.11 fail with EINVAL where it leaves CLOCK_MONOTONIC alone.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tools.kube.command import output
from tools.kube.components import Component

SOURCE = Path(__file__).with_suffix(".c")
LOOP = 3  # arguments of `parts.restarted` before those of the program


@dataclass(frozen=True, slots=True)
class SteppedClock:
    """The library to be preloaded, and the file that says by how many seconds the clock is off."""

    library: Path
    file: Path

    def step(self, seconds: int) -> None:
        """From now on it is off by so many seconds."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds}\n")
        fresh.replace(self.file)

    def under(self, component: Component) -> Component:
        """That part, started again whenever it ends, by this clock."""
        environment = (f"LD_PRELOAD={self.library}", f"STEPPED_CLOCK={self.file}")
        return replace(component, argv=(*component.argv[:LOOP], "env", *environment, *component.argv[LOOP:]))


def made(folder: Path) -> SteppedClock | None:
    """A clock that is right; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    clock = SteppedClock(folder / "stepped_clock.so", folder / "offset")
    output([compiler, "-shared", "-fPIC", "-O1", "-o", str(clock.library), str(SOURCE), "-ldl"])
    clock.step(0)
    return clock
