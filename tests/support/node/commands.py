"""The command line as a person runs it."""

import subprocess
import sys

from tests.support.node.world import World


def kompakt_command(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """With the cluster's kubeconfig."""
    command = [sys.executable, "-m", "kompakt_cli", *words, f"--kubeconfig={world.cluster.kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)
