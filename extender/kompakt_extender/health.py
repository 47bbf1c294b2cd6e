"""Health, metrics and the read-only explain API, for probes, Prometheus and people."""

from typing import Any, Protocol

from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kompakt_extender.metrics import Metrics
from kompakt_extender.verbs import Inactive


class Explainer(Protocol):
    """What the health routes ask."""

    @property
    def trouble(self) -> str:
        """Why this process is neither deciding nor a standby that could take over; empty when all is well."""
        ...

    @property
    def stuck(self) -> str:
        """Why this process must be restarted; empty when all is well."""
        ...

    def explain(self, namespace: str, job: str) -> dict[str, Any] | None:
        """What is known of a job; None where there is no such job. Raises Inactive on a standby."""
        ...


def health_app(explainer: Explainer, metrics: Metrics) -> FastAPI:
    """Routes /healthz, /readyz, /metrics and /explain/{namespace}/{job}."""
    app = FastAPI(title="kompakt: why a job waits, or why it is where it is", version="v1alpha1")

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return _verdict(explainer.stuck)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        return _verdict(explainer.trouble)

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/explain/{namespace}/{job}")
    async def explain(namespace: str, job: str) -> dict[str, Any]:
        try:
            found = explainer.explain(namespace, job)
        except Inactive as error:
            raise HTTPException(503, str(error)) from error
        if found is None:
            raise HTTPException(404, f"no TrainingJob {namespace}/{job}")
        return found

    return app


def _verdict(trouble: str) -> Response:
    return Response(trouble or "ok", status_code=503 if trouble else 200, media_type="text/plain")
