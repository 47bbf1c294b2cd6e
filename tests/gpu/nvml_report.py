"""Reads this machine's GPUs through its true driver, checks the answer three ways, and stores a report (`make test-gpu`).

Checked: GPUs against `nvidia-smi`, links against `nvidia-smi topo -m`, and the reader over the shim, which repeats the driver's
recorded answers, against the reader over the driver. Needs Python 3.11, gcc and what `make gpu-packages` brings; no installation.
A check that cannot be made (a program is missing, say) counts as failed; what was found is stored all the same.
"""

import argparse
import csv
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.flags import remarks
from kompakt_core.topology.graph import NVLINK_KINDS, LinkGraph
from kompakt_core.topology.matrix import parse_matrix, text_uuid
from kompakt_core.topology.sides import bus_id
from kompakt_core.topology.wire import graph_to_spec
from kompakt_device_plugin.nvml.discovery import discover
from kompakt_device_plugin.nvml.source import NvmlSource
from kompakt_device_plugin.nvml.sysfs import Sysfs
from tests.support.nvml_shim.recording import record
from tests.support.nvml_shim.shim import Shim, build

NODE: dict[str, Any] = {"metadata": {"name": "this"}}
OWNER = "recorded"  # of the made-up UUIDs that stand for the true ones
REPEATS = 20
IDLE_SECONDS = 1.0


def anonymous(graph: LinkGraph) -> LinkGraph:
    """The graph with made-up UUIDs, and without network cards: what the driver tells and nothing that names the machine."""
    gpus = tuple(replace(gpu, uuid=GpuUuid(text_uuid(OWNER, gpu.index))) for gpu in graph.gpus)
    return replace(graph, gpus=gpus, nics=())


def replayed(recording: str, folder: Path, sysfs: Sysfs) -> LinkGraph:
    """The link graph that the reader makes of recorded answers."""
    shim = Shim(build(folder))
    shim.describe_text(recording)
    source = NvmlSource(shim.path, sysfs=sysfs)
    try:
        return source.read(NODE)
    finally:
        source.close()


