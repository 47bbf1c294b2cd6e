"""Every NVML constant and structure that the reader uses is what NVIDIA's header says."""

import ctypes
import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest

import kompakt_device_plugin.nvml
from tests.support.nvml_shim.shim import header_folder

SOURCES = [path.read_text() for path in Path(inspect.getfile(kompakt_device_plugin.nvml)).parent.glob("*.py")]
STRUCTURES = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlGpuFabricInfo_t": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlGpuFabricInfo_v2_t": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
}


def used():
    names = {name for text in SOURCES for name in re.findall(r"pynvml\.((?:NVML|nvmlEventType)\w+)", text)}
    masks = {name for name in vars(pynvml) if name.startswith("NVML_GPU_FABRIC_HEALTH_MASK_") and "CONFIURATION" not in name}
    versions = {name for name in vars(pynvml) if name.startswith("NVML_NVLINK_VERSION_")}
    return sorted((names | masks | versions) - {"NVMLError"})


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """What the header's compiler makes of names and structures."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (gcc)")
    folder = tmp_path_factory.mktemp("header")
    lines = [f'printf("{name} %lld\\n", (long long){name});' for name in used()]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTURES]
    (folder / "print.c").write_text("#include <nvml.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    subprocess.run(["gcc", f"-I{header_folder()}", "print.c", "-o", "print"], cwd=folder, check=True)
    printed = subprocess.run([folder / "print"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in printed.splitlines())}


def test_constants_are_the_headers(header):
    assert len(used()) > 60
    ours = {name: getattr(pynvml, name) for name in used()}
    assert {name: value[0] if isinstance(value, tuple) else value for name, value in ours.items()} == {
        name: header[name] for name in used()
    }


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_have_the_headers_size(header, name):
    assert ctypes.sizeof(STRUCTURES[name]) == header[name]
