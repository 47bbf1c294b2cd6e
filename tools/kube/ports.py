"""Free ports on loopback."""

import random
import socket

# Below the kernel's range for outgoing connections (32768 and up), so that no client can take a port between the
# moment it was chosen and the moment its server listens.
LOWEST, HIGHEST = 20000, 32000


class NoFreePort(Exception):
    """Other programs listen on every port of the range; the message says which and what to do."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ports nobody listens on.

    Another starter could choose the same ports in the same second; starters try again with new ones when a
    program finds its port taken.

    Raises:
        NoFreePort: fewer are free.
    """
    chosen: list[int] = []
    for port in random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if len(chosen) == count:
            return chosen
        if is_free(port, host):
            chosen.append(port)
    raise NoFreePort(
        f"{count} free ports are needed and {host} has {len(chosen)} between {LOWEST} and {HIGHEST - 1}: "
        "end programs that listen there (`ss -ltnp` lists them)"
    )


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
