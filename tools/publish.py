"""`make images`: our images to be published, each in an OCI layout with its statements; from a commit, on a base by digest.

What is not committed is not in them: the build sees the files of HEAD. Needs root and buildah.
"""

import argparse
import io
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.kube.buildah import Builder
from tools.kube.cache import cache_root, locked
from tools.kube.command import CommandFailed
from tools.kube.images import PACKAGES
from tools.provenance.clone import Clone
from tools.provenance.layout import DIGEST, OciLayout, Refused
from tools.provenance.verify import problems
from tools.provenance.write import Run, write

Say = Callable[[str], None]
_BASE = "org.opencontainers.image.base"
_VERSION = "org.opencontainers.image.version"


@dataclass(frozen=True, slots=True)
class Base:
    """A base image by name (with its tag, for people) and digest."""

    name: str
    digest: str


def base_of(reference: str) -> Base:
    """`name[:tag]@sha256:...`, taken apart. Raises Refused for one without a digest: what a tag names changes."""
    name, _, digest = reference.rpartition("@")
    if not name or not DIGEST.fullmatch(digest):
        raise Refused(
            f"the base is {reference!r}; name it by digest, as in docker.io/library/python:3.11-slim-bookworm@sha256:..."
        )
    return Base(name, digest)


def publish(
    parts: Sequence[str], base: Base, run: Run, out: Path, builder: Builder, say: Say, clone: Clone | None = None
) -> list[Path]:
    """Build the parts' images from the clone's HEAD, attach their statements, and verify what then lies in `out`.

    Raises:
        Refused: a layout is there already, or what was made does not match.
        CommandFailed: a build failed.
    """
    clone = clone or Clone()
    commit = clone.head()
    places = [out / f"kompakt-{part}" for part in parts]
    if there := [place for place in places if place.exists()]:
        raise Refused(f"{there[0]} is there already")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".context.") as context, locked("images"):
        with tarfile.open(fileobj=io.BytesIO(clone.archive(commit))) as tar:
            tar.extractall(context, filter="data")
        for part, place in zip(parts, places, strict=True):
            say(f"building the image kompakt-{part} of {commit}")
            _one(part, base, commit, Path(context), place, builder, lambda layout: _state(layout, clone, run))
    return places


def _one(
    part: str, base: Base, commit: str, context: Path, place: Path, builder: Builder, state: Callable[[OciLayout], None]
) -> None:
    """One layout; a half made one never gets its name."""
    image, unfinished = f"localhost/published/kompakt-{part}:{commit}", place.with_name(f".{place.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    args = {"BASE_IMAGE": base.name, "BASE_DIGEST": base.digest, "REVISION": commit}
    # Left to itself buildah notes the last step that it took from its store as the base.
    noted = {f"{_BASE}.name": base.name, f"{_BASE}.digest": base.digest}
    builder.build(context, image, target=part, args=args, annotations=noted, pull=True)
    builder.export_layout(image, unfinished, tag=builder.labels(image)[_VERSION])
    builder.forget(image)
    state(OciLayout(unfinished))
    unfinished.rename(place)


def _state(layout: OciLayout, clone: Clone, run: Run) -> None:
    write(layout, clone, run)
    if found := problems(layout, clone, run.builder):
        raise Refused("; ".join(found))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.publish", description=__doc__)
    parser.add_argument("--base-image", required=True, metavar="NAME@sha256:...", help="the base, by digest")
    parser.add_argument("--builder", required=True, metavar="URI", help="who builds, as provenance names it")
    parser.add_argument("--source", metavar="URI", help="where the commit can be had, as git+https://...")
    parser.add_argument("--invocation", metavar="ID", help="what the builder calls this run")
    parser.add_argument("--out", type=Path, default=Path("dist/images"), metavar="FOLDER")
    parser.add_argument("--part", action="append", choices=PACKAGES, help="default: all")
    given = parser.parse_args(argv)
    try:
        run, base = Run(given.builder, given.source, given.invocation), base_of(given.base_image)
        builder = Builder(cache_root() / "publish.log")
        places = publish(given.part or PACKAGES, base, run, given.out, builder, print)
    except (Refused, CommandFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"{place}: built, stated and verified; not signed" for place in places))
    return 0


if __name__ == "__main__":
    sys.exit(main())
