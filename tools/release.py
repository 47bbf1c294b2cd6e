"""`make release`: what people install, made from HEAD into one folder, with checksums and statements of in-toto.

Wheels and sources, the chart as an archive and as an OCI artefact, release notes; with --base-image our images as well, which
needs root and buildah. What is not committed is not in it. `python -m tools.push` copies the OCI layouts into a registry.
"""

import argparse
import io
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tools import publish
from tools.kube.binaries import find
from tools.kube.buildah import Builder
from tools.kube.cache import cache_root
from tools.kube.command import CommandFailed, output
from tools.kube.images import PACKAGES
from tools.kube.programs import NoProgram
from tools.provenance.clone import Clone
from tools.provenance.images import the_image
from tools.provenance.layout import OciLayout, Refused
from tools.provenance.releases import OCI, PYTHON, REQUIREMENTS, Release, state
from tools.provenance.sums import SUMS, sums
from tools.provenance.write import Run

Say = Callable[[str], None]
Images = Callable[[Path], object]
"""Writes the layouts of images into that folder."""
NOTES: Final = "NOTES.md"
UNNAMED: Final = "https://kompakt.dev/builders/unnamed"
"""The builder of a release whose maker gave no name: nobody to be trusted."""


def release(
    out: Path,
    say: Say,
    clone: Clone | None = None,
    helm: Callable[[], Path] = lambda: find("helm"),
    run: Run | None = None,
    images: Images = lambda _: None,
) -> list[Path]:
    """All files of a release, in a folder that is not there yet.

    Raises:
        Refused: the folder is there, or the clone has no commit, or images are of another one.
        CommandFailed: a build failed; the folder is not made.
        NoProgram: there is no Helm, and it cannot be built.
    """
    clone = clone or Clone()
    commit = clone.head()
    if out.exists():
        raise Refused(f"{out} is there already")
    packer = helm()  # before anything is built: where there is none, nobody should wait for it
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".release.") as folder:
        source, made = Path(folder, "source"), Path(folder, "made")
        with tarfile.open(fileobj=io.BytesIO(clone.archive(commit))) as tar:
            tar.extractall(source, filter="data")
        made.mkdir()
        _packages(source, made / PYTHON, say)
        say(f"packing the chart of {commit}")
        output([packer, "package", "--destination", made, source / "charts" / "kompakt"])
        images(made / OCI)
        _refuse_others(Release(made).images(), commit)
        state(Release(made), commit, clone, run or Run(UNNAMED))
        (made / NOTES).write_text(notes((source / "CHANGELOG.md").read_text(), commit))
        (made / SUMS).write_text(sums(made))
        made.rename(out)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _refuse_others(images: Iterable[Path], commit: str) -> None:
    """Building images takes minutes, and another commit may be checked out meanwhile."""
    for place in images:
        if (found := the_image(OciLayout(place)).facts().revision) != commit:
            raise Refused(f"{place.name} was built from commit {found}, and the rest of the release from {commit}: make it again")


def _packages(source: Path, target: Path, say: Say) -> None:
    """Wheels and sources of all packages, by what this environment has: nothing is fetched. Beside them, what pins others'."""
    (pinned := target.with_name(REQUIREMENTS)).mkdir()
    uv = Path(sys.executable).parent / "uv"
    for project in sorted(source.glob("*/pyproject.toml")):
        say(f"building kompakt-{project.parent.name}")
        shutil.copy(source / "LICENSE", project.parent)  # whoever gets a package gets its licence
        options = ("--quiet", "--no-build-isolation", f"--python={sys.executable}", f"--out-dir={target}")
        shutil.copy(source / REQUIREMENTS / f"{project.parent.name}.txt", pinned)
        output([uv, "build", *options, project.parent])
    (target / ".gitignore").unlink(missing_ok=True)  # uv's own


def notes(changelog: str, commit: str) -> str:
    """What changed last, by CHANGELOG.md. Raises Refused where it has no section."""
    found = re.search(r"^## (.+?)\n(.*?)(?=^## |\Z)", changelog, flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise Refused("CHANGELOG.md has no section `## ...`")
    return f"# {found[1]}\n\nOf commit {commit}.\n\n{found[2].strip()}\n"


def main(argv: list[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    try:
        run = Run(given.builder, given.source, given.invocation)
        made = release(given.out, print, run=run, images=_builds(given.base_image, run))
    except (Refused, CommandFailed, NoProgram, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in made if "blobs" not in path.parts))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/release"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--base-image", metavar="NAME@sha256:...", help="build our images too, on this base")
    parser.add_argument("--builder", default=UNNAMED, metavar="URI", help="who builds, for provenance; default: %(default)s")
    parser.add_argument("--source", metavar="URI", help="where the commit can be had, as git+https://...")
    parser.add_argument("--invocation", metavar="ID", help="what the builder calls this run")
    return parser


def _builds(base_image: str | None, run: Run) -> Images:
    """What writes our images into a release; nothing where no base is named. Raises Refused for one without a digest."""
    if not base_image:
        return lambda _: None
    base, builder = publish.base_of(base_image), Builder(cache_root() / "publish.log")
    return lambda folder: publish.publish(PACKAGES, base, run, folder, builder, print)


if __name__ == "__main__":
    sys.exit(main())
