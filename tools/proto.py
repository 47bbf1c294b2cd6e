"""Makes the device plugin's gRPC messages anew: `python tools/proto.py` (needs Go for the download and grpcio-tools).

The proto files are those of the published Go module k8s.io/kubelet (Apache-2.0) at the version below. They compile
as they are; only their file names change, because both are called api.proto and one process may know a name once.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

MODULE: Final = "k8s.io/kubelet@v0.37.1"
PACKAGE: Final = "kompakt_device_plugin/proto"
SOURCES: Final = {
    "deviceplugin": "pkg/apis/deviceplugin/v1beta1/api.proto",
    "podresources": "pkg/apis/podresources/v1/api.proto",
}
PACKAGE_ROOT: Final = Path(__file__).parent.parent / "device-plugin"


def module_folder(go: str = "go") -> Path:
    """The unpacked module in Go's cache, downloaded and checked against Go's checksum database where necessary."""
    with tempfile.TemporaryDirectory() as empty:  # outside of any module, so that no go.mod interferes
        done = subprocess.run([go, "mod", "download", "-json", MODULE], cwd=empty, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"cannot download {MODULE}: {done.stderr or done.stdout}")
    return Path(json.loads(done.stdout)["Dir"])


def generate(kubelet: Path, target: Path) -> None:
    """Compiles the protos of the kubelet module into `target`/kompakt_device_plugin/proto."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / PACKAGE
        folder.mkdir(parents=True)
        names = [f"{PACKAGE}/{name}.proto" for name in SOURCES]
        for name, source in SOURCES.items():
            shutil.copyfile(kubelet / source, folder / f"{name}.proto")
        outputs = [f"--{kind}={target}" for kind in ("python_out", "grpc_python_out")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{scratch}", *outputs, *names], check=True)
    for made in (target / PACKAGE).glob("*_pb2*"):
        _state_origin(made)


def _state_origin(made: Path) -> None:
    name = re.sub(r"_pb2(_grpc)?$", "", made.stem)
    origin = f"# From {SOURCES[name]} of {MODULE} (The Kubernetes Authors, Apache-2.0) by tools/proto.py; do not edit.\n"
    made.write_text(origin + made.read_text())


if __name__ == "__main__":
    generate(module_folder(), PACKAGE_ROOT)
