"""Pull an image with a containerd of its own, whose root is empty; run as root in throw-away namespaces.

usage: python -m tests.support.node.pull_image CONTAINERD_ROOT REFERENCE FILE   Prints the file of the image.
"""

import secrets
import subprocess
import sys

from tools.kube.fill_store import containerd


def main(root: str, reference: str, file: str) -> None:
    ctr = ("ctr", "-n", "k8s.io")
    # Cgroups are the host's: the container's has a name of its own, and goes with it.
    run = ("run", "--rm", "--cgroup=", reference, f"reader-{secrets.token_hex(4)}")
    with containerd(root):
        subprocess.run([*ctr, "images", "pull", "--plain-http", reference], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*ctr, *run, "cat", file], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
