"""Webhooks: signed requests from other services, which fire triggers.

An unknown name, a wrong signature and a late request get the same answer, so that nobody learns which webhooks there are.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cuebook.kernel.errors import AtLimit, CuebookError, StoreError
from cuebook.service.service import Principal
from cuebook.service.triggers.events import Webhook
from cuebook.service.triggers.webhooks import LARGEST, Delivery, Forged, delivery
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.triggers")

_NOBODY = secrets.token_hex(32)
"""Signs nothing: for an unknown name, about as much is computed as for a known one."""


async def hook(request: Request, site: Site, who: Principal) -> Response:
    """Fire the trigger with this name, if the request is signed with its secret."""
    address = request.client.host if request.client is not None else ""
    body = await request.body()
    if len(body) > LARGEST:
        raise Problem(413, "too_large", f"A request to a webhook may be at most {LARGEST:,} bytes long.")
    found = await _verified(request, site, body)
    if found is None:
        if site.refusals.is_full(address):
            raise Problem(429, "too_many", "Too many requests were refused.", fix="Wait a minute.", Retry_After="60")
        site.refusals.add(address)
        raise Problem(
            401,
            "bad_signature",
            "The request is not signed for a webhook with this name, or too late.",
            WWW_Authenticate="Signature",
        )
    trigger, sent = found
    if sent.challenge:
        return JSONResponse({"challenge": sent.challenge})
    if trigger.scheme == "github" and (sent.event == "ping" or (trigger.events and sent.event not in trigger.events)):
        await site.triggers.events.ignore(trigger, sent.key)
        return answer({"state": "ignored"}, 202)
    try:
        firing = await site.triggers.events.event(trigger, sent.key, sent.payload)
    except AtLimit as error:
        raise Problem(429, "too_many", error.message, fix=error.fix, Retry_After="60") from None
    state = "ignored" if firing is None else firing.state
    if trigger.scheme != "slack":
        return answer({"state": state}, 202)
    if isinstance(sent.payload, dict) and "command" in sent.payload:  # a person typed it, and sees the answer
        return answer({"response_type": "ephemeral", "text": _TYPED.get(state, f"Cuebook: {state}.")})
    return answer({"state": state})  # Slack takes only 200 for an acknowledgement


_TYPED = {
    "requested": "Cuebook starts a run.",
    "ignored": "Cuebook ignored this: it was seen before, or is not what this trigger waits for.",
    "skipped": "Cuebook starts nothing now: this trigger is paused or suspended.",
    "failed": "Cuebook could not start a run. The history of this trigger says why.",
}


async def _verified(request: Request, site: Site, body: bytes) -> tuple[Webhook, Delivery] | None:
    """The webhook whose secret signed the request. Several tenants may have one with this name."""
    headers, now = dict(request.headers), site.service.clock()
    for trigger in await site.triggers.webhooks(request.path_params["name"]):
        secret = await _secret(site, trigger)
        with suppress(Forged):
            return trigger, delivery(trigger.scheme, secret, headers, body, now)
    with suppress(Forged, CuebookError):
        delivery("github", _NOBODY, headers, body, now)
    return None


async def _secret(site: Site, trigger: Webhook) -> str:
    """The secret of a webhook; if it is not to be had, one that signs nothing."""
    try:
        return await site.triggers.secret(trigger)
    except StoreError:
        raise
    except CuebookError as error:
        log_event(log, "webhook.unreadable", logging.WARNING, trigger=trigger.trigger, code=error.code)
        return _NOBODY
