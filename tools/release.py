"""`make release`: what people install, made from HEAD into one folder: wheels, sources, the chart, release notes, checksums.

What is not committed is not in it. Images to be published are `make images`. Needs no root.
"""

import argparse
import hashlib
import io
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.kube.binaries import find
from tools.kube.command import CommandFailed, output
from tools.kube.programs import NoProgram
from tools.provenance.clone import Clone
from tools.provenance.layout import Refused

Say = Callable[[str], None]
SUMS: Final = "SHA256SUMS"
NOTES: Final = "NOTES.md"
PYTHON: Final = "python"  # the folder of wheels and sources


def release(out: Path, say: Say, clone: Clone | None = None, helm: Callable[[], Path] = lambda: find("helm")) -> list[Path]:
    """All files of a release, in a folder that is not there yet.

    Raises:
        Refused: the folder is there, or the clone has no commit.
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
        (made / NOTES).write_text(notes((source / "CHANGELOG.md").read_text(), commit))
        (made / SUMS).write_text(sums(made))
        made.rename(out)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _packages(source: Path, target: Path, say: Say) -> None:
    """Wheels and sources of all packages, by what this environment has: nothing is fetched."""
    uv = Path(sys.executable).parent / "uv"
    for project in sorted(source.glob("*/pyproject.toml")):
        say(f"building kompakt-{project.parent.name}")
        shutil.copy(source / "LICENSE", project.parent)  # whoever gets a package gets its licence
        options = ("--quiet", "--no-build-isolation", f"--python={sys.executable}", f"--out-dir={target}")
        output([uv, "build", *options, project.parent])
    (target / ".gitignore").unlink(missing_ok=True)  # uv's own


def notes(changelog: str, commit: str) -> str:
    """What changed last, by CHANGELOG.md. Raises Refused where it has no section."""
    found = re.search(r"^## (.+?)\n(.*?)(?=^## |\Z)", changelog, flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise Refused("CHANGELOG.md has no section `## ...`")
    return f"# {found[1]}\n\nOf commit {commit}.\n\n{found[2].strip()}\n"


def sums(folder: Path) -> str:
    """Of each file below a folder, as `sha256sum --check` reads them there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/release"), metavar="FOLDER", help="default: %(default)s")
    try:
        made = release(parser.parse_args(argv).out, print)
    except (Refused, CommandFailed, NoProgram, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(map(str, made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
