"""`python -m tools.provenance LAYOUT... --builder URI`: attach statements to images; with --verify, say what does not match.

With --verify the folder of a release will do too: all that is in it is compared.
"""

import argparse
import sys
from pathlib import Path

from tools.provenance.attachments import PREDICATE_TYPE
from tools.provenance.clone import Clone
from tools.provenance.images import the_image
from tools.provenance.layout import MALFORMED, Refused, malformed, opened
from tools.provenance.sums import SUMS
from tools.provenance.verify import problems
from tools.provenance.verify_release import release_problems
from tools.provenance.write import Run, write


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if not arguments.verify and not arguments.builder:
        _parser().error("say who builds: --builder URI")
    failed = False
    for path in arguments.layouts:
        try:
            lines = _verified(path, arguments) if arguments.verify else _written(path, arguments)
        except (Refused, OSError) as error:
            lines, failed = [f"{path}: {error}"], True
        else:
            failed = failed or not lines[0].startswith("ok ")
        print("\n".join(lines))
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.provenance", description=__doc__)
    parser.add_argument(
        "layouts",
        nargs="+",
        type=Path,
        metavar="LAYOUT",
        help="OCI layout with one image, folder or archive; to verify, also a release",
    )
    parser.add_argument("--verify", action="store_true", help="attach nothing; compare blobs, statements, image and commit")
    parser.add_argument("--builder", metavar="URI", help="who builds; with --verify, who must have")
    parser.add_argument("--source", metavar="URI", help="where the commit can be had, as git+https://...")
    parser.add_argument("--invocation", metavar="ID", help="what the builder calls this run")
    parser.add_argument("--clone", type=Path, default=Clone().root, help="the clone that has the commit (default: this one)")
    return parser


def _written(path: Path, arguments: argparse.Namespace) -> list[str]:
    run = Run(arguments.builder, arguments.source, arguments.invocation)
    with opened(path, to_write=True) as layout:
        try:
            added = write(layout, Clone(arguments.clone), run)
        except MALFORMED as error:
            raise Refused(malformed(error)) from error
    return [f"ok {path}: attached {one['annotations'][PREDICATE_TYPE]} as {one['digest']}" for one in added]


def _verified(path: Path, arguments: argparse.Namespace) -> list[str]:
    if (path / SUMS).is_file():
        return _verified_release(path, arguments)
    with opened(path, to_write=False) as layout:
        if found := problems(layout, Clone(arguments.clone), arguments.builder):
            return [f"{path}: {problem}" for problem in found]
        return [f"ok {path}: {the_image(layout).descriptor['digest']} and its statements match; nothing here is signed"]


def _verified_release(path: Path, arguments: argparse.Namespace) -> list[str]:
    if found := release_problems(path, Clone(arguments.clone), arguments.builder):
        return [f"{path}: {problem}" for problem in found]
    return [f"ok {path}: checksums and statements match; nothing here is signed"]


if __name__ == "__main__":
    sys.exit(main())
