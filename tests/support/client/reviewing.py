"""An API server that knows some tokens and rights, and counts how often it is asked."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kompakt_client.errors import Unreachable
from kompakt_client.requests import ApiRequest
from kompakt_client.reviews import READ_METRICS, Action, explaining
from kompakt_core.contract import JOB_PLURAL, TOKEN_AUDIENCE, TOPOLOGY_PLURAL

EVERYTHING = frozenset({READ_METRICS, explaining(JOB_PLURAL), explaining(TOPOLOGY_PLURAL)})


@dataclass
class Reviewing:
    """`users`: name by token; `rights`: what each may do; a right in the whole cluster is one in every namespace."""

    users: dict[str, str] = field(default_factory=lambda: {"token-of-admin": "admin"})
    rights: dict[str, set[Action]] = field(default_factory=lambda: {"admin": set(EVERYTHING)})
    audiences: tuple[str, ...] = (TOKEN_AUDIENCE,)
    down: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def json(self, request: ApiRequest) -> dict[str, Any]:
        body = request.body
        self.asked[body["kind"]] += 1
        self.bodies.append(body)
        if self.down:
            raise Unreachable("connection refused by 10.0.0.1")
        return {"status": (self._token if body["kind"] == "TokenReview" else self._access)(body["spec"])}

    def _token(self, spec: dict[str, Any]) -> dict[str, Any]:
        name = self.users.get(spec["token"])
        if name is None:
            return {"user": {}, "error": "invalid bearer token"}
        user = {"username": name, "uid": f"uid-{name}", "groups": ["system:authenticated"], "extra": {"k": ["v"]}}
        return {"authenticated": True, "user": user, "audiences": list(self.audiences)}

    def _access(self, spec: dict[str, Any]) -> dict[str, Any]:
        told = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        mine = [dict(action.attributes) for action in self.rights.get(spec["user"], ())]
        return {"allowed": told in mine or {**told, "namespace": ""} in mine}
