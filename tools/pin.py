"""Pin all packages anew: one requirements file per package of ours, with hashes, naming no host.

`uv export` resolves the workspace; uv.lock itself stays out of commits because it names the index host.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
PACKAGES = ["core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "sdk", "cli"]
HEADER = "# Made by `make requirements` from the pyproject.toml files; do not edit.\n"


def export(name: str, *selection: str) -> None:
    """Write requirements/<name>.txt for one selection of the workspace."""
    options = ["--quiet", "--format=requirements-txt", "--no-header", "--no-annotate", "--no-emit-workspace"]
    done = subprocess.run([str(UV), "export", *options, *selection], cwd=ROOT, check=True, capture_output=True, text=True)
    text = done.stdout
    if "://" in text:
        raise SystemExit(f"requirements/{name}.txt would name a host; look at the uv settings of this machine")
    (ROOT / "requirements" / f"{name}.txt").write_text(HEADER + text)


def compile_alone(name: str, *options: str) -> None:
    """Write requirements/<name>.txt from <name>.in: what no package of ours needs, or what cannot be resolved with ours."""
    options = ("--quiet", "--upgrade", "--generate-hashes", "--no-header", "--no-annotate", *options)
    command = [str(UV), "pip", "compile", *options, f"requirements/{name}.in"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    header = HEADER.replace("the pyproject.toml files", f"{name}.in")
    (ROOT / "requirements" / f"{name}.txt").write_text(header + done.stdout)


def main() -> None:
    subprocess.run([str(UV), "lock", "--quiet", "--upgrade"], cwd=ROOT, check=True)
    for package in PACKAGES:
        export(package, "--package", f"kompakt-{package}", "--no-dev")
    export("dev", "--all-packages", "--group", "dev")
    export("uv", "--only-group", "uv")
    export("build", "--only-group", "build")
    export("sbom", "--only-group", "sbom")
    export("go", "--only-group", "go")
    export("browser", "--only-group", "browser")
    export("docs", "--only-group", "docs")
    export("torch", "--only-group", "torch")
    export("frameworks", "--only-group", "frameworks")
    compile_alone("old-torch")
    compile_alone("between-torch")
    compile_alone("oldest")
    # After the files that it must agree with, and for all versions of Python and machines as they are.
    compile_alone("zoo", "--universal", "--python-version", "3.11")


if __name__ == "__main__":
    main()
