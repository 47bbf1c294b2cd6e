"""Free ports on loopback."""

import random
import socket

# Below the kernel's range for outgoing connections (32768 and up), so that no client can take a port between the
# moment it was chosen and the moment its server listens.
LOWEST, HIGHEST = 20000, 32000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ports nobody listens on.

    Another starter could choose the same ports in the same second; starters try again with new ones when a
    program finds its port taken.
    """
    chosen: list[int] = []
    for port in random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if len(chosen) == count:
            break
        if is_free(port, host):
            chosen.append(port)
    return chosen


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
