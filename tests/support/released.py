"""A release of HEAD as `make release` makes it, with images written by hand: building true ones takes root and minutes."""

import json
import shutil
from pathlib import Path

from tests.support import oci
from tools.provenance.clone import Clone
from tools.provenance.layout import OciLayout
from tools.provenance.sums import SUMS, sums
from tools.provenance.write import Run, write
from tools.release import release

PARTS = ("operator", "extender", "device-plugin", "runtime")
RUN = Run("https://example.com/tests")


def made(out: Path) -> Path:
    """The release's folder."""
    release(out, lambda _: None, run=RUN, images=_images)
    return out


def changed(folder: Path, to: Path) -> Path:
    """A copy with another image under the same name and tag, and checksums that say so."""
    shutil.copytree(folder, to)
    shutil.rmtree(place := to / "oci/kompakt-runtime")
    oci.image(place, oci.labels(Clone().head(), title="kompakt-runtime"), {"which": b"another"})
    (to / SUMS).write_text(sums(to))
    return to


def flip(file: Path) -> None:
    """Change one byte; twice is as before."""
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _images(folder: Path) -> None:
    clone = Clone()
    for part in PARTS:
        labels = oci.labels(clone.head(), title=f"kompakt-{part}")
        oci.image(place := folder / f"kompakt-{part}", labels, {oci.FILE: json.dumps(oci.BOM).encode()}, {"which": part.encode()})
        write(OciLayout(place), clone, RUN)
