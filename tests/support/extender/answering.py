"""What a deciding process may be made to do in tests."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any


def told() -> Callable[[Any], Any]:
    """Does what it is told, and remembers what it was asked before."""
    before: list[Any] = []

    def answer(argument: Any) -> Any:
        match argument:
            case ("sleep", seconds):
                time.sleep(seconds)
            case ("die",):
                os.kill(os.getpid(), signal.SIGKILL)
            case ("raise", text):
                raise ValueError(text)
            case ("print", text):
                print(text, flush=True)
            case ("pid",):
                return os.getpid()
            case ("niceness",):
                with open("/proc/self/oom_score_adj", encoding="ascii") as file:
                    return os.nice(0), int(file.read())
        before.append(argument)
        return list(before)

    return answer


def broken() -> Callable[[Any], Any]:
    """Does not start."""
    raise RuntimeError("broken at the start")
