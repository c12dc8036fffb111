"""The files of a run: a list of them, and each as an attachment that no browser opens."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cuebook.gate.roles import Principal
from cuebook.service.runs import objects as run_objects
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


async def files(request: Request, site: Site, who: Principal) -> Response:
    found = await site.service.files(request.path_params["id"], who)
    return answer({"files": [run_objects.file_object(one) for one in found]})


async def file(request: Request, site: Site, who: Principal) -> Response:
    """The content of a file. Its type is never that of a page, because anyone may have written it."""
    found, pieces = await site.service.file(request.path_params["id"], request.path_params["digest"], who)
    name = _UNSAFE.sub("-", found.filename or found.name).strip("-.") or "file"
    headers = {
        "Content-Disposition": f'attachment; filename="{quote(name)}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Content-Length": str(found.size),
    }
    return StreamingResponse(pieces, 200, headers, "application/octet-stream")
