"""status.scheduling.preempt: the planner asks the operator to end one attempt of a job for another job. As values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_core.contract import timestamps


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """Attempt `attempt` is to end for the job `namespace`/`name` of that uid; both are "" where that job is of another namespace.
    `requested_at`: RFC 3339, UTC.
    """

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
        return self.message_of("job")

    def message_of(self, victim: str) -> str:
        """The same of a victim that is called so."""
        whom = f"{self.namespace}/{self.name}" if self.name else f"a job of another namespace (uid {self.uid})"
        return f"for {whom}, priority {self.priority}; this {victim} has priority {self.own_priority}"


def encode(request: PreemptRequest) -> dict[str, Any]:
    """As it stands in the status."""
    names = {"namespace": request.namespace, "name": request.name} if request.name else {}
    return {
        "attempt": request.attempt,
        "requestedAt": request.requested_at,
        "for": {**names, "uid": request.uid, "priority": request.priority},
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
    named = bool(found.namespace) is bool(found.name) and bool(found.uid)
    right = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    return found if right and named else None
