"""A cluster that stands elsewhere: one of kind's, or any that a kubeconfig reaches. KOMPAKT_CLUSTER says which:

(unset)      processes and namespaces on this machine (stack.py)
kind         made by kind, images built by docker and loaded by `kind load`
kubeconfig   the current context of KUBECONFIG; its nodes have the images, and two of them a label kompakt.dev/machine
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kompakt_core.contract import LABEL_MACHINE
from tools.kube import binaries, images
from tools.kube.cache import cache_root
from tools.kube.command import CommandFailed, output
from tools.kube.host import CannotRun
from tools.kube.images import PACKAGES, ROOT, TRAINER_FOLDER
from tools.kube.kubectl import Kubectl
from tools.kube.stack import MACHINES, Images

Say = Callable[[str], None]
KIND, KUBECONFIG = "kind", "kubeconfig"
VERSION: Final = "0.1.0"  # the chart's appVersion, by which it names images
KIND_BASE: Final = "docker.io/library/python:3.11-slim-bookworm"
NAMES: Final = {
    **{f"kompakt-{part}": f"localhost/kompakt-{part}:{VERSION}" for part in PACKAGES},
    "kompakt-digits": "localhost/kompakt-digits:1",
    "pause": "localhost/kompakt-pause:1",
}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A cluster that others brought up. `machines` are the nodes that play stack.MACHINES, in that order."""

    kubeconfig: Path
    machines: tuple[str, ...]
    images: Images

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(binaries.find("kubectl"), self.kubeconfig)


def chosen() -> str:
    """What KOMPAKT_CLUSTER says; "" where the cluster is to be made here.

    Raises:
        CannotRun: it says something else.
    """
    word = os.environ.get("KOMPAKT_CLUSTER", "")
    if word not in ("", KIND, KUBECONFIG):
        raise CannotRun(f"KOMPAKT_CLUSTER={word} is not known; right would be {KIND} or {KUBECONFIG}, or leave it unset")
    return word


def obstacle() -> str | None:
    """Why the cluster that was chosen cannot be used; None where it can. Changes nothing."""
    try:
        if chosen() == KIND:
            check_kind()
        else:
            reached()
    except CannotRun as reason:
        return str(reason)
    return None


def check_kind() -> None:
    """Raises CannotRun where docker or kind is missing or docker does not answer."""
    missing = [program for program in ("docker", "kind") if shutil.which(program) is None]
    if missing:
        raise CannotRun(
            f"KOMPAKT_CLUSTER=kind needs docker and kind; not on PATH: {', '.join(missing)}. "
            "Without KOMPAKT_CLUSTER the same runs on nodes made of processes"
        )
    try:
        output(["docker", "version"])
    except CommandFailed as error:
        raise CannotRun(f"KOMPAKT_CLUSTER=kind: docker does not answer: {error}") from None


def reached() -> Elsewhere:
    """The cluster of the current context of KUBECONFIG (default ~/.kube/config).

    Raises:
        CannotRun: it cannot be reached, or no two of its nodes say which machine they play.
    """
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")
    if not path.is_file():
        raise CannotRun(f"KOMPAKT_CLUSTER=kubeconfig: there is no file {path}; name one in KUBECONFIG")
    kubectl = Kubectl(binaries.find("kubectl"), path)
    try:
        nodes = kubectl.items("nodes", f"--selector={LABEL_MACHINE},type!=kwok", "--request-timeout=10s")
    except CommandFailed as error:
        raise CannotRun(f"KOMPAKT_CLUSTER=kubeconfig: {path} reaches no cluster: {error}") from None
    playing = {node["metadata"]["labels"][LABEL_MACHINE]: node["metadata"]["name"] for node in nodes}
    if missing := [machine for machine in MACHINES if machine not in playing]:
        words = "; ".join(f"kubectl label node NODE {LABEL_MACHINE}={machine}" for machine in missing)
        raise CannotRun(f"no node plays {' or '.join(missing)}: {words}")
    return Elsewhere(path, tuple(playing[machine] for machine in MACHINES), Images(Path(), image_names()))


def image_names() -> dict[str, str]:
    """Names of images as the nodes know them: what docs/install.md builds, or what the JSON file KOMPAKT_IMAGES says.

    Raises:
        CannotRun: the file is not a JSON object of texts with names that are known.
    """
    path = os.environ.get("KOMPAKT_IMAGES", "")
    if not path:
        return dict(NAMES)
    try:
        given = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise CannotRun(f"KOMPAKT_IMAGES={path}: {error}") from None
    known = {*NAMES, "kube-scheduler"}
    if not isinstance(given, Mapping) or not given.keys() <= known or not all(isinstance(name, str) for name in given.values()):
        raise CannotRun(f"KOMPAKT_IMAGES={path}: expected an object with names of images by {', '.join(sorted(known))}")
    return {**NAMES, **given}


def kind_cluster(name: str, say: Say) -> Elsewhere:
    """Build the images, make the cluster unless it is there, and load them into its nodes.

    Raises:
        CannotRun: docker or kind is missing.
        CommandFailed: one of them failed.
    """
    check_kind()
    base = _base_args()
    for part in PACKAGES:
        say(f"docker build --target {part}")
        output(["docker", "build", "--target", part, "--tag", NAMES[f"kompakt-{part}"], *base, ROOT])
    say(f"docker build {TRAINER_FOLDER}")
    output(["docker", "build", "--tag", NAMES["kompakt-digits"], ROOT / TRAINER_FOLDER])
    text = images.pause_recipe().containerfile
    output(["docker", "build", "--build-arg", f"BASE_IMAGE={KIND_BASE}", "--tag", NAMES["pause"], "-"], stdin=text)
    if name not in output(["kind", "get", "clusters"]).split():
        say("kind create cluster")
        output(["kind", "create", "cluster", "--name", name, "--config", ROOT / "kind/cluster.yaml", "--wait", "180s"])
    say("kind load docker-image")
    output(["kind", "load", "docker-image", *NAMES.values(), "--name", name])
    kubeconfig = cache_root() / "clusters" / f"{name}-kind.kubeconfig"
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    kubeconfig.write_text(output(["kind", "get", "kubeconfig", "--name", name]))
    os.environ["KUBECONFIG"] = str(kubeconfig)
    return reached()


def _base_args() -> list[str]:
    """What tells the Dockerfile its base: its name, and the digest that its tag has in its registry just now."""
    output(["docker", "pull", "--quiet", KIND_BASE])
    (first, *_) = json.loads(output(["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", KIND_BASE]))
    return ["--build-arg", f"BASE_IMAGE={KIND_BASE}", "--build-arg", f"BASE_DIGEST={first.rpartition('@')[2]}"]


def brought(name: str, say: Say) -> Elsewhere:
    """The chosen cluster, made first where it is kind's."""
    return kind_cluster(name, say) if chosen() == KIND else reached()
