"""Schedules and other triggers: what starts runs without a person."""

from __future__ import annotations

import asyncio
import os
import re
import uuid

from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.errors import NotFound
from cuebook.kernel.triggers import NAMED_TRIGGERS
from cuebook.service.service import Principal
from cuebook.service.triggers.cron import next_moment
from cuebook.service.triggers.events import EVENT_TRIGGERS
from cuebook.service.triggers.schedules import Schedule, check_times
from cuebook.service.triggers.trigger import Target, Trigger, check_trigger_name
from cuebook.surfaces.triggers import trigger_object, view_object
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body, idempotency_key
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site
from cuebook.wiring.run_request import typed_inputs

_EVERY: tuple[type[Trigger], ...] = (Schedule, *EVENT_TRIGGERS)
KINDS = {one.KIND: one for one in _EVERY}


async def all_triggers(site: Site, who: Principal, limit: int | None = None) -> list[Trigger]:
    """The triggers that this user sees: the schedules, then the others, at most so many of a kind."""
    return [one for kind in KINDS.values() for one in await site.triggers.triggers.page(kind, who, limit=limit)]


async def triggers(request: Request, site: Site, who: Principal) -> Response:
    now = site.service.clock()
    return answer({"triggers": [trigger_object(one, now) for one in await all_triggers(site, who)]})


async def trigger(request: Request, site: Site, who: Principal) -> Response:
    return await _view(site, await found(request, site, who))


async def add_schedule(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.NewSchedule)
    one = await site.library.find(asked.playbook)
    now = site.service.clock()
    check_times(asked.cron, asked.time_zone, asked.jitter, asked.catch_up, now)
    name = asked.name or re.sub(r"[^A-Za-z0-9._-]+", "-", one.id).strip("-._")[:64]
    check_trigger_name(name, "schedule")
    workspace = site.wiring.factory.workspace
    target = Target(
        await asyncio.to_thread(os.path.realpath, one.path),
        one.playbook.name,
        id=one.id,
        inputs=typed_inputs(one.playbook, asked.inputs),
        model=asked.model,
        unattended=asked.unattended,
        workspace=workspace.label or workspace.path,
    )
    made = await site.triggers.add(
        Schedule(
            tenant=who.tenant,
            name=name,
            owner=who.name,
            target=target,
            created=now,
            overlap=asked.overlap,
            cron=asked.cron,
            zone=asked.time_zone,
            next=next_moment(asked.cron, asked.time_zone, now),
            jitter=asked.jitter,
            catch_up=asked.catch_up,
        ),
        who,
    )
    return await _view(site, made, 201)


async def pause(request: Request, site: Site, who: Principal) -> Response:
    one = await found(request, site, who)
    return answer(trigger_object(await site.triggers.pause(type(one), one.name, who), site.service.clock()))


async def resume(request: Request, site: Site, who: Principal) -> Response:
    one = await found(request, site, who)
    return answer(trigger_object(await site.triggers.resume(type(one), one.name, who), site.service.clock()))


async def run(request: Request, site: Site, who: Principal) -> Response:
    """Ask for a firing now."""
    one = await found(request, site, who)
    key = f"by {who.name} {idempotency_key(request) or uuid.uuid4().hex}"
    made = await site.triggers.run(type(one), one.name, who, key)
    return answer(trigger_object(made, site.service.clock()), 202)


async def allow(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Allow)
    view = await site.triggers.allow(await found(request, site, who), who, asked.seconds, seen=asked.digest)
    return answer(view_object(view, site.service.clock()))


async def disallow(request: Request, site: Site, who: Principal) -> Response:
    await site.triggers.permissions.withdraw(await found(request, site, who), who)
    return Response(status_code=204)


async def remove(request: Request, site: Site, who: Principal) -> Response:
    one = await found(request, site, who)
    await site.triggers.remove(type(one), one.name, who)
    return Response(status_code=204)


async def found(request: Request, site: Site, who: Principal) -> Trigger:
    """The trigger that a request is about."""
    kind = KINDS.get(request.path_params["kind"])
    if kind is None:
        raise NotFound(
            f"There are no triggers of the kind '{request.path_params['kind'][:50]}'.",
            fix=f"Use {', '.join(NAMED_TRIGGERS)}.",
        )
    return await site.triggers.triggers.get(kind, request.path_params["name"], who)


async def _view(site: Site, trigger: Trigger, status: int = 200) -> Response:
    return answer(view_object(await site.triggers.view(trigger), site.service.clock()), status)
