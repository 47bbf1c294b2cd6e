"""The OpenAPI page: Swagger UI from a package, and relative addresses only.

People reach it as .../services/kompakt-explain:http/proxy/docs, so an absolute address would leave the proxy; and a closed
cluster reaches no other host.
"""

from importlib.resources import files
from typing import Final

from fastapi import FastAPI, HTTPException, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse

_FOLDER: Final = files("fastapi_swagger.resources")
_ASSETS: Final = {
    "swagger-ui-bundle.js": "application/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
OPENAPI: Final = "openapi.json"


def add_page(app: FastAPI) -> None:
    """Routes /docs and /assets/{name}; / leads to the page."""

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(status_code=307, headers={"Location": "docs"})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return get_swagger_ui_html(
            openapi_url=OPENAPI,
            title=app.title,
            swagger_js_url="assets/swagger-ui-bundle.js",
            swagger_css_url="assets/swagger-ui.css",
            swagger_favicon_url="assets/favicon-32x32.png",
            swagger_ui_parameters={"defaultModelsExpandDepth": 0, "validatorUrl": None},
        )

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in _ASSETS:
            raise HTTPException(404, f"no file {name!r}")
        return FileResponse(str(_FOLDER / name), media_type=_ASSETS[name], headers={"Cache-Control": "max-age=86400"})
