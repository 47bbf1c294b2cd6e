"""An image as `make images` publishes it, of HEAD, whatever lies in the working tree."""

from dataclasses import dataclass
from pathlib import Path

from tests.support import older, released
from tools.kube.buildah import Builder
from tools.kube.cache import locked
from tools.kube.images import base_args
from tools.provenance.clone import Clone
from tools.provenance.layout import Refused
from tools.publish import Base, publish


@dataclass(frozen=True)
class Published:
    """Its layout, and from what it was made. Tests that change something take a copy."""

    place: Path
    base: Base
    commit: str


def runtime(folder: Path) -> Published:
    """Skips the test where the checkout has no history, unless it must run."""
    builder = Builder(folder / "build.log")
    try:
        commit = Clone().head()
    except Refused as error:
        older.cannot(older.NoHistory(str(error)))
    with locked("images"):
        base = Base(*base_args(builder).values())
    (place,) = publish(["runtime"], base, released.RUN, folder / "out", builder, print)
    return Published(place, base, commit)
