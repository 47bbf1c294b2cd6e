"""Check one package of ours alone: in an environment with only its pinned requirements, core and itself.

    python tools/alone.py operator

One shared environment hides undeclared imports; this one does not. All modules are imported, and every import statement,
also those inside functions, must name something that the environment has or that the package declares as an extra.
Exit status: 0 all well, 1 something is undeclared or broken, 2 no package index can be reached.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
FOLDERS = ("core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "sdk", "cli")
NO_INDEX = 2
# What uv says when it cannot reach an index, in the words of its HTTP client.
UNREACHABLE = ("error sending request", "Failed to fetch", "dns error", "Connection refused", "operation timed out")
PROBE = Path(__file__).with_name("alone_probe.py")


def run(*command: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def must(done: "subprocess.CompletedProcess[str]") -> None:
    """End here with what the command said if it failed."""
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    print(f"{' '.join(map(str, done.args))}\n{said}", file=sys.stderr)
    raise SystemExit(NO_INDEX if any(words in said for words in UNREACHABLE) else 1)


def ours_of(folder: str) -> list[str]:
    """Folders of our own packages that this one declares; the runtime stands alone."""
    declared = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"].get("dependencies", [])
    return [name for name in FOLDERS if any(line.startswith((f"kompakt-{name}=", f"kompakt-{name}[")) for line in declared)]


def package_of(folder: str) -> str:
    """What is imported from it."""
    return next(path.parent.name for path in (ROOT / folder).glob("*/__init__.py"))


def build_wheels(folder: str, target: Path) -> list[str]:
    """Our own wheels that the package needs: those it declares, and itself."""
    for name in dict.fromkeys([*ours_of(folder), folder]):
        must(run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target), folder=ROOT / name))
    return [str(path) for path in sorted(target.glob("*.whl"))]


def extras_of(folder: str) -> list[str]:
    """Names of the optional packages that the package declares; importing them may fail here."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    listed = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    return [line.split(";")[0].split("[")[0].split(">")[0].split("=")[0].split("<")[0].split("~")[0].strip() for line in listed]


def check(folder: str, work: Path) -> int:
    """Build the environment in `work` and probe the package in it."""
    uv, python = str(BIN / "uv"), str(work / "env/bin/python")
    must(run(uv, "venv", "--quiet", "--python", sys.executable, str(work / "env")))
    install = (uv, "pip", "install", "--quiet", "--python", python)
    must(run(*install, "--require-hashes", "-r", str(ROOT / "requirements" / f"{folder}.txt")))
    must(run(*install, "--no-deps", *build_wheels(folder, work / "wheels")))
    done = run(python, "-I", str(PROBE), package_of(folder), *extras_of(folder), folder=work)
    print(done.stdout + done.stderr, end="")
    return int(done.returncode != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", choices=FOLDERS)
    with tempfile.TemporaryDirectory() as work:
        return check(parser.parse_args().folder, Path(work))


if __name__ == "__main__":
    sys.exit(main())
