"""Starting one playbook from outside: a token that is good for it and for nothing else; and the runtime contract."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.ports import Store
from cuebook.requests import InvalidRequest
from cuebook.service import Principal
from cuebook.surfaces.web import bodies
from cuebook.surfaces.web.answers import answer
from cuebook.surfaces.web.bodies import Start, body, idempotency_key
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.sessions import bearer_of
from cuebook.surfaces.web.site import Site
from cuebook.surfaces.web.starting import start

KIND = "trigger"


async def new_token(store: Store, playbook: str, who: Principal, now: float) -> str:
    """A token for this playbook, shown only now. The one before it is good no more."""
    who.require("admin", "make tokens that start playbooks")
    token = secrets.token_urlsafe(32)
    await store.keep(who.tenant, KIND, playbook, {"digest": _digest(token), "by": who.name, "created": now})
    return token


async def _holder(store: Store, playbook: str, token: str) -> Principal | None:
    """On whose behalf a run is started with this token."""
    for tenant in await store.tenants(KIND):
        kept = (await store.kept(tenant, KIND)).get(playbook)
        if kept is not None and hmac.compare_digest(str(kept["digest"]), _digest(token)):
            return Principal(f"trigger.{playbook}", tenant, frozenset({"runner"}))
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


async def make_token(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    token = await new_token(site.service.store, one.id, who, site.service.engine.clock())
    return answer({"token": token, "address": f"/api/playbooks/{one.id}/trigger"}, 201)


async def remove_token(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    await site.service.store.forget(who.tenant, KIND, one.id)
    return Response(status_code=204)


async def trigger(request: Request, site: Site, who: Principal) -> Response:
    """Starts the playbook and does not wait for it."""
    id = request.path_params["id"]
    holder = await _holder(site.service.store, id, bearer_of(request))
    if holder is None:
        raise Problem(
            401,
            "bad_token",
            "This token does not start this playbook.",
            fix=f"`cuebook serve token {id}` makes one that does.",
            WWW_Authenticate="Bearer",
        )
    asked = await body(request, bodies.Trigger)
    key = idempotency_key(request)
    wanted = Start(playbook=id, inputs=asked.inputs, model=asked.model_id, key=asked.key)
    row = await start(site, wanted, holder, key)
    return answer({"execution_id": row.id, "status": "queued"}, 202)


async def runtime(request: Request, site: Site, who: Principal) -> Response:
    """The runtime contract: a request in, an envelope out. Only what is no request at all is an error."""
    strict = request.query_params.get("strict", "") in ("1", "true")
    asked = asyncio.create_task(site.runtime.handle(await request.body(), who, strict=strict))
    ending = asyncio.create_task(site.closing.wait())
    try:
        await asyncio.wait([asked, ending], return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            fix = "Ask for its status when it is served again: what was begun goes on then."
            raise Problem(503, "ending", "The server ends.", fix=fix, Retry_After="1")
        return answer(asked.result())
    except InvalidRequest as error:
        return answer({"error": error.code, "message": str(error)}, 400)
    finally:
        for task in (asked, ending):
            task.cancel()
        await asyncio.gather(asked, ending, return_exceptions=True)
