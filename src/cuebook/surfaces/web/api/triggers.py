"""Starts playbooks from outside: with a token that is valid for one playbook only, or by the runtime contract."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.triggers import TOKEN
from cuebook.service.contract.requests import InvalidRequest
from cuebook.service.service import Principal, Service
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import Start, body, idempotency_key
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.api.start import start
from cuebook.surfaces.web.auth.sessions import bearer_of
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site

KIND = "trigger"


async def new_token(service: Service, playbook: str, who: Principal) -> str:
    """A new token that starts this playbook, shown only this once. The previous one becomes invalid."""
    who.require("admin", "make tokens that start playbooks")
    token = secrets.token_urlsafe(32)
    body = {"digest": _digest(token), "by": who.name, "created": service.clock()}
    await service.keep(who.tenant, KIND, playbook, body)
    await service.record_act("playbook.token", playbook, who)
    return token


async def _holder(service: Service, playbook: str, token: str) -> Principal | None:
    """The principal for runs started with this token."""
    for tenant in await service.tenants(KIND):
        kept = (await service.kept(tenant, KIND)).get(playbook)
        if kept is not None and hmac.compare_digest(str(kept["digest"]), _digest(token)):
            return Principal(f"trigger.{playbook}", tenant, frozenset({"runner"}))
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


async def make_token(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    token = await new_token(site.service, one.id, who)
    return answer({"token": token, "address": f"/api/playbooks/{one.id}/trigger"}, 201)


async def remove_token(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    if await site.service.forget(who.tenant, KIND, one.id):
        await site.service.record_act("playbook.token.remove", one.id, who)
    return Response(status_code=204)


async def trigger(request: Request, site: Site, who: Principal) -> Response:
    """Start the playbook without waiting for it."""
    id = request.path_params["id"]
    holder = await _holder(site.service, id, bearer_of(request))
    if holder is None:
        raise Problem(
            401,
            "bad_token",
            "Invalid token for this playbook.",
            fix=f"`cuebook serve token {id}` creates a valid one.",
            WWW_Authenticate="Bearer",
        )
    asked = await body(request, bodies.Trigger)
    key = idempotency_key(request)
    wanted = Start(playbook=id, inputs=asked.inputs, model=asked.model_id, key=asked.key)
    row = await start(site, wanted, holder, key, TOKEN)
    return answer({"execution_id": row.id, "status": "queued"}, 202)


async def runtime(request: Request, site: Site, who: Principal) -> Response:
    """The runtime contract: a request in, an envelope out. Only a malformed request is an error."""
    strict = request.query_params.get("strict", "") in ("1", "true")
    asked = asyncio.create_task(site.runtime.handle(await request.body(), who, strict=strict))
    ending = asyncio.create_task(site.closing.wait())
    try:
        await asyncio.wait([asked, ending], return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            fix = "When the server is up again, the run continues; ask for its status."
            raise Problem(503, "ending", "The server is shutting down.", fix=fix, Retry_After="1")
        return answer(asked.result())
    except InvalidRequest as error:
        return answer({"error": error.code, "message": str(error)}, 400)
    finally:
        for task in (asked, ending):
            task.cancel()
        await asyncio.gather(asked, ending, return_exceptions=True)
