"""The one object the routes talk to: it hands every question to the running tenure, or says why there is none."""

import time
from typing import Any

from kompakt_extender.activity import Tenancy
from kompakt_extender.verbs import Inactive
from kompakt_extender.wire import BindingArgs, BindingResult, ExtenderArgs, FilterResult


class Front:
    """Answers verbs and health. Inactive until kube-scheduler beside this process holds the Lease."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.tenancy = Tenancy()

    def _require(self) -> None:
        raise Inactive(self.tenancy.why_not(self.identity, time.monotonic()))

    def filter(self, args: ExtenderArgs) -> FilterResult:
        self._require()
        raise AssertionError

    def prioritize(self, args: ExtenderArgs) -> bytes:
        self._require()
        raise AssertionError

    async def bind(self, args: BindingArgs) -> BindingResult:
        self._require()
        raise AssertionError

    @property
    def trouble(self) -> str:
        return ""

    @property
    def stuck(self) -> str:
        return ""

    def explain(self, namespace: str, job: str) -> dict[str, Any] | None:
        self._require()
        raise AssertionError
