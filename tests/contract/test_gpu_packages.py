"""What `make gpu-packages` fetches is all that the report of `make test-gpu` imports: its machine has no network."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"nvidia-ml-py": ("pynvml.py",), "PyYAML": ("yaml", "_yaml"), "msgspec": ("msgspec",)}


def test_the_report_imports_nothing_else(tmp_path: Path) -> None:
    text = (ROOT / "Makefile").read_text()
    (names,) = re.findall(r"\(\((nvidia.*?)\)==", text)
    for package, modules in MODULES.items():
        if any(re.fullmatch(name, package) for name in names.split("|")):
            for module in modules:
                (tmp_path / module).symlink_to(Path(sysconfig.get_path("purelib")) / module)
    (path,) = re.findall(r"PYTHONPATH=\$\(GPU_PACKAGES\):(\S+) \$\(PYTHON\) -S", text)
    places = os.pathsep.join([str(tmp_path), *(str(ROOT / part) for part in path.split(":"))])
    command = [sys.executable, "-S", "-c", "import tests.gpu.nvml_report"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
