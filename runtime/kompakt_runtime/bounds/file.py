"""Error bounds and plans in a folder that outlives the process: written while training runs, read when the next attempt starts.

One small file for each rank and number of ranks, for ranks of another gang may have other layers. No torch here.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kompakt_runtime.config import rank, ranks

SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 20


class BoundsFile:
    """remembered: as Remembered; count: a reason why they did not outlive a process, once each time; what: begins these. Never
    raises.
    """

    def __init__(
        self,
        path: Path,
        remembered: Any,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        what: str = "SavedBounds",
    ) -> None:
        self._path, self._remembered, self._clock = path, remembered, clock
        self._counted, self._what = count, what
        self._next = -float("inf")

    def read(self) -> None:
        """What an earlier attempt left, if it did. What is broken or foreign is left alone and soon written over."""
        try:
            with self._path.open("rb") as file:
                text = file.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            self._remembered.load(json.loads(text))
        except FileNotFoundError:
            return
        except OSError:
            self._count("Unreadable")
        except (ValueError, RecursionError):
            self._count("Broken")

    def stepped(self) -> None:
        """After each optimizer step: writes if bounds are new and some time has passed."""
        if not self._remembered.changed or (now := self._clock()) < self._next:
            return
        self._next, self._remembered.changed = now + SECONDS, False
        try:
            self._write(json.dumps(self._remembered.state(), separators=(",", ":")))
        except Exception:  # a full or vanished folder is no reason to disturb training
            self._remembered.changed = True  # the next step tries again, once the time for it has come
            self._count("Unwritable")

    def _count(self, reason: str) -> None:
        self._counted(f"{self._what}{reason}")

    def _write(self, text: str) -> None:
        if len(text) > MOST_BYTES:
            return self._count("TooLarge")
        half = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        half.write_text(text)
        half.replace(self._path)
        return None


def path_of(folder: str, environ: Mapping[str, str], what: str = "bounds") -> Path:
    """This rank's file, by the names that launchers set. what: bounds or plan."""
    return Path(folder) / f"kompakt-{what}-{rank(environ)}-of-{ranks(environ)}.json"
