"""What the start-up hook adds to a process; `python -m benchmarks.startup`.

Programs that do nothing, and programs that import torch, are started in turn without the hook, with it, and with it switched off.
Time is the processor's, of all threads, user and system, so that a busy machine matters less; wall time stands beside it. Printed
are medians with quartiles, and of the pairs' differences. An import of torch takes seconds and varies by more than the hook's
share, so that is measured inside such processes as well: loading and starting the runtime. As on a pod's read-only mount, no byte
code of ours is kept from one process to the next.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RUNTIME = Path(__file__).resolve().parent.parent / "runtime"
PROGRAMS = {"pass": 5, "import torch": 60}  # milliseconds that may be added
CHEAP = 8  # times as many rounds for programs without torch
INSIDE = """
import sys, time, torch
sys.path.append(sys.argv[1])
begun = time.process_time(), time.perf_counter()
import kompakt_runtime.start
assert kompakt_runtime.start.start() is not None
print(1000 * (time.process_time() - begun[0]), 1000 * (time.perf_counter() - begun[1]))
"""


@contextmanager
def payload() -> Iterator[Path]:
    """As the init container leaves it in a pod."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([RUNTIME / "assemble", f"{folder}/image"], check=True)
        os.mkdir(f"{folder}/pod")
        subprocess.run([f"{folder}/image/install", f"{folder}/pod"], check=True)
        yield Path(folder) / "pod"


def environment(how: str, folder: Path) -> dict[str, str]:
    """Byte code of the standard library and of torch is there already; see above for ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KOMPAKT_", "PYTHONPATH"))}
    if how == "plain":
        return kept
    off = {"KOMPAKT_OFF": "1"} if how == "off" else {}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return {**kept, **off, "PYTHONPATH": str(folder / "bootstrap"), "KOMPAKT_MODE": "ErrorBounded", "OMP_NUM_THREADS": "1"}


def once(program: str, environ: dict[str, str]) -> tuple[float, float]:
    """(processor, wall) time of one process in milliseconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), 1000 * wall


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:8.1f} ({low:.1f} to {high:.1f})"


def measure(program: str, rounds: int, folder: Path) -> None:
    ways = ("plain", "hook", "off")
    environs = {how: environment(how, folder) for how in ways}
    for environ in environs.values():
        once(program, environ)  # fills caches of files and byte code
    times = [{how: once(program, environs[how]) for how in ways} for _ in range(rounds)]
    print(f"\n`{program}`: milliseconds, {rounds} rounds; bar: {PROGRAMS[program]} added")
    for how in ways:
        processor, wall = zip(*(row[how] for row in times), strict=True)
        print(f"  {how:6s} processor {spread(list(processor)):28s} wall {spread(list(wall))}")
    for how in ways[1:]:
        added = [[row[how][clock] - row["plain"][clock] for row in times] for clock in (0, 1)]
        print(f"  {how:6s} adds processor {spread(added[0]):23s} wall {spread(added[1])}")


def measure_inside(rounds: int, folder: Path) -> None:
    command, environ = [sys.executable, "-c", INSIDE, str(folder)], environment("off", folder)
    rows = []
    for _ in range(rounds):
        done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
        rows.append([float(word) for word in done.stdout.split()])
    processor, wall = zip(*rows, strict=True)
    print(f"\nthe runtime's own start after `import torch`, {rounds} processes")
    print(f"  inside processor {spread(list(processor)):28s} wall {spread(list(wall))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds must be at least 2: one round has no spread")
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, CPython {platform.python_version()}")
    with payload() as folder:
        for program in PROGRAMS:
            measure(program, arguments.rounds if "torch" in program else CHEAP * arguments.rounds, folder)
        measure_inside(arguments.rounds, folder)


if __name__ == "__main__":
    main()
