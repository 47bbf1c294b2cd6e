"""filter, prioritize and bind over HTTP: bytes in, bytes out.

The handlers take a bare Request and give a bare Response: with pydantic models 5,000 names cost 14 ms, like this 1 ms.
Whatever is posted is answered, and counted where it cannot be served; nothing that is posted ends the process.
"""

import logging
import time
from typing import Protocol

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Reason, Rejection
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.rejections import FilterVerdict, binding_result, filter_result
from kompakt_extender.wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    decode_args,
    decode_binding,
    encode,
    encode_filtered,
)

_LOG = logging.getLogger(__name__)
_JSON = "application/json"
VERBS = ("filter", "prioritize", "bind")
# kube-scheduler without nodeCacheCapable posts whole nodes: 5,000 of 14 KB are 70 MB.
MAX_BODY_BYTES = 128 << 20


class TooLarge(Exception):
    """The body is longer than any that kube-scheduler sends."""


class Inactive(Exception):
    """This process may not decide now; the text says why."""


class Decider(Protocol):
    """Answers the verbs. Each method raises Inactive while this process may not decide."""

    async def filter(self, args: ExtenderArgs) -> FilterVerdict:
        """Which nodes can take the pod; of one with custom edges that may take a while."""
        ...

    def prioritize(self, args: ExtenderArgs) -> bytes:
        """The scores as the JSON text of a HostPriorityList."""
        ...

    async def bind(self, args: BindingArgs) -> Rejection | None:
        """Choose the GPUs and bind; None: bound."""
        ...


def verbs_app(decider: Decider, metrics: ExtenderMetrics) -> FastAPI:
    """The three routes that kube-scheduler calls. A body we cannot read is answered 400."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    times = {verb: metrics.verb_seconds.labels(verb) for verb in VERBS}

    async def filter_nodes(request: Request) -> Response:
        start = time.perf_counter()
        args = decode_args(await body_of(request))
        verdict = await decider.filter(args)
        _count_rejections(metrics, verdict)
        times["filter"].observe(time.perf_counter() - start)
        return Response(encode_filtered(args, filter_result(verdict)), media_type=_JSON)

    async def prioritize_nodes(request: Request) -> Response:
        start = time.perf_counter()
        answer = decider.prioritize(decode_args(await body_of(request)))
        times["prioritize"].observe(time.perf_counter() - start)
        return Response(answer, media_type=_JSON)

    async def bind_pod(request: Request) -> Response:
        start = time.perf_counter()
        rejection = await decider.bind(decode_binding(await body_of(request)))
        if rejection is not None:
            metrics.verb_errors.labels("bind").inc()
            metrics.rejections.labels("bind", rejection.reason.value).inc()
        times["bind"].observe(time.perf_counter() - start)
        return Response(encode(binding_result(rejection)), media_type=_JSON)

    # Plain routes: what FastAPI's own do beyond them (parameters, dependencies, models) nobody uses here, and it takes time.
    for path, handler in (("/filter", filter_nodes), ("/prioritize", prioritize_nodes), ("/bind", bind_pod)):
        app.add_route(path, handler, methods=["POST"])
    _answer_errors(app, metrics)
    return app


async def body_of(request: Request) -> bytes:
    """The whole body. Raises TooLarge as soon as that is known, InvalidInput when the sender goes away within it."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise TooLarge
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise TooLarge
            parts.append(part)
    except ClientDisconnect as error:
        raise InvalidInput("the connection was closed within the body") from error
    return b"".join(parts)


def _count_rejections(metrics: ExtenderMetrics, verdict: FilterVerdict) -> None:
    """Nodes rejected, by reason. Those that a plan does not name say nothing about the cluster."""
    for reason, nodes in verdict.reasons.items():
        if reason != Reason.NOT_PLANNED:
            metrics.rejections.labels("filter", reason).inc(nodes)


def _answer_errors(app: FastAPI, metrics: ExtenderMetrics) -> None:
    """Errors as kube-scheduler understands them.

    Of a 200 answer it shows Error's text in the pod's event, of any other only the number; prioritize has no Error field.
    """

    def refuse(request: Request, status: int, text: str) -> Response:
        verb = request.url.path.strip("/")
        metrics.verb_errors.labels(verb if verb in VERBS else "unknown").inc()
        return Response(encode(BindingResult(error=text)), status_code=status, media_type=_JSON)

    @app.exception_handler(InvalidInput)
    async def unreadable(request: Request, error: InvalidInput) -> Response:
        _LOG.warning("%s: %s", request.url.path, error)
        return refuse(request, 400, str(error))

    @app.exception_handler(TooLarge)
    async def too_large(request: Request, error: TooLarge) -> Response:
        return refuse(request, 413, f"the body is longer than {MAX_BODY_BYTES >> 20} MiB")

    @app.exception_handler(Inactive)
    async def inactive(request: Request, error: Inactive) -> Response:
        return refuse(request, 503 if request.url.path == "/prioritize" else 200, str(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        wrong = f"{request.method} {request.url.path[:80]}"
        return refuse(request, error.status_code, f"{wrong} is not known; right would be POST /filter, /prioritize or /bind")

    @app.exception_handler(Exception)
    async def ours(request: Request, error: Exception) -> Response:
        return refuse(request, 500, "an error of kompakt's extender; its log says more")  # uvicorn logs it
