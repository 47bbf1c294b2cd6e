"""The reader over this machine's true driver: `make test-gpu`, whose report is thrown away here.

In a process of its own: one that has loaded a stand-in for the driver's library keeps it for good.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pynvml")


def test_the_reader_sees_what_nvidia_smi_sees_and_what_the_shim_repeats(tmp_path):
    command = [sys.executable, "-m", "tests.gpu.nvml_report", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    if "NVML does not start" in done.stderr or "cannot load NVML" in done.stderr:
        pytest.skip(f"no NVIDIA driver answers: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("nvml-*.json"))
