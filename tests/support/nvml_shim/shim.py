"""Compiles shim.c against NVIDIA's nvml.h and steers the library that comes of it."""

import ctypes
import hashlib
import importlib.metadata
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.nvml_shim.described import Described

SOURCE = Path(__file__).parent / "shim.c"
# Warnings are no errors here (a test makes them so): compilers that nobody has tried yet may have new ones.
OPTIONS = ["-Wall", "-Wextra", "-O1", "-fPIC", "-pthread"]


def header_folder() -> Path:
    """The folder of nvml.h, which comes with the package nvidia-nvml-dev."""
    files = importlib.metadata.files("nvidia-nvml-dev") or []
    found = next(file for file in files if file.name == "nvml.h")
    return Path(str(found.locate())).parent


def build(folder: Path, without: Sequence[str] = ()) -> Path:
    """Compiles the shim into `folder`, with the functions `without` left out, as in an older driver's library."""
    name = hashlib.sha256(",".join(sorted(without)).encode()).hexdigest()[:8]
    library, script = folder / f"libnvidia-ml-{name}.so", folder / f"exports-{name}"
    if not library.exists():
        script.write_text("{ global: *; " + (f"local: {'; '.join(without)}; " if without else "") + "};\n")
        link = ["-shared", "-pthread", "-Wl,-soname,libnvidia-ml.so.1", f"-Wl,--version-script={script}"]
        subprocess.run(["gcc", *link, str(_object(folder)), "-o", str(library)], check=True)
    return library


def _object(folder: Path) -> Path:
    compiled = folder / "shim.o"
    if not compiled.exists():
        subprocess.run(["gcc", *OPTIONS, f"-I{header_folder()}", "-c", str(SOURCE), "-o", str(compiled)], check=True)
    return compiled


class Shim:
    """One compiled shim in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def describe(self, machine: Described) -> None:
        """NVML answers as this machine does from now on."""
        self.describe_text(machine.text())

    def describe_text(self, text: str) -> None:
        """The same with a description as shim.c reads it."""
        self._library.shim_describe(text.encode())

    def calls(self, function: str = "") -> int:
        """How often a function was called since they were forgotten; of all without a name."""
        return int(self._library.shim_calls(function.encode()))

    def forget_calls(self) -> None:
        self._library.shim_forget_calls()

    def event(self, gpu: int, kind: int, data: int = 0) -> None:
        """Lets the driver report an event, if somebody registered for its kind."""
        self._library.shim_event(gpu, ctypes.c_ulonglong(kind), ctypes.c_ulonglong(data))

    def busy(self, gpu: int, processes: int) -> None:
        """Lets so many processes run on a GPU."""
        self._library.shim_busy(gpu, processes)
