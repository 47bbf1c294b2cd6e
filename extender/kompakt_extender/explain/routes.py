"""The routes of the explain API. Each gathers on the loop, works on a thread, and answers typed JSON or one sentence."""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from kompakt_core.errors import InvalidInput
from kompakt_extender.explain.bounded_executor import BoundedExecutor, Busy
from kompakt_extender.explain.models import (
    MAX_NODES,
    JobAnswer,
    NodeAnswer,
    NodePage,
    PodAnswer,
    Sentence,
    WhatIf,
    WhatIfAnswer,
)
from kompakt_extender.explain.queries import Queries, UnknownObject
from kompakt_extender.verbs import Inactive

PREFIX = "/v1alpha1"
_WRONG: dict[int | str, dict[str, Any]] = {
    code: {"model": Sentence, "description": text}
    for code, text in {
        400: "the question makes no sense",
        404: "there is no such object",
        413: "the body is too large",
        422: "a field is missing or of the wrong type",
        429: "too many questions at once",
        503: "this replica does not decide now; another one answers",
    }.items()
}
# DNS-1123 subdomains, the names that Kubernetes gives; more would only be looked up in vain.
Name = Annotated[str, Path(max_length=253)]
Namespace = Annotated[str, Path(max_length=63)]
After = Annotated[str, Query(max_length=253, description="the name after which to go on")]
Limit = Annotated[int, Query(ge=1, le=MAX_NODES)]


class QueriesSource(Protocol):
    """Who knows whether this process decides."""

    def queries(self) -> Queries:
        """The caches of the running active time; raises Inactive on a standby."""
        ...


def add_routes(app: FastAPI, source: QueriesSource, executor: BoundedExecutor) -> None:
    """The five questions."""

    async def answer(work: Callable[[], BaseModel]) -> Response:
        # Checked already by its types: pydantic writes the JSON on the thread as well, and FastAPI does not check it again.
        content = await executor.run(lambda: work().model_dump_json(by_alias=True))
        return Response(content, media_type="application/json")

    @app.get(f"{PREFIX}/nodes", response_model=NodePage, responses=_WRONG, tags=["explain"])
    async def nodes(after: After = "", limit: Limit = 200) -> Response:
        """Nodes by name: free GPUs, why a node cannot be used, and the best Rings that are left."""
        return await answer(source.queries().nodes(after, limit))

    @app.get(f"{PREFIX}/nodes/{{name}}", response_model=NodeAnswer, responses=_WRONG, tags=["explain"])
    async def node(name: Name) -> Response:
        """One node: its link graph, and who holds which GPU."""
        return await answer(source.queries().node(name))

    @app.post(f"{PREFIX}/what-if", response_model=WhatIfAnswer, responses=_WRONG, tags=["explain"])
    async def what_if(body: WhatIf) -> Response:
        """Which nodes could take a request now, best first, and why the others could not. Nothing is reserved."""
        return await answer(source.queries().what_if(body))

    @app.get(f"{PREFIX}/pods/{{namespace}}/{{name}}", response_model=PodAnswer, responses=_WRONG, tags=["explain"])
    async def pod(namespace: Namespace, name: Name) -> Response:
        """Why a pod is where it is and what was second best; or why it waits."""
        return await answer(source.queries().pod(namespace, name))

    @app.get(f"{PREFIX}/jobs/{{namespace}}/{{name}}", response_model=JobAnswer, responses=_WRONG, tags=["explain"])
    async def job(namespace: Namespace, name: Name) -> Response:
        """What is decided about a TrainingJob, and what nodes say to its largest worker while it waits."""
        return await answer(source.queries().job(namespace, name))

    _answer_errors(app)


def _answer_errors(app: FastAPI) -> None:
    """Each mistake as a status and one sentence."""
    for kind, status in {InvalidInput: 400, UnknownObject: 404, Busy: 429, Inactive: 503}.items():
        app.add_exception_handler(kind, _responder(status))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": "; ".join(map(_sentence, error.errors()[:5]))}, 422)


def _responder(status: int) -> Callable[[Request, Exception], Response]:
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return lambda request, error: JSONResponse({"detail": str(error)}, status, headers)


def _sentence(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error.get("loc", ())[1:]) or "the body"
    return f"{where[:200]}: {error.get('msg', 'is wrong')}"
