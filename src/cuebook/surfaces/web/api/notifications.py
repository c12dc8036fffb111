"""Notifications: what a person wants to get, what became of messages, and the requests that Slack makes."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.service.notifications.people import Preferences, SlackLink
from cuebook.service.service import Principal
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site


async def preferences(request: Request, site: Site, who: Principal) -> Response:
    return answer(preferences_object(await site.notifier.people.preferences(who)))


async def set_preferences(request: Request, site: Site, who: Principal) -> Response:
    """Replaces a person's preferences."""
    asked = msgspec.to_builtins(await body(request, bodies.NotificationPreferences))
    if isinstance(asked["playbooks"], str):
        asked["playbooks"] = [one.strip() for one in asked["playbooks"].split(",") if one.strip()]
    return answer(preferences_object(await site.notifier.people.change(who, asked)))


async def status(request: Request, site: Site, who: Principal) -> Response:
    return answer(msgspec.to_builtins(await site.notifier.status(who)))


async def test(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NotificationTest)
    results = await site.notifier.test(asked.channel, who, asked.to)
    found = [{"channel": name, "sent": not problem, "error": problem} for name, problem in results.items()]
    return answer({"results": found})


async def retry(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NotificationRetry)
    return answer({"messages": await site.notifier.retry(asked.channel, who)})


async def links(request: Request, site: Site, who: Principal) -> Response:
    found = await site.notifier.people.links(who, everyone=who.may("admin"))
    return answer({"links": [link_object(one) for one in found]})


async def link(request: Request, site: Site, who: Principal) -> Response:
    """Makes the Slack account that was given this code the person's own."""
    asked = await body(request, bodies.LinkCode)
    return answer(link_object(await site.notifier.people.link(asked.code, who)), 201)


async def unlink(request: Request, site: Site, who: Principal) -> Response:
    await site.notifier.people.unlink(request.path_params["account"], who)
    return Response(status_code=204)


async def slack(request: Request, site: Site, who: Principal) -> Response:
    """A request of Slack. It decides for the person who linked the Slack account, no matter who is signed in here."""
    headers, client = request.headers, request.client
    response = await site.notifier.slack.handle(
        request.path_params["channel"],
        await request.body(),
        headers.get("x-slack-request-timestamp", ""),
        headers.get("x-slack-signature", ""),
        client.host if client is not None else "",
    )
    return answer(response)


def preferences_object(found: Preferences) -> dict[str, Any]:
    names = Preferences.__struct_fields__
    return {name: msgspec.to_builtins(getattr(found, name)) for name in names}


def link_object(one: SlackLink) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(one)
    return made
