"""The pages of admins: users with their roles and teams, and the audit of administrative acts."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.gate.roles import MEANING
from cuebook.service.service import Principal
from cuebook.surfaces.web.auth.guard import waiting_for
from cuebook.surfaces.web.pages.render import page
from cuebook.surfaces.web.site import Site

_LONGEST = 300


async def users(request: Request, site: Site, who: Principal) -> Response:
    return page(
        request,
        "users.html",
        waiting=await waiting_for(site, who),
        users=sorted(await site.service.users(who), key=lambda one: one.name.lower()),
        meaning=MEANING,
        rule=site.service.visibility.rule,
        provider="" if site.identities is None else site.identities.settings.label,
    )


async def audit(request: Request, site: Site, who: Principal) -> Response:
    """The newest acts, or those before a number."""
    before = request.query_params.get("before", "")
    newest = await site.service.admin_audit.acts(who, newest=True, limit=1)
    last = newest[-1].seq if newest else 0
    end = min(int(before), last + 1) if before.isascii() and before.isdigit() and len(before) < 10 else last + 1
    first = max(0, end - 1 - _SHOWN)
    shown = [one for one in await site.service.admin_audit.acts(who, after=first, limit=_SHOWN) if one.seq < end]
    check = await site.service.admin_audit.verify(who) if "verify" in request.query_params else None
    acts = [(one.seq, one.act, _words(msgspec.to_builtins(one.act.details))) for one in reversed(shown)]
    older = acts[-1][0] if acts and acts[-1][0] > 1 else 0
    return page(
        request,
        "audit.html",
        waiting=await waiting_for(site, who),
        acts=acts,
        older=older,
        check=check,
        last=last,
        newest=end > last,
    )


_SHOWN = 100
"""Acts on a page, newest first."""


def _words(details: dict[str, object]) -> str:
    """The details of an act on one line."""
    text = ", ".join(f"{name} {_value(value)}" for name, value in details.items() if value not in ("", None, [], {}))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_value(one)}" for name, one in value.items()) + ")"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return str(value)
