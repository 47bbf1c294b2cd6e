"""The routes of the explain API. Each asks first whether it may answer, gathers on the loop and works on a thread.

Answers are typed JSON, or one sentence.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Protocol

from fastapi import FastAPI, Path, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyHeader
from pydantic import BaseModel

from kompakt_client.errors import ApiError, NotFound
from kompakt_client.reviews import AccessRefused
from kompakt_core.contract import TOKEN_AUDIENCE, TOKEN_HEADER
from kompakt_core.errors import InvalidInput
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.explain.bounded_executor import BoundedExecutor, Busy
from kompakt_extender.explain.models import (
    MAX_NODES,
    JobAnswer,
    JobLife,
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
        401: "no token, or none that the API server knows",
        403: "whoever asks may not be told of that namespace, or of nodes",
        404: "there is no such object",
        413: "the body is too large",
        422: "a field is missing or of the wrong type",
        429: "too many questions at once",
        503: "this replica does not decide now, and another one answers; or the API server does not say who asks",
    }.items()
}
# For the page, so that it asks for a token and sends it; who it is from is AccessGuard's to find out.
_TOKEN: Final = APIKeyHeader(
    name=TOKEN_HEADER, auto_error=False, description=f"a service account's token of audience {TOKEN_AUDIENCE}"
)
# DNS-1123 subdomains, the names that Kubernetes gives; more would only be looked up in vain.
Name = Annotated[str, Path(max_length=253)]
Namespace = Annotated[str, Path(max_length=63)]
After = Annotated[str, Query(max_length=253, description="the name after which to go on")]
Limit = Annotated[int, Query(ge=1, le=MAX_NODES)]
Holders = Annotated[bool, Query(description="whether to name the pods that have GPUs there")]


class QueriesSource(Protocol):
    """Who knows whether this process decides."""

    def queries(self) -> Queries:
        """The caches of the running active time; raises Inactive on a standby."""
        ...


def add_routes(app: FastAPI, source: QueriesSource, executor: BoundedExecutor, guard: AccessGuard) -> None:
    """The questions, each with one answer."""
    shared: dict[str, Any] = {"responses": _WRONG, "tags": ["explain"], "dependencies": [Security(_TOKEN)]}

    async def answer(work: Callable[[], BaseModel]) -> Response:
        # Checked already by its types: pydantic writes the JSON on the thread as well, and FastAPI does not check it again.
        content = await executor.run(lambda: work().model_dump_json(by_alias=True))
        return Response(content, media_type="application/json")

    @app.get(f"{PREFIX}/nodes", response_model=NodePage, **shared)
    async def nodes(request: Request, after: After = "", limit: Limit = 200, holders: Holders = False) -> Response:
        """Nodes by name: free GPUs, why a node cannot be used, and the best Rings that are left.

        `holders` adds the pods that have GPUs there, of namespaces that are not yours only by uid; then at most 200 nodes a page.
        """
        caller = await guard.to_nodes(request)
        found = source.queries().nodes(after, limit, holders=holders)
        return await answer(lambda: guard.page_without_strangers(found(), caller) if holders else found())

    @app.get(f"{PREFIX}/nodes/{{name}}", response_model=NodeAnswer, **shared)
    async def node(request: Request, name: Name) -> Response:
        """One node: its link graph, and who holds which GPU; of pods in namespaces that are not yours only the uid."""
        caller = await guard.to_nodes(request)
        found = source.queries().node(name)
        return await answer(lambda: guard.without_strangers(found(), caller))

    @app.post(f"{PREFIX}/what-if", response_model=WhatIfAnswer, **shared)
    async def what_if(request: Request, body: WhatIf) -> Response:
        """Which nodes could take a request now, best first, and why the others could not. Nothing is reserved."""
        await guard.to_nodes(request)
        return await answer(source.queries().what_if(body))

    @app.get(f"{PREFIX}/pods/{{namespace}}/{{name}}", response_model=PodAnswer, **shared)
    async def pod(request: Request, namespace: Namespace, name: Name) -> Response:
        """Why a pod is where it is and what was second best; or why it waits."""
        await guard.to_namespace(request, namespace)
        return await answer(source.queries().pod(namespace, name))

    @app.get(f"{PREFIX}/jobs/{{namespace}}/{{name}}", response_model=JobAnswer, **shared)
    async def job(request: Request, namespace: Namespace, name: Name) -> Response:
        """What is decided about a TrainingJob, and what nodes say to its largest worker while it waits."""
        await guard.to_namespace(request, namespace)
        return await answer(source.queries().job(namespace, name))

    @app.get(f"{PREFIX}/jobs/{{namespace}}/{{name}}/life", response_model=JobLife, **shared)
    async def life(request: Request, namespace: Namespace, name: Name) -> Response:
        """What the operator tells of a TrainingJob: attempts, conditions with their moments, progress, compression."""
        await guard.to_namespace(request, namespace)
        return await answer(source.queries().life(namespace, name))

    @app.get(f"{PREFIX}/gangs/{{namespace}}/{{name}}", response_model=JobAnswer, **shared)
    async def gang(request: Request, namespace: Namespace, name: Name) -> Response:
        """The same of a gang of pods that others made: those with its label kompakt.dev/gang."""
        await guard.to_namespace(request, namespace)
        return await answer(source.queries().gang(namespace, name))

    _answer_errors(app)


def _answer_errors(app: FastAPI) -> None:
    """Each mistake as a status and one sentence."""
    for kind, status in {InvalidInput: 400, UnknownObject: 404, Busy: 429, Inactive: 503}.items():
        app.add_exception_handler(kind, _responder(status))

    @app.exception_handler(AccessRefused)
    async def refused(request: Request, error: AccessRefused) -> Response:
        return _responder(error.status)(request, error)

    @app.exception_handler(ApiError)
    async def unread(request: Request, error: ApiError) -> Response:
        """An object of the API server that an answer is made of: gone, or it does not answer."""
        return _responder(404 if isinstance(error, NotFound) else 503)(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": "; ".join(map(_sentence, error.errors()[:5]))}, 422)


def _responder(status: int) -> Callable[[Request, Exception], Response]:
    headers = {"Retry-After": "1"} if status in (429, 503) else {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return lambda request, error: JSONResponse({"detail": str(error)}, status, headers)


def _sentence(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error.get("loc", ())[1:]) or "the body"
    return f"{where[:200]}: {error.get('msg', 'is wrong')}"
