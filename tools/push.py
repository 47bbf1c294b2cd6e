"""Copy what a release's folder holds as OCI layouts into a registry: images and chart, each with its statements.

    python -m tools.push dist/release registry.example.com/kompakt

oras does the copying, with the credentials that `docker login` or `oras login` left. A folder that is not what its checksums say
is not pushed, and no tag of the registry that names something else is moved.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.kube.binaries import find
from tools.kube.programs import NoProgram
from tools.provenance.attachments import attachments
from tools.provenance.charts import TAG
from tools.provenance.images import the_image
from tools.provenance.layout import OciLayout, Refused, reading
from tools.provenance.releases import Release
from tools.provenance.sums import faults

Say = Callable[[str], None]
_PLACE: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


@dataclass(frozen=True, slots=True)
class Target:
    """Where in a registry things go: a host, with a path where the registry wants one."""

    place: str
    oras: Path
    plain_http: bool = False

    def __post_init__(self) -> None:
        if not _PLACE.fullmatch(self.place):  # not repeated: it may hold a password
            raise Refused("name the registry as host[:port][/path], with a path in lower case, and without https:// or a login")

    def digest(self, reference: str) -> str | None:
        """What a tag names now; None where there is no such tag. Raises Refused where the registry gives no answer."""
        done = self._run("manifest", "fetch", "--descriptor", *self._plain("--plain-http"), reference)
        if done.returncode == 0:
            return str(json.loads(done.stdout)["digest"])
        if done.stderr.rstrip().endswith(f"{reference}: not found"):
            return None
        raise Refused(f"{reference} cannot be asked for: {_sentence(done.stderr)}")

    def referrers(self, reference: str) -> set[str]:
        """The digests of what refers to a tag's artefact. Raises Refused where the registry gives no answer."""
        done = self._run("discover", "--format=json", *self._plain("--plain-http"), reference)
        if done.returncode != 0:
            raise Refused(f"{reference} cannot be asked for what refers to it: {_sentence(done.stderr)}")
        return {str(one["digest"]) for one in json.loads(done.stdout).get("referrers") or ()}

    def copy(self, layout: Path, tag: str, reference: str) -> None:
        """Copy an artefact and all that refers to it. Raises Refused with the registry's words."""
        done = self._run(
            "copy", "--recursive", "--no-tty", "--from-oci-layout", *self._plain("--to-plain-http"), f"{layout}:{tag}", reference
        )
        if done.returncode != 0:
            raise Refused(f"{reference} cannot be pushed: {_sentence(done.stderr)}")

    def _plain(self, option: str) -> list[str]:
        return [option] if self.plain_http else []

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([self.oras, *words], capture_output=True, text=True, check=False)


def push(folder: Path, target: Target, say: Say) -> list[str]:
    """Push all layouts of a release; their references by digest.

    Raises:
        Refused: the folder is no release or is not what its checksums say, a tag names something else already, or the registry
            does not take what it is sent. Nothing is pushed before all that has been looked at.
    """
    if found := faults(folder):
        raise Refused(f"{folder} is not what was released: {found[0]}" + (f" (and {len(found) - 1} more)" if found[1:] else ""))
    wanted = [_named(name, place, target) for name, place in Release(folder).layouts().items()]
    if not wanted:
        raise Refused(f"{folder} holds no OCI layouts")
    missing = [one for one in wanted if _is_missing(one, target)]
    for one in missing:
        say(f"pushing {one.reference}")
        target.copy(one.place, one.tag, one.reference)
        if _is_missing(one, target):
            raise Refused(f"{one.reference} was pushed, and the registry has it not")
    return [f"{one.reference.rpartition(':')[0]}@{one.digest}" for one in wanted]


@dataclass(frozen=True, slots=True)
class _Named:
    """A layout, what is in it by digest, and the tag that it is to get."""

    place: Path
    tag: str
    digest: str
    statements: frozenset[str]
    reference: str


def _named(name: str, place: Path, target: Target) -> _Named:
    with reading(str(place)):
        descriptor = the_image(OciLayout(place)).descriptor
        told = [one for one in attachments(OciLayout(place)) if one.subject == descriptor["digest"]]
        statements = frozenset(str(one.descriptor["digest"]) for one in told)
        tag = (descriptor.get("annotations") or {}).get(TAG)
    if not tag:
        raise Refused(f"{place} has no tag")
    return _Named(place, tag, str(descriptor["digest"]), statements, f"{target.place}/{name}:{tag}")


def _is_missing(one: _Named, target: Target) -> bool:
    """Also where the artefact is there, and a statement on it is not: somebody copied it without, or was interrupted."""
    found = target.digest(one.reference)
    if found not in {None, one.digest}:
        raise Refused(f"{one.reference} is there already, and is {found}; the release has {one.digest}")
    return found is None or not one.statements <= target.referrers(one.reference)


def _sentence(said: str) -> str:
    """What oras says of a failure, in one line and without the mark before it."""
    return " ".join(said.split()).removeprefix("Error: ")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.push", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what `make release` made")
    parser.add_argument("registry", metavar="REGISTRY", help="host[:port][/path]")
    parser.add_argument("--plain-http", action="store_true", help="the registry has no TLS")
    given = parser.parse_args(argv)
    try:
        pushed = push(given.folder, Target(given.registry.rstrip("/"), find("oras"), given.plain_http), print)
    except (Refused, NoProgram, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(pushed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
