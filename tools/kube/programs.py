"""The programs of a cluster, the Go modules that pin them, and how each tells its version."""

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MODULES = Path(__file__).parent / "go"
OLDEST_MINOR, NEWEST_MINOR = 35, 37  # of Kubernetes 1.x
ENV_KUBERNETES = "KOMPAKT_KUBERNETES"
ENV_KUBELET = "KOMPAKT_KUBELET"  # of one node of the tests, which is then older than the control plane


class NoProgram(Exception):
    """A program can be had from nowhere; the message says what was tried."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: `module` is its folder below go/, `package` the Go import path of its main package.

    `pinned_by`: the import path whose version counts, where the main package is our own.

    `build_seconds` was measured on two cores while images were built beside, with empty caches and in the order of
    this table: later programs share compiled packages with earlier ones.
    """

    name: str
    module: str
    package: str
    version_arguments: tuple[str, ...]
    build_seconds: int
    megabytes: int
    pinned_by: str = ""

    @property
    def kubernetes(self) -> bool:
        return self.module == "kubernetes"

    @property
    def cgo(self) -> bool:
        """Whether it binds a C library, and needs a C compiler."""
        return self.module == "nvidia"


def _kubernetes(name: str, seconds: int, megabytes: int) -> Program:
    arguments = ("version", "--client") if name == "kubectl" else ("--version",)
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", arguments, seconds, megabytes)


def _containerd(name: str, argument: str, seconds: int, megabytes: int) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Program(name, "containerd", package, (argument,), seconds, megabytes)


def _nvidia(name: str, seconds: int, megabytes: int) -> Program:
    package = f"github.com/NVIDIA/nvidia-container-toolkit/cmd/{name}"
    return Program(name, "nvidia", package, ("--version",), seconds, megabytes)


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", ("--version",), 41, 25),
        _kubernetes("kube-apiserver", 315, 119),
        _kubernetes("kube-controller-manager", 83, 105),
        _kubernetes("kube-scheduler", 6, 81),
        _kubernetes("kubectl", 16, 62),
        _kubernetes("kubelet", 17, 92),
        _kubernetes("kube-proxy", 8, 79),
        Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", ("--version",), 50, 64),
        Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", ("version", "--short"), 77, 67),
        Program("coredns", "coredns", "github.com/coredns/coredns", ("-version",), 71, 79),
        _containerd("containerd", "--version", 100, 44),
        _containerd("containerd-shim-runc-v2", "-v", 1, 15),
        _nvidia("nvidia-container-runtime", 29, 10),
        Program("jobset", "jobset", "sigs.k8s.io/jobset", ("--version",), 71, 64),
        Program("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", ("--version",), 166, 120),
        Program("oras", "oras", "oras.land/oras/cmd/oras", ("version",), 18, 12),
        Program(
            "registry",
            "registry",
            "kompakt.dev/tools/kube/registry",
            ("--version",),
            60,
            20,
            "github.com/distribution/distribution/v3",
        ),
        Program("dra-driver", "dra", "kompakt.dev/tools/kube/dra", ("--version",), 40, 52, "k8s.io/kubernetes/test/e2e/dra"),
    )
}
SIMULATED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
"""What a cluster of simulated nodes needs."""
REAL = (*SIMULATED, "kubelet", "kube-proxy", "helm", "coredns")
"""What a cluster with real nodes needs."""


def module_folder(module: str) -> Path:
    """Where a module's go.mod lies. That of Kubernetes is the newest, or the minor version that KOMPAKT_KUBERNETES names.

    Raises NoProgram for a version that is not there.
    """
    newest = f"1.{NEWEST_MINOR}"
    wanted = os.environ.get(ENV_KUBERNETES) or newest
    if module != "kubernetes" or wanted == newest:
        return MODULES / module
    there = [f"1.{minor}" for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1)]
    if wanted not in there:
        raise NoProgram(f"{ENV_KUBERNETES}={wanted}: give one of {', '.join(there)}")
    return MODULES / f"{module}-{wanted}"


def pinned_version(module: str) -> str:
    """The version that a module below go/ requires of its program, with its leading v."""
    return required_version(module, module_folder(module))


@cache
def required_version(module: str, folder: Path) -> str:
    """The version that the go.mod in that folder requires of a module's program."""
    roots = {program.pinned_by or program.package for program in PROGRAMS.values() if program.module == module}
    text = (folder / "go.mod").read_text()
    for path, version in re.findall(r"^(?:require )?\s*(\S+) (v\S+)", text, re.MULTILINE):
        if any(root == path or root.startswith(path + "/") for root in roots):
            return str(version)
    raise LookupError(f"{folder / 'go.mod'} requires none of {sorted(roots)}")


def version_of(path: Path, program: Program) -> tuple[int, int, int] | None:
    """What the program itself says; None where it does not run or says nothing that looks like a version."""
    try:
        done = subprocess.run([path, *program.version_arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout + done.stderr)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """The first x.y.z or x.y of a text, with or without a leading v (a Helm built from its module says only x.y)."""
    match = re.search(r"(?<![\d.])v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def supported(version: tuple[int, int, int]) -> bool:
    """Whether this is a Kubernetes that kompakt is tested with."""
    return version[0] == 1 and OLDEST_MINOR <= version[1] <= NEWEST_MINOR