def timed(call: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of some runs: median, least and most."""
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000)
    return {"median": round(statistics.median(taken), 3), "min": round(min(taken), 3), "max": round(max(taken), 3)}


def calls_of(call: Callable[[], object]) -> int:
    """How many of NVML's functions a call asks for: nvidia-ml-py fetches each function's pointer once a call."""
    before, counted = pynvml._nvmlGetFunctionPointer, []

    def fetch(name: str) -> Any:
        counted.append(name)
        return before(name)

    pynvml._nvmlGetFunctionPointer = fetch
    try:
        call()
    finally:
        pynvml._nvmlGetFunctionPointer = before
    return len(counted)


def smi(*arguments: str) -> str:
    return subprocess.run(["nvidia-smi", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def gpus_of_smi() -> list[tuple[str, str, str, int]]:
    """(UUID, bus id, name, MiB) of each GPU."""
    text = smi("--query-gpu=uuid,pci.bus_id,name,memory.total", "--format=csv,noheader,nounits")
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    # Where GPU and CPU share their memory it says [N/A], and NVML does not tell a size either.
    return [(row[0], bus_id(row[1]), row[2], int(row[3]) if row[3].isdecimal() else 0) for row in rows]


def same_gpus(graph: LinkGraph) -> str:
    """Empty where nvidia-smi lists the same GPUs; it rounds memory, so 1 GiB of difference is none."""
    expected = gpus_of_smi()
    seen = [(gpu.uuid, gpu.pci_bus_id, gpu.model, gpu.memory_bytes >> 20) for gpu in graph.gpus]
    named = [gpu[:3] for gpu in seen] == [gpu[:3] for gpu in expected]
    sized = all(abs(a[3] - b[3]) <= 1024 for a, b in zip(seen, expected, strict=False))
    return "" if named and sized else f"{seen} here, {expected} there"


def same_links(graph: LinkGraph) -> str:
    """Empty where `nvidia-smi topo -m` shows the same kind of link, and as many lanes, between all GPUs; else what it shows."""
    text = smi("topo", "-m")
    try:
        shown = parse_matrix(text)
    except InvalidInput as error:
        return f"cannot be read ({error}):\n{text}"
    ours, theirs = words_of(graph), words_of(shown)
    return "" if ours == theirs else f"{ours} here, there:\n{text}"


def words_of(graph: LinkGraph) -> list[str]:
    """Each pair's link as `topo -m` writes it: NV18 says nothing of a switch, which a reader of that text can only guess."""
    return [f"NV{link.lanes}" if link.kind in NVLINK_KINDS else link.kind.value for link in graph.links]


def same_again(graph: LinkGraph, recording: str, sysfs: Sysfs) -> str:
    """Empty where the reader makes the same graph of the shim's answers, which are the recorded ones of the driver."""
    if not recording:
        return "the driver's answers could not be recorded"
    with tempfile.TemporaryDirectory() as folder:
        again = replace(replayed(recording, Path(folder), sysfs), nics=())
    return "" if again == anonymous(graph) else f"{again} of the shim, {anonymous(graph)} of the driver"


def happened(source: NvmlSource) -> str:
    """Empty where no news of the GPUs come."""
    return "; ".join(change.message for change in source.wait(IDLE_SECONDS))


def figures(source: NvmlSource, first: float) -> dict[str, Any]:
    """What a discovery costs."""

    def ask() -> None:
        discover(source.driver_version, None, lambda _: True)

    return {
        "milliseconds of the first reading": round(first * 1000, 1),
        f"milliseconds of a discovery, {REPEATS} runs": timed(ask),
        "NVML calls of a discovery": calls_of(ask),
    }


def outcome(check: Callable[[], str]) -> str:
    """ "holds", or what does not. A program that is missing or fails leaves the other checks their say."""
    try:
        return check() or "holds"
    except (OSError, subprocess.SubprocessError, pynvml.NVMLError, InvalidInput) as error:
        return f"cannot be checked: {error}"


def recording() -> str:
    """The driver's answers for the shim; empty where a GPU gives none at all."""
    try:
        return record(lambda index: text_uuid(OWNER, index)).text()
    except pynvml.NVMLError as error:
        print(f"the driver's answers cannot be recorded: {error}", file=sys.stderr)
        return ""


def examine(library: Path | None = None) -> dict[str, Any]:
    """The report; every check of it is "holds" or says what does not. `library`: the driver's, where the loader misses it.

    Raises InvalidInput where there is no driver to examine.
    """
    sysfs = Sysfs()
    source = NvmlSource(library, sysfs=sysfs)
    began = time.perf_counter()
    graph = source.read(NODE)
    report = {
        "machine": {"kernel": platform.release(), "python": platform.python_version(), "driver": source.driver_version},
        "figures": figures(source, time.perf_counter() - began),
        "graph": graph_to_spec(anonymous(graph), node_uid="", source="nvml", driver_version=source.driver_version),
        "remarks": [remark.sentence for remark in remarks(graph)],
        "recording": recording(),
    }
    checks: dict[str, Callable[[], str]] = {
        "the GPUs are those of nvidia-smi": lambda: same_gpus(graph),
        "nothing happens to idle GPUs within a second": lambda: happened(source),
    }
    if graph.size > 1:
        checks["the links are those of nvidia-smi topo -m"] = lambda: same_links(graph)
    found = {name: outcome(check) for name, check in checks.items()}
    source.close()  # nvidia-ml-py speaks to one library at a time, from here on to the shim
    found["the shim's answers make the same graph"] = outcome(lambda: same_again(graph, report["recording"], sysfs))
    return {**report, "checks": found}


def store(report: dict[str, Any], folder: Path) -> Path:
    """Writes the report under a name made of the GPUs."""
    gpus = report["graph"]["gpus"]
    names = sorted({gpu["model"].replace("NVIDIA ", "").replace(" ", "-") for gpu in gpus})
    path = folder / f"nvml-{len(gpus)}x{'+'.join(names) or 'none'}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the report is stored")
    parser.add_argument("--library", type=Path, help="libnvidia-ml.so.1 (default: where the loader finds it)")
    options = parser.parse_args()
    try:
        report = examine(options.library)
    except InvalidInput as error:
        sys.exit(f"this machine's GPUs cannot be read: {error}")
    for name, result in report["checks"].items():
        print(f"{name}: {result}")
    for name, result in report["figures"].items():
        print(f"{name}: {result}")
    print(f"stored in {store(report, options.folder)}")
    if any(result != "holds" for result in report["checks"].values()):
        sys.exit("a check does not hold")


if __name__ == "__main__":
    main()
