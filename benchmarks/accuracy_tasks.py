"""What `benchmarks.accuracy` trains: small networks on real data that ordinary packages carry; nothing is downloaded.

Handwritten digits come with scikit-learn, photographed textures with scikit-image, text is the source code of Python's own
standard library. Training and test data never overlap: digits are split by scan, textures by half of the photograph, text and
words by file.
"""

import math
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from skimage import data as photographs
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

Tensor = Any
TEXTURES = ("brick", "grass", "gravel", "coins")  # grey; 512 x 512, the last 303 x 384
CROP = 32
CONTEXT = 64  # bytes that predict the next ones
BYTES = 256
PACKAGES = ("asyncio", "email", "idlelib", "importlib", "multiprocessing", "tkinter", "unittest", "xml")
PIECE = 1500  # characters of a file, whose words are counted
COUNTS = 1024
DTYPES = ("float32", "autocast", "bfloat16")  # the second as most people train in bfloat16: weights stay in float32


@dataclass(frozen=True)
class Data:
    """Inputs and labels, to train on and to test on; labels hold one class an example, or one for each place of a sequence."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """One network on one kind of data. Over all `epochs` the learning rate falls to zero by half a cosine.

    warmup: the share of steps in which it rises linearly before; seeds: how many pairs tell, by default; classes: of the labels;
    dtype: one of DTYPES, what the network computes in.
    """

    title: str
    network: Callable[[], nn.Module]
    data: Callable[[], Data]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    classes: int
    epochs: int
    batch: int
    seeds: int
    warmup: float = 0
    dtype: str = "float32"

    @property
    def guessing(self) -> float:
        """Mean loss of guessing all classes alike: the unit in which losses are compared."""
        return math.log(self.classes)


@cache
def digits() -> Data:
    """1,797 scans, 8 x 8: 70 % to train on, 540 to test on; the same split in every run."""
    scans = load_digits()
    pixels = torch.tensor(scans.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(scans.target)
    train, test = train_test_split(range(len(labels)), test_size=0.3, random_state=0, stratify=scans.target)
    return Data((pixels[train], labels[train]), (pixels[test], labels[test]))


@cache
def textures() -> Data:
    """Crops of four photographs, each crop less its own mean: which one is it from? Left halves train, right halves test."""
    pictures = [torch.tensor(getattr(photographs, name)(), dtype=torch.float32) for name in TEXTURES]
    halves = [picture.tensor_split(2, 1) for picture in pictures]
    return Data(_crops([left for left, _ in halves], 180, 0), _crops([right for _, right in halves], 500, 1))


def _crops(pictures: list[Tensor], count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for picture in pictures:
        tops = torch.randint(picture.shape[0] - CROP, (count,), generator=generator).tolist()
        lefts = torch.randint(picture.shape[1] - CROP, (count,), generator=generator).tolist()
        found += [picture[top : top + CROP, left : left + CROP] for top, left in zip(tops, lefts, strict=True)]
    crops = torch.stack(found).unsqueeze(1) / 64
    return crops - crops.mean((2, 3), keepdim=True), torch.arange(len(pictures)).repeat_interleave(count)


@cache
def text() -> Data:
    """Windows of Python's standard library; every tenth module is kept to test on."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    train = b"".join(path.read_bytes() for place, path in enumerate(files) if place % 10)
    test = b"".join(path.read_bytes() for path in files[::10])
    return Data(_windows(train, 3200, 0), _windows(test, 256, 1))


def _windows(content: bytes, count: int, seed: int) -> tuple[Tensor, Tensor]:
    numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
    starts = torch.randint(len(numbers) - CONTEXT, (count, 1), generator=torch.Generator().manual_seed(seed))
    rows = numbers[starts + torch.arange(CONTEXT + 1)]
    return rows[:, :-1], rows[:, 1:]


@cache
def words() -> Data:
    """Which package is a piece of source code from? Counts of its words, signs and blanks; every fourth file is kept to test on.

    Words are hashed to one of 1,024 places, as is usual where they are not known beforehand; nothing is scaled. So most counts
    are zero, most others one or two, and here and there one is some hundred.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    pieces: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for number, package in enumerate(PACKAGES):
        for place, path in enumerate(sorted((folder / package).rglob("*.py"))):
            source = path.read_text(errors="replace")
            starts = range(0, len(source) - PIECE // 2, PIECE)
            pieces[place % 4 == 0].extend((source[start : start + PIECE], number) for start in starts)
    return Data(_counts(pieces[0]), _counts(pieces[1]))


def _counts(pieces: list[tuple[str, int]]) -> tuple[Tensor, Tensor]:
    counter = HashingVectorizer(
        n_features=COUNTS, token_pattern=r"[A-Za-z_]+|[^A-Za-z_]", lowercase=False, norm=None, alternate_sign=False
    )
    counts = counter.transform([source for source, _ in pieces]).toarray()
    return torch.tensor(counts, dtype=torch.float32), torch.tensor([number for _, number in pieces])


def digits_network(norm: bool) -> nn.Sequential:
    """(batch, 1, 8, 8) pixels in 0..1 to (batch, 10) logits: four convolutions and ReLUs."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 32, 1), (32, 32, 1), (32, 32, 1), (32, 64, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if norm else [nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


def texture_network() -> nn.Sequential:
    """(batch, 1, 32, 32) to (batch, 4) logits: three convolutions with max-pools and a dropout."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 16, len(TEXTURES)))


class Shortcut(nn.Module):  # type: ignore[misc]  # torch is looked at without its types
    """Two 3x3 convolutions with BatchNorm beside an identity, or a 1x1 convolution where the shape changes (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        plain = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if plain else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def residual_network() -> nn.Sequential:
    """(batch, 1, 32, 32) to (batch, 4) logits: a ResNet of eight layers, 8, 16 and 32 channels wide; its stem steps by two."""
    stem: list[nn.Module] = [nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    blocks = [Shortcut(8, 8, 1), Shortcut(8, 16, 2), Shortcut(16, 32, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(TEXTURES)))


class Block(nn.Module):  # type: ignore[misc]  # torch is looked at without its types
    """Attention that looks back only, and two linear layers with a GELU between; LayerNorm before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ByteTransformer(nn.Module):  # type: ignore[misc]  # torch is looked at without its types
    """(batch, context) bytes to (batch, context, 256) logits of the next byte."""

    def __init__(self, width: int = 64, blocks: int = 2) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.bytes(rows) + self.places(torch.arange(rows.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def words_network() -> nn.Sequential:
    """(batch, 1024) counts to (batch, 8) logits: three linear layers."""
    layers = [nn.Linear(COUNTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(PACKAGES))]
    return nn.Sequential(*layers)


def sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=5e-4)


def adamw(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=3e-3, weight_decay=0.01)


def adam(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, lr=5e-3)


def slower_adam(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, lr=1e-3)


TASKS = {
    "digits": Task("four convolutions, digits", lambda: digits_network(False), digits, sgd, 10, 8, 64, 10),
    "digits-norm": Task("four convolutions with BatchNorm, digits", lambda: digits_network(True), digits, sgd, 10, 6, 64, 10),
    "textures": Task("three convolutions with pools and dropout, textures", texture_network, textures, adam, 4, 8, 32, 10),
    "resnet": Task("ResNet of eight layers, textures", residual_network, textures, sgd, 4, 24, 32, 40, warmup=0.1),
    "text": Task("transformer of two blocks, bytes of source code", ByteTransformer, text, adamw, BYTES, 1, 16, 4),
    "words": Task("three linear layers, counts of words", words_network, words, slower_adam, len(PACKAGES), 8, 64, 30),
}
