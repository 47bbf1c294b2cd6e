"""Image builds with buildah, in a store of our own and without a registry."""

import json
from collections.abc import Mapping
from pathlib import Path

from tools.kube.cache import cache_root
from tools.kube.command import Words, logged, output

# Where a network inspects TLS, its certificate is only in the host's bundle; the mount does not end up in the image.
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Builder:
    """buildah with its own storage folders; each call runs in a mount namespace, so a killed build leaves no mount."""

    def __init__(self, log: Path) -> None:
        self.folder = cache_root() / "build"
        self.log = log
        self._base: Words = [
            *("unshare", "--mount", "buildah", "--root", self.folder / "store", "--runroot", self.folder / "run"),
            *("--storage-driver", "overlay"),
        ]

    def images(self) -> list[str]:
        """The store's images with their tags."""
        return output([*self._base, "images", "--format", "{{.Name}}:{{.Tag}}"]).split()

    def from_folder(self, rootfs: Path, image: str) -> None:
        """An image whose only layer is `rootfs`."""
        (rootfs.parent / "Containerfile").write_text(f"FROM scratch\nCOPY {rootfs.name}/ /\n")
        self.build(rootfs.parent, image)

    def build(
        self,
        context: Path,
        image: str,
        *,
        target: str = "",
        args: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        pull: bool = False,
    ) -> None:
        """Build the Containerfile (or Dockerfile) of `context`; steps that did not change come from the store.

        Args:
            annotations: what the image's manifest says.
            pull: get a base that the store does not have from its registry.
        """
        missing = "--pull=false" if pull else "--pull-never"  # buildah's false is: only what is missing
        options: list[str | Path] = ["--isolation", "chroot", "--layers", missing, "-t", image]
        if _CERTIFICATES.exists():
            options += ["-v", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
        if target:
            options += ["--target", target]
        for name, value in (args or {}).items():
            options += ["--build-arg", f"{name}={value}"]
        for name, value in (annotations or {}).items():
            options += ["--annotation", f"{name}={value}"]
        logged([*self._base, "bud", *options, context], self.log)

    def export(self, image: str, archive: Path, *, name: str) -> None:
        """Write the image as a docker archive under another name; a half written one never gets the final name."""
        part = archive.with_suffix(".part")
        part.unlink(missing_ok=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        logged([*self._base, "push", "-q", image, f"docker-archive:{part}:{name}"], self.log)
        part.rename(archive)

    def export_layout(self, image: str, folder: Path, *, tag: str) -> None:
        """Write the image into an OCI layout under that tag."""
        logged([*self._base, "push", "-q", image, f"oci:{folder}:{tag}"], self.log)

    def digest(self, image: str) -> str:
        """The digest of an image's manifest in the store (`sha256:...`)."""
        return str(json.loads(output([*self._base, "inspect", "--type", "image", image]))["FromImageDigest"])

    def labels(self, image: str) -> dict[str, str]:
        """What an image of the store says of itself."""
        found = json.loads(output([*self._base, "inspect", "--type", "image", image]))
        return dict(found["OCIv1"]["config"].get("Labels") or {})

    def forget(self, image: str) -> None:
        """Drop an image and the layers that only it uses."""
        logged([*self._base, "rmi", "--force", image], self.log)
