"""One of our images in a layout: what it says of itself, and single files of its layers."""

import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from tools.provenance.layout import DIGEST, MANIFEST, Json, OciLayout, Refused

PARTS: Final = ("operator", "extender", "device-plugin", "runtime")
SBOM: Final = "opt/kompakt/sbom.cdx.json"
_LABEL: Final = "org.opencontainers.image."
COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What an image says of how it was built."""

    name: str  # kompakt-operator
    version: str
    revision: str  # a commit in full
    base_name: str
    base_digest: str  # sha256:...
    created: str | None  # RFC 3339

    @property
    def target(self) -> str:
        """The stage of the Dockerfile."""
        return self.name.removeprefix("kompakt-")


@dataclass(frozen=True, slots=True)
class Image:
    """An image's manifest, its descriptor in the index, and its configuration."""

    layout: OciLayout
    descriptor: Json
    manifest: Json
    config: Json

    def facts(self) -> Facts:
        """What its labels say.

        Raises:
            Refused: it is none of ours, or does not name its commit or its base by digest.
        """
        labels = (self.config.get("config") or {}).get("Labels") or {}
        said = {
            key: str(labels.get(f"{_LABEL}{key}", "")) for key in ("title", "version", "revision", "base.name", "base.digest")
        }
        if said["title"].removeprefix("kompakt-") not in PARTS:
            raise Refused(f"its title is {said['title']!r}; it is none of the images of the Dockerfile")
        if not COMMIT.fullmatch(said["revision"]):
            raise Refused(f"its revision is {said['revision']!r}; build it with REVISION=$(git rev-parse HEAD)")
        if not said["base.name"] or not DIGEST.fullmatch(said["base.digest"]):
            raise Refused(
                f"its base is {said['base.name']!r} with the digest {said['base.digest']!r}; build it with BASE_DIGEST=sha256:..."
            )
        return Facts(
            name=said["title"],
            version=said["version"],
            revision=said["revision"],
            base_name=said["base.name"],
            base_digest=said["base.digest"],
            created=self.config.get("created"),
        )

    def file(self, path: str) -> bytes:
        """A file as a container sees it: that of the last layer that has it.

        Raises:
            Refused: no layer has it, or a later one removes it, or a layer cannot be read.
        """
        for layer in reversed(self.manifest["layers"]):
            try:
                with tarfile.open(self.layout.path(layer["digest"])) as tar:
                    members = {str(PurePosixPath("/", member.name).relative_to("/")): member for member in tar}
                    if path in members and (file := tar.extractfile(members[path])) is not None:
                        return file.read()
            except (OSError, EOFError, tarfile.TarError) as error:
                raise Refused(f"layer {layer['digest']} cannot be read: {error}") from None
            if any(mark in members for mark in _whiteouts(path)):
                break
        raise Refused(f"it has no /{path}")

    def sbom(self) -> Json:
        """What it lists as its contents. Raises Refused where it lists nothing."""
        try:
            found = json.loads(self.file(SBOM))
        except ValueError as error:
            raise error if isinstance(error, Refused) else Refused(f"its /{SBOM} is no JSON: {error}") from None
        if not isinstance(found, dict) or found.get("bomFormat") != "CycloneDX":
            raise Refused(f"its /{SBOM} is not CycloneDX")
        return found


def the_image(layout: OciLayout) -> Image:
    """The one image of a layout, whatever refers to it.

    Raises:
        Refused: there is none, or more than one, or an index of images by platform.
    """
    found: list[tuple[Json, Json]] = []
    for descriptor in layout.index().get("manifests", []):
        manifest = layout.document(descriptor)
        if "manifests" in manifest:
            raise Refused("it holds an index of several images; build for one platform, and with buildx --provenance=false")
        if "subject" not in manifest:
            found.append((descriptor, manifest))
    if len(found) != 1:
        raise Refused(f"it holds {len(found)} images; only a layout with one can be told of")
    ((descriptor, manifest),) = found
    return Image(layout, descriptor, manifest, layout.document(manifest.get("config", {})))


def subject_of(image: Image) -> dict[str, Any]:
    """The descriptor by which a referrer names the image."""
    return {
        "mediaType": image.descriptor.get("mediaType", MANIFEST),
        **{key: image.descriptor[key] for key in ("digest", "size")},
    }


def _whiteouts(path: str) -> list[str]:
    """The names by which a layer hides what layers below have at that path (image-spec, layer.md)."""
    place, marks = PurePosixPath(path), []
    while place.name:
        marks += [str(place.with_name(f".wh.{place.name}")), str(place.with_name(".wh..wh..opq"))]
        place = place.parent
    return marks
