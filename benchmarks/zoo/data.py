"""Batches of real data that a package and this repository carry: handwritten digits, bytes of source code.

A batch is a dict of tensors and depends on nothing but its number, so that two trainings can be given the same ones.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional as F

from benchmarks.accuracy_tasks import digits as scans

Tensor = Any
Batch = dict[str, Tensor]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("core", "operator", "runtime", "simulator")
MASK: Final = 256  # beside the 256 bytes: stands where a byte is to be guessed
VOCABULARY: Final = 264  # the next multiple of 8
MASKED: Final = 0.15  # the share of BERT's own training (Devlin et al., NAACL 2019, section 3.1)
IGNORED: Final = -100  # what cross entropy leaves out


@cache
def source() -> Tensor:
    """The Python files of some packages of this repository, one after the other, as whole numbers."""
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    content = b"".join(path.read_bytes() for path in files)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()


def rows(number: int, count: int, length: int) -> Tensor:
    """`count` pieces of the source code."""
    code, generator = source(), torch.Generator().manual_seed(number)
    starts = torch.randint(len(code) - length, (count, 1), generator=generator)
    return code[starts + torch.arange(length)]


def pictures(number: int, count: int, pixels: int) -> Batch:
    """Digits, enlarged to a square of so many pixels, in three equal colours."""
    scanned, labels = scans().train
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(number))[:count]
    return {"pixels": enlarged(scanned[chosen], pixels), "labels": labels[chosen]}


def enlarged(scanned: Tensor, pixels: int) -> Tensor:
    larger = F.interpolate(scanned, size=(pixels, pixels), mode="bilinear", align_corners=False)
    return larger.repeat(1, 3, 1, 1)


def next_bytes(number: int, count: int, length: int) -> Batch:
    """Each byte is guessed from those before it; the models shift the labels themselves."""
    read = rows(number, count, length)
    return {"input_ids": read, "labels": read}


def masked_bytes(number: int, count: int, length: int) -> Batch:
    """Some bytes are hidden and guessed from all others."""
    read = rows(number, count, length)
    hidden = torch.rand(read.shape, generator=torch.Generator().manual_seed(number)) < MASKED
    return {"input_ids": read.masked_fill(hidden, MASK), "labels": read.masked_fill(~hidden, IGNORED)}


def continued(number: int, count: int, length: int) -> Batch:
    """A piece of source code is read, the next one of the same length is written."""
    read = rows(number, count, 2 * length)
    return {"input_ids": read[:, :length].contiguous(), "labels": read[:, length:].contiguous()}
