"""A file that switches compression off in a process that trains: while it is there, forward passes run as without us."""

import os

from kompakt_runtime.figures.counted import Figures


class Switch:
    """Looked at between optimizer steps only, by one question to the file system; what it says stands in the figures."""

    def __init__(self, path: str | None, figures: Figures) -> None:
        """path: of the file; None if there is none to look for."""
        self._path, self._figures = path, figures
        self.look()

    def look(self) -> None:
        """A path that cannot be looked at counts as no file: compression goes on."""
        self._figures.switched_off = self._path is not None and os.path.exists(self._path)
