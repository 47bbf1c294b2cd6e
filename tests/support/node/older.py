"""The older release as it is installed on real nodes: its chart, and its images, which lie on every node beside today's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import older
from tools.kube import stack
from tools.kube.base_image import base_image
from tools.kube.cache import content_key, files_of
from tools.kube.images import Recipe
from tools.kube.stack import Images

PARTS = ("operator", "extender", "device-plugin")  # the jobs of these tests take nothing of the runtime
REGISTRY = "localhost/older"  # apart from today's images: a build drops older images of its own name


@dataclass(frozen=True, slots=True)
class Older:
    """A chart, and the tag of its images."""

    chart: Path
    tag: str

    @property
    def values(self) -> dict[str, str]:
        """The settings with which the chart takes its images."""
        return {"image.registry": REGISTRY, "image.tag": self.tag}


def release(tree: Path, commit: str) -> Older:
    """What is installed of that commit, whose files are in `tree`."""
    return Older(tree / "charts/kompakt", _key(commit))


def recipes(tree: Path, commit: str) -> list[Recipe]:
    """Its images, as its own Dockerfile says."""
    files, name = tuple(files_of(tree, ["."])), REGISTRY.partition("/")[2]
    args = {"REVISION": commit}
    return [Recipe(f"{name}/kompakt-{part}", _key(commit), files, tree, target=part, args=args) for part in PARTS]


def prepare(say: Callable[[str], None], folder: Path) -> Images:
    """Everything that real nodes need, and the older release's images where this clone has its commit."""
    try:
        more = recipes(older.checked_out(folder), older.commit())
    except older.NoHistory as error:
        say(f"no older images: {error}")
        more = []
    return stack.prepare(say, more)


def _key(commit: str) -> str:
    return content_key([base_image(), commit])
