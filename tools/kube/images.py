"""The images of the demo: ours from the project's Dockerfile, the cluster's own from its programs, the trainer.

An image is known by the content key of its inputs. The key is also the tag (but for the trainer, whose manifests are for
people and say `:1`), so a changed source file gives a new name and everything that runs the old one is replaced.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.kube.base_image import base_image, build_base
from tools.kube.buildah import Builder
from tools.kube.cache import cache_root, content_key, copy_files, files_of

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("operator", "extender", "device-plugin", "runtime")
_OURS = ("Dockerfile", "core", "client", *PACKAGES, *(f"requirements/{name}.txt" for name in ("build", "sbom", *PACKAGES[:3])))
TRAINER_FOLDER = Path("examples/digits")
TRAINER_TAG = "1"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one image is made: its build folder's files, the target in its Dockerfile, and the key of all inputs."""

    name: str
    key: str
    files: tuple[Path, ...] = ()
    above: Path = ROOT
    containerfile: str = ""  # text, where the folder has no Dockerfile of its own
    target: str = ""
    tag: str = ""  # default: the key
    args: dict[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """The name that the cluster knows."""
        return f"localhost/{self.name}:{self.tag or self.key}"

    @property
    def built(self) -> str:
        """The name in the build store."""
        return f"localhost/{self.name}:{self.key}"

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.key}"


def our_recipes(root: Path = ROOT) -> list[Recipe]:
    """One image per target of the project's Dockerfile."""
    files = tuple(files_of(root, _OURS))
    key = content_key([base_image()], files, root)
    return [Recipe(f"kompakt-{name}", key, files, root, target=name) for name in PACKAGES]


def program_recipe(program: Path, user: int) -> Recipe:
    """An image that holds nothing but one static program."""
    # The same place as in the official images, so that manifests fit both.
    text = (
        f"FROM scratch\nCOPY {program.name} /usr/local/bin/{program.name}\nENV PATH=/usr/local/bin\nUSER {user}:{user}\n"
        f'ENTRYPOINT ["/usr/local/bin/{program.name}"]\n'
    )
    key = content_key([text], [program], program.parent)
    return Recipe(program.name, key, (program,), program.parent, containerfile=text)


def pause_recipe() -> Recipe:
    """What keeps a pod's namespaces: it only has to exist until the container runtime kills it, so `sleep` will do."""
    text = 'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nUSER 65535:65535\nENTRYPOINT ["/bin/sleep", "infinity"]\n'
    return Recipe("pause", content_key([text, base_image()]), containerfile=text)


def trainer_recipe(args: dict[str, str] | None = None, root: Path = ROOT) -> Recipe:
    """The ordinary image with PyTorch that the example trains in; `args` are further build arguments."""
    folder = root / TRAINER_FOLDER
    # Manifests and the page beside them are not in the image: a word changed there must not cost minutes of building.
    files = tuple(file for file in files_of(folder, ["."]) if file.suffix not in {".md", ".yaml"})
    texts = [base_image(), *(f"{name}={value}" for name, value in sorted((args or {}).items()))]
    return Recipe("kompakt-digits", content_key(texts, files, folder), files, folder, tag=TRAINER_TAG, args=args or {})


def build(recipe: Recipe, builder: Builder, say: Say) -> Path:
    """The image as an archive; one that an interrupted run finished is taken as it is."""
    archive = cache_root() / "images" / f"{recipe.stem}.tar"
    if archive.exists():
        return archive
    say(f"building the image {recipe.name}")
    began = time.monotonic()
    context = _context(recipe)
    args = {**base_args(builder), **recipe.args}
    builder.build(context, recipe.built, target=recipe.target, args=args)
    builder.export(recipe.built, archive, name=recipe.image)
    shutil.rmtree(context)
    _forget_outdated(recipe, builder)
    say(f"the image {recipe.name} was built in {time.monotonic() - began:.0f} s")
    return archive


def base_args(builder: Builder) -> dict[str, str]:
    """The base of all images, made if it is not there, as the Dockerfile wants it: by name and digest."""
    return {"BASE_IMAGE": (image := build_base(builder)), "BASE_DIGEST": builder.digest(image)}


def drop_archives() -> None:
    """Delete all archives, once they are loaded: the image store holds their content, the build store their steps."""
    shutil.rmtree(cache_root() / "images", ignore_errors=True)


def _forget_outdated(recipe: Recipe, builder: Builder) -> None:
    """Drop older builds of the image from the store."""
    for image in builder.images():
        if image != recipe.built and image.rpartition(":")[0] == recipe.built.rpartition(":")[0]:
            builder.forget(image)


def _context(recipe: Recipe) -> Path:
    """A folder with exactly the files that the key was made from."""
    context = cache_root() / "context" / recipe.name
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    copy_files(recipe.files, recipe.above, context)
    if recipe.containerfile:
        (context / "Dockerfile").write_text(recipe.containerfile)
    return context
