"""Run every test level this machine can run; name each level that is skipped, and why.

Levels: static (format, lint, types, import contracts), unit, contract, browser, gpu, versions, cluster, node. The last line
counts all. `versions` runs some tests of the level cluster on an older version of Kubernetes; `node` has one kubelet of it: each
supported one in turn, by the number of commits (or KOMPAKT_KUBERNETES and KOMPAKT_KUBELET name one). Long tests take turns too:
the commit's name says which half of them runs (or KOMPAKT_TURN: 0, 1 or all).
Static, unit and contract compute. They run in the background, at a low priority, and are shown whole after the others. The
last two levels mostly wait (for Leases, kubelets, machines that come back). With four processors or more they run side by side,
and each is shown whole as well. `--one-by-one` runs no two levels at once and shows each as it goes.
`--fast` runs what needs neither PyTorch nor a cluster, in less than two minutes: static, unit without the runtime's, contract.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from tools import debian
from tools.background import BackgroundCommand
from tools.kube.programs import NoProgram
from tools.levels import FAST, LEVELS, ROOT, TestLevel, environment

BIN = Path(sys.executable).parent
TORCH_DISK = 8 << 30  # 5.3 GB installed, and room for the test runs
COMPUTE = ("static", "unit", "contract")  # what runs in the background of the other levels
PATIENT = ("-o", "timeout=900")  # its tests wait for processors, and say later than others that they hang
SLOWEST = ("--durations=10", "--durations-min=5")  # whoever finds a run long sees where to begin
SIDE_BY_SIDE_PROCESSORS = 4  # with two, both levels at once kept each other waiting until tests ran into their limits


@dataclass(frozen=True, slots=True)
class Count:
    """Tests of one or more levels."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def install_torch() -> None:
    """PyTorch and training frameworks for the runtime's tests, if the disk holds them; otherwise tests name what is missing."""
    if all((BIN.parent / stamp).exists() for stamp in ("torch", "frameworks", "zoo")):
        return
    if shutil.disk_usage(ROOT).free < TORCH_DISK:
        say(f"PyTorch is not installed: less than {TORCH_DISK >> 30} GiB of disk are free; its tests are skipped")
        return
    subprocess.run(["make", "sync-frameworks"], cwd=ROOT, check=True)


def install_compiler() -> None:
    """A C compiler for the library that stands in for the GPU driver's; the tests name it as missing otherwise."""
    if shutil.which("gcc") is None and debian.may_install():
        say("installing gcc")
        debian.install(["gcc", "libc6-dev"])


def run_static() -> Count:
    say("static: format, lint, types, import contracts")
    done = subprocess.run(["make", "check"], cwd=ROOT, check=False)
    return Count(failed=int(done.returncode != 0), passed=int(done.returncode == 0))


def run_pytest(level: TestLevel, extra: list[str], terminal: "Lock | None") -> Count:
    """One level in a process of its own, so that a level cannot colour the next."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        folders = [f"tests/{name}" for name in level.folders or [level.name]]
        options = [f"--junitxml={report}", "-q", *SLOWEST, *level.spread, *level.options]
        command = [sys.executable, "-m", "pytest", *folders, *options, *extra]
        return count(report, run(command, level, terminal))


def run(command: list[str], level: TestLevel, terminal: "Lock | None") -> int:
    """The command's exit code. What levels write that share the terminal is kept apart: each is shown whole when it is over."""
    if terminal is None:
        return subprocess.run(command, cwd=ROOT, env=environment(level), check=False).returncode
    with tempfile.TemporaryFile() as written:
        done = subprocess.run(command, cwd=ROOT, env=environment(level), check=False, stdout=written, stderr=subprocess.STDOUT)
        written.seek(0)
        with terminal:
            say(f"{level.name}: is over, and wrote")
            print(written.read().decode(errors="replace"), flush=True)
        return done.returncode


def fetch(level: TestLevel) -> None:
    """The programs of a level, in a process of its own, since its environment names their version. Raises NoProgram."""
    if level.programs:
        words = f"from tools.kube.binaries import find_all; find_all({level.programs!r})"
        done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, env=environment(level), check=False)
        if done.returncode != 0:
            raise NoProgram("not all of its programs can be had")


