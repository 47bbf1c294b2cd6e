"""Process 1 of a pid namespace: waits for orphans until it is killed. Run by path, with stdlib only."""

import os
import signal


def reap_forever() -> None:
    """Collect every child that ends; without this, ended processes of the namespace would stay as zombies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        _collect()
        signal.sigwait({signal.SIGCHLD})


def _collect() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    reap_forever()
