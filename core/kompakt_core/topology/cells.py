"""Words of a text table and where they stand, so that an error can point at them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core.errors import InvalidInput

MAX_GPUS: Final = 64
MAX_TEXT: Final = 200_000  # characters; a real matrix of 16 GPUs has about 3,000
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")  # nvidia-smi underlines its header even into a pipe


@dataclass(frozen=True, slots=True)
class Cell:
    """A word of the text and where it stands (both counted from 1)."""

    text: str
    line: int
    column: int
    table: str = "link matrix"

    def wrong(self, what: str) -> InvalidInput:
        """An error that points at this word."""
        return InvalidInput(f"{self.table}, line {self.line}, column {self.column}: {what}")


def lines_of(text: str, table: str = "link matrix") -> list[str]:
    """The lines without terminal colours. Raises InvalidInput where there is more text than any machine prints."""
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"{table}: {len(text)} characters; at most {MAX_TEXT} are read")
    return _ESCAPE.sub("", text).splitlines()


def cells_of(line: str, number: int, table: str = "link matrix") -> list[Cell]:
    """The words of line `number`."""
    return [Cell(match.group(), number, match.start() + 1, table) for match in re.finditer(r"\S+", line)]


def headers(lines: Sequence[str]) -> Iterator[int]:
    """Indices of the lines that name columns GPU0, GPU1, ...: they begin with GPU0 and do not go on as GPU0's row, with X."""
    for index, line in enumerate(lines):
        words = line.split(maxsplit=2)
        if words and words[0] == "GPU0" and (len(words) == 1 or words[1] != "X"):
            yield index


def check_gpu_columns(gpus: Sequence[Cell]) -> None:
    """Raises InvalidInput unless the columns run GPU0, GPU1, ... and are not too many."""
    for expected, cell in enumerate(gpus):
        if cell.text != f"GPU{expected}":
            raise cell.wrong(f"found {cell.text[:32]} where GPU{expected} is due; GPU columns must run GPU0, GPU1, ...")
    if len(gpus) > MAX_GPUS:
        raise gpus[MAX_GPUS].wrong(f"{len(gpus)} GPUs; at most {MAX_GPUS} are read")
