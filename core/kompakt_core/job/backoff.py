"""How long a gang waits before its next attempt, and what is kept of its last restart. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.contract import timestamps

FIRST_DELAY: Final = 10
LONGEST_DELAY: Final = 300
# As kubelet does with a container: whoever ran for ten minutes starts again without a delay.
WELL_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Restart:
    """Why attempt `attempt` began; `delay` seconds after `moment` its pods may be made."""

    moment: float
    attempt: int
    reason: str
    message: str
    delay: int = 0

    @property
    def not_before(self) -> float:
        """Seconds since 1970."""
        return self.moment + self.delay


def next_delay(last: Restart | None, ran: float) -> int:
    """Seconds to wait after a failure of a gang that ran for `ran` seconds: none the first time, then doubling."""
    if last is None or ran >= WELL_SECONDS:
        return 0
    return min(max(FIRST_DELAY, 2 * last.delay), LONGEST_DELAY)


def read_restart(value: object) -> Restart | None:
    """status.lastRestart; None where it is missing or malformed."""
    if not isinstance(value, Mapping):
        return None
    moment, attempt, delay = timestamps.seconds(value.get("time")), value.get("attempt"), value.get("delaySeconds", 0)
    if moment is None or type(attempt) is not int or type(delay) is not int or not 0 <= delay <= LONGEST_DELAY:
        return None
    return Restart(moment, attempt, str(value.get("reason", "")), str(value.get("message", "")), delay)


def written(restart: Restart) -> dict[str, Any]:
    """As it stands in the status."""
    return {
        "time": timestamps.encode(restart.moment),
        "attempt": restart.attempt,
        "reason": restart.reason,
        "message": restart.message,
        "delaySeconds": restart.delay,
    }
