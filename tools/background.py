"""A command in the background: at a low priority, and what it writes is kept until it is over."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

# Of the session, where the kernel shares processors out among sessions (autogroups), and of the process in its session.
# Half of what others weigh: with the lowest, tests would wait for minutes while programs are compiled for other levels.
LOW_PRIORITY = ("sh", "-c", '{ echo 3 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 3 "$@"', "sh")


class BackgroundCommand:
    """The command runs in a session of its own from the beginning of a `with` block; it ends with the block at the latest."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder

    def __enter__(self) -> "BackgroundCommand":
        self._written = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*LOW_PRIORITY, *self._command],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def ended(self) -> tuple[int, str]:
        """Waits for the end: exit code, and all that was written."""
        returncode = self._process.wait()
        self._written.seek(0)
        return returncode, self._written.read().decode(errors="replace")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._written.close()
