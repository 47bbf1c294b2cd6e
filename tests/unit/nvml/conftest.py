"""NVML through nvidia-ml-py over a library of our own that answers as described machines do."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kompakt_device_plugin.nvml.source import NvmlSource
from kompakt_device_plugin.nvml.sysfs import Sysfs
from tests.support.nvml_shim.described import Described
from tests.support.nvml_shim.node import NODE
from tests.support.nvml_shim.shim import Shim, build


class Clock:
    """Time that only tests move: by setting it, or by so much at every look at it."""

    def __init__(self) -> None:
        self.now, self.step = 1000.0, 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], Shim]:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (gcc) to build the stand-in for the driver's library")
    folder = tmp_path_factory.mktemp("nvml")
    return lambda without: Shim(build(folder, without))


@pytest.fixture
def shim(compiled: Callable[[Sequence[str]], Shim]) -> Shim:
    found = compiled(())
    found.forget_calls()
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(shim: Shim, clock: Clock, tmp_path: Path) -> Iterator[Callable[..., NvmlSource]]:
    """Makes sources over the shim, and closes them."""
    made: list[NvmlSource] = []

    def make(machine: Described, library: Shim | None = None, **options: object) -> NvmlSource:
        used = library or shim
        used.describe(machine)
        made.append(NvmlSource(used.path, sysfs=Sysfs(tmp_path / "sys"), clock=clock, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for source in made:
        source.close()


@pytest.fixture
def read(reader: Callable[..., NvmlSource]) -> Callable[..., object]:
    """The link graph of a described machine."""
    return lambda machine, **options: reader(machine, **options).read(NODE)
