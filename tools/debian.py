"""Packages of Debian and Ubuntu, installed where we may."""

import os
import shutil
from collections.abc import Iterable

from tools.kube.command import output


def may_install() -> bool:
    """Whether apt-get is there and we are root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Iterable[str]) -> None:
    """Install packages without what they only recommend.

    Raises:
        CommandFailed: apt-get did.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output(["apt-get", "update", "-qq"], env=environment)
    output(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=environment)
