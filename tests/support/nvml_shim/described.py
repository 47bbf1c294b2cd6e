"""A machine as the shim reads it: one fact a line. Standard library only: it also runs where nothing of ours is installed."""

from dataclasses import dataclass, field
from typing import Any

import pynvml

ALL_F = "FFFFFFFF:FF:FF.0"


@dataclass
class Described:
    """A machine that tests may change before (or while) NVML reads it."""

    driver: str
    gpus: list[dict[str, Any]]
    links: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)  # by GPU and lane
    pairs: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    fabrics: dict[int, dict[str, Any]] = field(default_factory=dict)
    fails: list[tuple[str, int, int, int]] = field(default_factory=list)

    def fail(self, function: str, code: int, gpu: int = -1, link: int = -1) -> None:
        """Lets a function answer with an error, of one GPU or lane or of all; function * is every one."""
        self.fails.append((function, gpu, link, code))

    def lose(self, gpu: int) -> None:
        """Lets a GPU fall off the bus."""
        self.fail("*", pynvml.NVML_ERROR_GPU_IS_LOST, gpu)

    def text(self) -> str:
        """As the shim reads it."""
        lines = [f"driver {self.driver}"]
        lines += [f"gpu {i} {_words(gpu)}" for i, gpu in enumerate(self.gpus)]
        lines += [f"link {gpu} {lane} {_words(link)}" for (gpu, lane), link in self.links.items()]
        lines += [f"pair {a} {b} {_words(pair)}" for (a, b), pair in self.pairs.items()]
        lines += [f"fabric {gpu} {_words(fabric)}" for gpu, fabric in self.fabrics.items()]
        lines += ["fail {} {} {} {}".format(*fail) for fail in self.fails]
        return "\n".join(lines) + "\n"


def _words(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={str(value).replace(' ', '_')}" for key, value in values.items() if value is not None)
