"""The command line as a person runs it."""

import os
import subprocess
import sys

from tests.support.node.world import World


def kompakt_command(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """With the cluster's kubeconfig."""
    command = [sys.executable, "-m", "kompakt_cli", *words, f"--kubeconfig={world.cluster.kubeconfig}"]
    # GNU readline, which pytest loads, exports COLUMNS=80 past os.environ; a command in a pipe keeps to that and cuts its tables.
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
