"""filter, prioritize and bind over HTTP: bytes in, bytes out.

The handlers take a bare Request and give a bare Response: with pydantic models 5,000 names cost 14 ms, like this 1 ms.
"""

import logging
import time
from typing import Protocol

from fastapi import FastAPI, Request, Response

from kompakt_core.errors import InvalidInput
from kompakt_extender.metrics import Metrics
from kompakt_extender.wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    decode_args,
    decode_binding,
    encode,
)

_LOG = logging.getLogger(__name__)
_JSON = "application/json"


class Inactive(Exception):
    """This process may not decide now; the text says why."""


class Decider(Protocol):
    """Answers the verbs. Each method raises Inactive while this process may not decide."""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Which nodes can take the pod."""
        ...

    def prioritize(self, args: ExtenderArgs) -> bytes:
        """The scores as the JSON text of a HostPriorityList."""
        ...

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Choose the GPUs and bind."""
        ...


def verbs_app(decider: Decider, metrics: Metrics) -> FastAPI:
    """The three routes that kube-scheduler calls. A body we cannot read is answered 400."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    times = {verb: metrics.verb_seconds.labels(verb) for verb in ("filter", "prioritize", "bind")}

    @app.post("/filter")
    async def filter_nodes(request: Request) -> Response:
        start = time.perf_counter()
        result = decider.filter(decode_args(await request.body()))
        if result.error:
            metrics.verb_errors.labels("filter").inc()
        times["filter"].observe(time.perf_counter() - start)
        return Response(encode(result), media_type=_JSON)

    @app.post("/prioritize")
    async def prioritize_nodes(request: Request) -> Response:
        start = time.perf_counter()
        answer = decider.prioritize(decode_args(await request.body()))
        times["prioritize"].observe(time.perf_counter() - start)
        return Response(answer, media_type=_JSON)

    @app.post("/bind")
    async def bind_pod(request: Request) -> Response:
        start = time.perf_counter()
        result = await decider.bind(decode_binding(await request.body()))
        if result.error:
            metrics.verb_errors.labels("bind").inc()
        times["bind"].observe(time.perf_counter() - start)
        return Response(encode(result), media_type=_JSON)

    _answer_errors(app, metrics)
    return app


def _answer_errors(app: FastAPI, metrics: Metrics) -> None:
    """Errors as kube-scheduler understands them.

    Of a 200 answer it shows Error's text in the pod's event, of any other only the number; prioritize has no Error field.
    """

    def refuse(request: Request, status: int, error: Exception) -> Response:
        metrics.verb_errors.labels(request.url.path.strip("/")).inc()
        return Response(encode(BindingResult(error=str(error))), status_code=status, media_type=_JSON)

    @app.exception_handler(InvalidInput)
    async def unreadable(request: Request, error: InvalidInput) -> Response:
        _LOG.warning("%s: %s", request.url.path, error)
        return refuse(request, 400, error)

    @app.exception_handler(Inactive)
    async def inactive(request: Request, error: Inactive) -> Response:
        return refuse(request, 503 if request.url.path == "/prioritize" else 200, error)
