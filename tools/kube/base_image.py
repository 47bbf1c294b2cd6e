"""The base of all images: a minimal Debian with Python, made by debootstrap from the distribution's own packages."""

import os
import shutil
from pathlib import Path

from tools.kube.buildah import Builder
from tools.kube.cache import cache_root, content_key
from tools.kube.command import Words, logged

SUITE = "bookworm"  # Python 3.11
PACKAGES = ("python3", "python3-venv", "python3-pip", "ca-certificates")
MIRROR = "http://deb.debian.org/debian"
# Package lists, downloads and documentation: half of the tree, and nothing a container reads.
_DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/log")


def base_image() -> str:
    """The name of the base image; its tag is the content key of what it is made from."""
    return f"localhost/kompakt-base:{content_key([SUITE, *PACKAGES, *_DROPPED, '1'])}"


def build_base(builder: Builder) -> str:
    """Make the base image unless the store has it (about 1.5 minutes, 157 MB)."""
    image = base_image()
    if image not in builder.images():
        folder = cache_root() / "base"
        shutil.rmtree(folder, ignore_errors=True)
        rootfs = _bootstrap(folder / "rootfs", builder.log)
        builder.from_folder(rootfs, image)
        shutil.rmtree(folder)
    return image


def _bootstrap(rootfs: Path, log: Path) -> Path:
    rootfs.parent.mkdir(parents=True)
    mirror = os.environ.get("KOMPAKT_DEBIAN_MIRROR", MIRROR)
    # A mount namespace of its own: a killed run leaves no /proc mounted in the tree.
    command: Words = [
        "unshare",
        "--mount",
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        SUITE,
        rootfs,
        mirror,
    ]
    logged(command, log)
    for name in _DROPPED:
        shutil.rmtree(rootfs / name)
        (rootfs / name).mkdir()
    (rootfs / "etc/resolv.conf").write_text("")  # debootstrap copies the host's
    return rootfs
