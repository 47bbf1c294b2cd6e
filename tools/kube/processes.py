"""Programs that run detached: started with a log, known again after a crash of ours, stopped by their own pid.

A pid alone is no identity, since the kernel hands it out again. A record therefore carries the start time of the
process (clock ticks since boot, /proc/PID/stat field 22) and the machine's boot id; only a process that agrees in
both is ours.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Launch = Callable[[Sequence[str], Path], "Process"]
"""Starts a program (argv, log file) and answers its record."""

POLL = 0.02  # seconds between two looks at a process or an address


@dataclass(frozen=True, slots=True)
class Process:
    """A started program as it can be found again."""

    name: str
    pid: int
    started: int
    boot: str
    log: str

    def alive(self) -> bool:
        """Whether this very process still runs, or has a thread that does (a zombie has none)."""
        seen = look(self.pid)
        return seen is not None and seen.started == self.started and seen.running and self.boot == boot_id()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still is ours."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class Seen:
    """`threads`: those that are left. A killed program counts as a zombie while threads of it still hold its files and ports."""

    state: str
    started: int
    threads: int

    @property
    def running(self) -> bool:
        return self.state != "Z" or self.threads > 1


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def look(pid: int) -> Seen | None:
    """State and start time of a pid, None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name stands in parentheses and may hold blanks and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return Seen(state=fields[0], started=int(fields[19]), threads=int(fields[17]))


def launch_detached(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, *, pass_fds: Sequence[int] = ()
) -> Process:
    """Start a program in a session of its own: it outlives its starter. It inherits the files of `pass_fds`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=None if env is None else dict(env),
            pass_fds=pass_fds,
        )
    seen = look(child.pid)
    _children[child.pid] = child
    return Process(Path(argv[0]).name, child.pid, seen.started if seen else 0, boot_id(), str(log))


def launch_tied(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program that the kernel kills when its starter ends, however that happens."""
    tie = [] if shutil.which("setpriv") is None else ["setpriv", "--pdeathsig", "KILL"]
    record = launch_detached([*tie, *argv], log, env)
    return Process(Path(argv[0]).name, record.pid, record.started, record.boot, record.log)


def stop(processes: Iterable[Process], grace: float) -> None:
    """Ask all of them to end, and kill what is left after `grace` seconds."""
    remaining = list(processes)
    if grace > 0:
        for process in remaining:
            process.signal(signal.SIGTERM)
        wait_until(lambda: not any(p.alive() for p in remaining), grace)
    for process in remaining:
        process.signal(signal.SIGKILL)
    wait_until(lambda: not any(p.alive() for p in remaining), 5)
    for process in remaining:
        _reap(process.pid)


def wait_until(ready: Callable[[], bool], seconds: float) -> bool:
    """Poll until `ready` answers True; False when the time is up."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


def write_records(path: Path, processes: Iterable[Process]) -> None:
    """Replace the file of records in one step: a reader never sees half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([asdict(process) for process in processes], indent=1))
    fresh.replace(path)


def read_records(path: Path) -> list[Process]:
    """The records of an earlier run; none where the file is missing or was never finished."""
    try:
        return [Process(**entry) for entry in json.loads(path.read_text())]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log, for an error message."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


# Children must be waited for or they stay zombies; the Popen objects also keep Python from warning about them.
_children: dict[int, subprocess.Popen[bytes]] = {}


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
