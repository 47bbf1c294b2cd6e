"""Runs a long drill in pieces, each with a seed of its own, and keeps a record: `python -m benchmarks.pieces kills`.

    python -m benchmarks.pieces kills                          # 1,000 kills, 50 at a time
    python -m benchmarks.pieces manifests --total 10000 --piece 2500
    python -m benchmarks.pieces flaps --record flaps.jsonl

Each piece is a test run, and one line of the record: seed, size, whether it passed, what it printed. A run that was stopped goes
on where it stopped: pieces that passed count. A piece that failed is recorded and ends the run; its line has the command that
repeats it.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Drill:
    """A test whose size stands in an environment variable."""

    test: str
    variable: str
    total: int
    piece: int


DRILLS: Final[Mapping[str, Drill]] = {
    "kills": Drill("tests/cluster/test_storm.py", "KOMPAKT_KILLS", 1000, 50),
    "node-kills": Drill("tests/node/test_storm.py", "KOMPAKT_NODE_KILLS", 1000, 36),
    "manifests": Drill("tests/cluster/test_hostile_manifests.py", "KOMPAKT_HOSTILE", 10_000, 2500),
    "flaps": Drill("tests/cluster/test_drills.py::test_jobs_come_and_go_while_both_leases_flap", "KOMPAKT_FLAPS", 100, 25),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One line of the record."""

    drill: str
    seed: int
    size: int
    passed: bool
    seconds: int
    command: str
    said: Sequence[str]


def done(record: Path, drill: str) -> int:
    """How much of a drill passed already."""
    lines = record.read_text().splitlines() if record.exists() else []
    pieces = [json.loads(line) for line in lines]
    return sum(one["size"] for one in pieces if one["drill"] == drill and one["passed"])


def sizes(total: int, before: int, piece: int) -> Iterator[int]:
    """Of the pieces that are left."""
    left = total - before
    while left > 0:
        yield min(piece, left)
        left -= piece


def printed(output: str) -> list[str]:
    """What the test said of itself: all but pytest's own lines, and of a failure the end."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("=", ".", "warning"))]
    return lines[-60:]


def run(name: str, size: int) -> Piece:
    """One piece, with a new seed."""
    drill, seed = DRILLS[name], secrets.randbelow((1 << 31) - 1) + 1
    setting = {drill.variable: str(size), "KOMPAKT_SEED": str(seed), "KOMPAKT_DRILLS": "all"}
    argv = ["-m", "pytest", "-q", "-s", "-n0", drill.test]
    began = time.monotonic()
    test = subprocess.run([sys.executable, *argv], env={**os.environ, **setting}, capture_output=True, text=True, check=False)
    command = " ".join([*(f"{key}={value}" for key, value in setting.items()), "python", *argv])
    passed = test.returncode == 0
    return Piece(name, seed, size, passed, round(time.monotonic() - began), command, printed(test.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drill", choices=DRILLS)
    parser.add_argument(
        "--total", type=int, help="in all, with what the record has (default: 1000 kills, 10000 manifests, 100 flaps)"
    )
    parser.add_argument("--piece", type=int, help="at a time")
    parser.add_argument("--record", type=Path, default=Path(".drills.jsonl"), help="file (default: %(default)s)")
    given = parser.parse_args()
    total, piece = given.total or DRILLS[given.drill].total, given.piece or DRILLS[given.drill].piece
    if piece < 1:
        parser.error(f"--piece must be at least 1, not {piece}")
    before = done(given.record, given.drill)
    print(f"{before} of {total} {given.drill} are in {given.record}", flush=True)
    for size in sizes(total, before, piece):
        found = run(given.drill, size)
        with given.record.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(
            "\n".join([*found.said, f"{'passed' if found.passed else 'FAILED'} in {found.seconds} s: {found.command}"]),
            flush=True,
        )
        if not found.passed:
            return 1
    print(f"{total} {given.drill} passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
