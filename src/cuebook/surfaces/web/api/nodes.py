"""The machines that may perform steps: pairing, naming and revoking them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.nodes.nodes import node_object
from cuebook.service.service import Principal
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site


async def nodes(request: Request, site: Site, who: Principal) -> Response:
    return answer({"nodes": [node_object(one) for one in await site.service.nodes.list(who)]})


async def add(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NodeName)
    node, token = await site.service.nodes.add(asked.name, who)
    return answer({**node_object(node), "token": token}, 201)


async def renew(request: Request, site: Site, who: Principal) -> Response:
    node, token = await site.service.nodes.renew(request.path_params["name"], who)
    return answer({**node_object(node), "token": token}, 201)


async def rename(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NodeName)
    return answer(node_object(await site.service.nodes.rename(request.path_params["name"], asked.name, who)))


async def revoke(request: Request, site: Site, who: Principal) -> Response:
    await site.service.nodes.revoke(request.path_params["name"], who)
    return Response(status_code=204)
