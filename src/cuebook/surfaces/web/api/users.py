"""Users, their roles and teams, and the audit of administrative acts, for admins."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cuebook.gate.roles import User
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports.admin_acts import ActRecord
from cuebook.service.audit.admin_audit import act_object
from cuebook.service.service import Principal
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site

MOST_ACTS = 1000


async def users(request: Request, site: Site, who: Principal) -> Response:
    return answer({"users": [user_object(one) for one in await site.service.users(who)]})


async def add(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NewUser)
    user, token = await site.service.add_user(asked.name, asked.roles, who, same_person=asked.same_person)
    return answer({**user_object(user), "token": token}, 201)


async def remove(request: Request, site: Site, who: Principal) -> Response:
    await site.service.remove_user(request.path_params["name"], who)
    return Response(status_code=204)


async def grant(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.UserRole)
    return answer(user_object(await site.service.grant(request.path_params["name"], [asked.role], who)))


async def revoke(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.UserRole)
    return answer(user_object(await site.service.revoke(request.path_params["name"], [asked.role], who)))


async def join(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.UserTeam)
    return answer(user_object(await site.service.join(request.path_params["name"], [asked.team], who)))


async def leave(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.UserTeam)
    return answer(user_object(await site.service.leave(request.path_params["name"], [asked.team], who)))


async def token(request: Request, site: Site, who: Principal) -> Response:
    user, made = await site.service.renew_token(request.path_params["name"], who)
    return answer({**user_object(user), "token": made}, 201)


async def link(request: Request, site: Site, who: Principal) -> Response:
    """Lets a user sign in as a subject of the identity provider."""
    asked = await body(request, bodies.UserSubject)
    if site.identities is None:
        raise BadInput("No identity provider is configured.", fix="Set oidc.issuer.")
    issuer = site.identities.settings.issuer
    return answer(user_object(await site.service.people.link(request.path_params["name"], issuer, asked.subject, who)))


async def acts(request: Request, site: Site, who: Principal) -> Response:
    """Administrative acts after a number, oldest first; or the newest."""
    found = await listed(request, site, who)
    return answer({"acts": [act_object(one) for one in found]})


async def listed(request: Request, site: Site, who: Principal) -> list[ActRecord]:
    query = request.query_params
    after, limit = _number(query.get("after", "0"), "after"), _number(query.get("limit", "100"), "limit")
    if not 1 <= limit <= MOST_ACTS:
        raise Problem(422, "bad_limit", f"`limit` must be a number from 1 to {MOST_ACTS}.")
    newest = "after" not in query
    return await site.service.admin_audit.acts(who, after=after, newest=newest, limit=limit)


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Problem(422, f"bad_{name}", f"`{name}` must be a whole number.")
    return int(text)


def user_object(user: User) -> dict[str, Any]:
    return {
        "name": user.name,
        "roles": list(user.all_roles),
        "granted": list(user.roles),
        "teams": list(user.all_teams),
        "created": user.created,
        "by": user.by,
        "issuer": user.issuer,
        "subject": user.subject,
    }
