"""One process at a time serves a node: a second one waits until the first has ended, however that ended."""

import fcntl
import os
from pathlib import Path
from typing import Final

# In kubelet's folder of device plugins, which is the one folder of the host that we may write. kubelet takes away sockets
# there when it starts (CleanupPluginDirectory of kubelet 1.37), never folders.
FOLDER: Final = "kompakt"
_FILE: Final = "lock"


class NodeLock:
    """A lock of the kernel on a file of the host: it ends with its process, so nobody has to tidy up after a crash."""

    def __init__(self, plugins: Path) -> None:
        """`plugins` is kubelet's folder of device plugins."""
        self._path = plugins / FOLDER / _FILE
        self._file: int | None = None

    def take(self) -> bool:
        """Whether the lock is ours, now or from before. Raises OSError where the file cannot be made."""
        if self._file is not None:
            return True
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Lets the next process in."""
        if self._file is not None:
            os.close(self._file)
        self._file = None
