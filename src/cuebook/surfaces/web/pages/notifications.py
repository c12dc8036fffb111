"""The page on which people choose what they are notified of, and link their Slack accounts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.notices import WHAT
from cuebook.service.service import Principal
from cuebook.surfaces.web.auth.guard import waiting_for
from cuebook.surfaces.web.pages.render import page
from cuebook.surfaces.web.site import Site

_ABOUT = {
    "waiting": "a run waits",
    "failed": "a run failed",
    "ended": "a run completed or was cancelled",
    "budget": "a spending mark was passed",
    "schedule": "a schedule or another trigger needs attention",
}


async def notifications(request: Request, site: Site, who: Principal) -> Response:
    people, settings = site.notifier.people, site.notifier.settings
    personal = [one for one in settings.channels.values() if one.is_personal]
    return page(
        request,
        "notifications.html",
        waiting=await waiting_for(site, who),
        mine=await people.preferences(who),
        events=[(name, _ABOUT[name]) for name in WHAT],
        personal=personal,
        domains=sorted({domain for one in personal for domain in one.domains}),
        has_slack=any(one.kind == "slack" and one.signing_secret for one in settings.channels.values()),
        links=await people.links(who),
        sent=await site.notifier.status(who),
    )
