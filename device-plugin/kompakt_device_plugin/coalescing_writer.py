"""A small file that always gets its newest content, from a thread of its own: a busy disk holds up nobody but that thread."""

import logging
import os
import threading
from pathlib import Path

log = logging.getLogger(__name__)


class CoalescingWriter:
    """Contents are numbered from 1; one that was overtaken before it was written counts as written with its successor.

    No fsync: the file outlives this process, not the machine. The thread lives as long as there is something to write and
    never keeps the process from ending.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._changed = path, threading.Condition()
        self._content, self._put, self._written = b"", 0, 0
        self._writing = False

    def put(self, content: bytes) -> int:
        """The file is to hold this from now on. Returns its number, never waits."""
        with self._changed:
            self._content, self._put = content, self._put + 1
            if not self._writing:
                self._writing = True
                threading.Thread(target=self._write_all, name=f"writes {self._path.name}", daemon=True).start()
            return self._put

    def wait(self, number: int, seconds: float) -> bool:
        """Whether content of that number, or newer, was written (or could not be, which is logged) after so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._written >= number, seconds)

    def _write_all(self) -> None:
        number = 0
        while True:
            with self._changed:
                self._written = number or self._written
                self._changed.notify_all()
                if self._written == self._put:
                    self._writing = False
                    return
                content, number = self._content, self._put
            self._replace(content)

    def _replace(self, content: bytes) -> None:
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(content)
            os.replace(new, self._path)
        except OSError as error:  # a full disk must not keep pods from starting
            log.error("cannot write %s: %s", self._path, error)