def count(report: Path, returncode: int) -> Count:
    """What a junit report says; a run that broke before its report is one failure."""
    if not report.exists():
        return Count(failed=1)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    number = {key: int(suite.get(key, "0")) if suite is not None else 0 for key in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    if returncode != 0:
        failed = max(failed, 1)
    return Count(number["tests"] - number["failures"] - number["errors"] - number["skipped"], failed, number["skipped"])


def run_level(level: TestLevel, extra: list[str], terminal: "Lock | None" = None) -> Count:
    reason = level.obstacle()
    if reason is not None and level.name in os.environ.get("KOMPAKT_REQUIRE", "").split(","):
        say(f"{level.name}: required by KOMPAKT_REQUIRE, but {reason}")
        return Count(failed=1)
    if reason is not None:
        say(f"{level.name}: skipped, because {reason}")
        return Count()
    say(f"{level.name}: begins")
    try:
        fetch(level)
    except NoProgram as error:
        say(f"{level.name}: {error}")
        return Count(failed=1)
    start = time.monotonic()
    result = run_pytest(level, extra, terminal)
    seconds = time.monotonic() - start
    say(f"{level.name}: {result.passed} passed, {result.failed} failed, {result.skipped} skipped in {seconds:.0f} s")
    return result


def crowded() -> bool:
    """Whether there are too few processors for two levels that each run an API server, etcd, schedulers and kubelets."""
    return len(os.sched_getaffinity(0)) < SIDE_BY_SIDE_PROCESSORS


def batches(levels: Sequence[TestLevel], one_by_one: bool) -> list[list[TestLevel]]:
    """What runs at once: each level alone, but those that mostly wait together, after the others."""
    waiting = [level for level in levels if level.waits and not one_by_one]
    return [[level] for level in levels if level not in waiting] + ([waiting] if waiting else [])


def run_batch(levels: Sequence[TestLevel], extra: list[str]) -> Count:
    """Levels at once."""
    if len(levels) == 1:
        return run_level(levels[0], extra)
    say(f"{' and '.join(level.name for level in levels)}: side by side")
    terminal = Lock()
    with ThreadPoolExecutor(len(levels)) as threads:
        return sum(threads.map(lambda level: run_level(level, extra, terminal), levels), Count())


def of_text(returncode: int, text: str) -> Count:
    """What the last line of a run says; one that broke before that line is one failure."""
    found = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped\n\Z", text, re.MULTILINE)
    result = Count(*map(int, found.groups())) if found else Count()
    return result if returncode == 0 or result.failed else result + Count(failed=1)


def split(wanted: Sequence[str], one_by_one: bool) -> tuple[list[str], list[str]]:
    """Names of what runs in the background, and of what runs in the foreground."""
    background = [name for name in wanted if name in COMPUTE]
    foreground = [name for name in wanted if name not in COMPUTE]
    return ([], list(wanted)) if one_by_one or FAST.name in wanted or not foreground else (background, foreground)


def run_foreground(names: Sequence[str], one_by_one: bool, extra: list[str]) -> Count:
    """Levels that are shown as they go, where no two of them run at once."""
    total = run_static() if "static" in names else Count()
    chosen = [level for level in [*LEVELS, FAST] if level.name in names]
    return sum((run_batch(batch, extra) for batch in batches(chosen, one_by_one)), total)


def run_with_background(names: Sequence[str], foreground: Callable[[], Count], extra: list[str]) -> Count:
    """`foreground`, and levels in its background, of which all is shown when both are over."""
    levels = [f"--level={name}" for name in names]
    command = [sys.executable, "-m", "tools.test", *levels, "--one-by-one", "--", *PATIENT, *extra]
    with BackgroundCommand(command, ROOT) as process:
        say(f"{', '.join(names)}: run in the background")
        total = foreground()
        returncode, text = process.ended()
    say(f"{', '.join(names)}: are over, and wrote\n{text}")
    return total + of_text(returncode, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [level.name for level in LEVELS]
    parser.add_argument("--level", action="append", choices=["static", *names], help="only this level (may be repeated)")
    parser.add_argument("--fast", action="store_true", help="only what needs neither PyTorch nor a cluster")
    parser.add_argument("--one-by-one", action="store_true", help="no two levels at once")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    arguments = parser.parse_args()
    wanted = ["static", "fast"] if arguments.fast else arguments.level or ["static", *names]
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what runs below it ends with it
    if not arguments.fast:
        install_torch()
        install_compiler()
    background, names = split(wanted, arguments.one_by_one)

    def foreground() -> Count:
        return run_foreground(names, arguments.one_by_one or crowded(), arguments.pytest)

    total = run_with_background(background, foreground, arguments.pytest) if background else foreground()
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return int(total.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
