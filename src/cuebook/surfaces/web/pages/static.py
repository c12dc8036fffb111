"""What the server itself provides: static files, the description of the API, and its health."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from cuebook.service.insight.metrics import CONTENT_TYPE
from cuebook.service.service import Principal
from cuebook.surfaces.web.problems import not_found
from cuebook.surfaces.web.site import Site

_HERE = Path(__file__).parents[1]
_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


async def static(request: Request, site: Site, who: Principal) -> Response:
    name = request.path_params["name"]
    path = _HERE / "static" / name
    try:
        found = Path(name).name == name and path.suffix in _TYPES and path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        raise not_found("file")
    return FileResponse(path, headers={"Cache-Control": "no-cache"}, media_type=_TYPES[path.suffix])


async def openapi(request: Request, site: Site, who: Principal) -> Response:
    return FileResponse(_HERE / "openapi.yaml", media_type="application/yaml")


async def healthz(request: Request, site: Site, who: Principal) -> Response:
    return JSONResponse({"status": "ok"})


async def metrics(request: Request, site: Site, who: Principal) -> Response:
    if site.metrics is None:
        raise not_found()
    return Response(await site.metrics.text(), media_type=CONTENT_TYPE)


async def readyz(request: Request, site: Site, who: Principal) -> Response:
    reason = await site.readiness.reason()
    if reason:
        return JSONResponse({"status": "unavailable", "reason": reason}, 503)
    return JSONResponse({"status": "ok"})
