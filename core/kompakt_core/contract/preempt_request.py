"""status.scheduling.preempt: the planner asks the operator to end one attempt of a job for another job. As values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_core.contract import timestamps


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """Attempt `attempt` is to end for the job `namespace`/`name` of that uid. `requested_at`: RFC 3339, UTC."""

    attempt: int
    requested_at: str
    namespace: str
    name: str
    uid: str
    priority: int
    own_priority: int

    @property
    def message(self) -> str:
        """Why, in one sentence for people."""
        return f"for {self.namespace}/{self.name}, priority {self.priority}; this job has priority {self.own_priority}"


def encode(request: PreemptRequest) -> dict[str, Any]:
    """As it stands in the status."""
    return {
        "attempt": request.attempt,
        "requestedAt": request.requested_at,
        "for": {"namespace": request.namespace, "name": request.name, "uid": request.uid, "priority": request.priority},
        "priority": request.own_priority,
        "message": request.message,
    }


def readable(value: object) -> PreemptRequest | None:
    """None where it is missing or not as the planner writes it."""
    whom = value.get("for") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(whom, Mapping) or timestamps.seconds(value.get("requestedAt")) is None:
        return None
    found = PreemptRequest(
        attempt=value.get("attempt", 0),
        requested_at=value["requestedAt"],
        namespace=whom.get("namespace", ""),
        name=whom.get("name", ""),
        uid=whom.get("uid", ""),
        priority=whom.get("priority"),  # type: ignore[arg-type]  # looked at next
        own_priority=value.get("priority"),  # type: ignore[arg-type]
    )
    texts, numbers = (found.namespace, found.name, found.uid), (found.attempt, found.priority, found.own_priority)
    right = all(isinstance(text, str) and text for text in texts) and all(type(number) is int for number in numbers)
    return found if right else None
