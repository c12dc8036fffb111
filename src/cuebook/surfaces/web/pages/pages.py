"""The pages of the web app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cuebook.dialects.playbook import recorded
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service.runs.lists import LISTED
from cuebook.service.runs.objects import INTERRUPTED
from cuebook.service.service import PYTHON, Principal
from cuebook.service.triggers.schedules import Schedule
from cuebook.surfaces.triggers import OVERLAP, denied_lines, local_times, state_of, target_lines, time_lines, when
from cuebook.surfaces.web import problems
from cuebook.surfaces.web.api import library as catalog
from cuebook.surfaces.web.api import runs as rest
from cuebook.surfaces.web.api import schedules as rest_schedules
from cuebook.surfaces.web.api.bodies import fields, idempotency_key, pairs
from cuebook.surfaces.web.api.start import start
from cuebook.surfaces.web.auth import oidc
from cuebook.surfaces.web.auth.access_log import sign_in_refused, signed_in, signed_out
from cuebook.surfaces.web.auth.guard import ANONYMOUS, waiting_for, wants_json
from cuebook.surfaces.web.auth.redirect import HOME, safe_path
from cuebook.surfaces.web.drawing import layout as drawing
from cuebook.surfaces.web.live.interrupted import interrupted
from cuebook.surfaces.web.live.watch import opened
from cuebook.surfaces.web.pages.preflight import before_run, costs_of, pauses_of, start_of
from cuebook.surfaces.web.pages.render import page
from cuebook.surfaces.web.pages.tiles import Tile, findings, grave
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site
from cuebook.wiring.preview import terms_by_model

HISTORY = 100
"""Number of runs on a page, newest first."""
FILTERS = ("search", "status", "playbook", "owner", "trigger", "since", "until", "name")
_CHOSEN = {"name": "file", "owner": "started by", "trigger": "triggered by", "since": "since", "until": "until"}
"""The filters that have no field on the page, in words."""
WAITS = 200
"""Number of waits on a page, oldest first."""
SCHEDULES = 100
"""Number of schedules and triggers on their page."""
_KEPT = 300
"""Number of playbooks whose findings are cached."""
_DIGITS = 9
"""Maximum number of digits in a record number."""
_WIDE = 600
"""Width above which a drawing gets more than half of its page."""
_OTHERS = 10
"""Number of runs that a run's page offers for comparison."""


async def _page(request: Request, site: Site, who: Principal, template: str, **values: Any) -> Response:
    """A page for a signed-in user, with the number of things in their inbox."""
    return page(request, template, waiting=await waiting_for(site, who), **values)


# --- playbooks ---


async def library(request: Request, site: Site, who: Principal) -> Response:
    q = request.query_params.get("q", "").strip()
    rows = await site.service.runs(limit=rest.MOST_RUNS, who=who)
    shelf = await site.library.read()
    books = await site.histories.playbooks(rows, shelf)
    last: dict[str, RunRow] = {}
    for row in rows:
        last.setdefault(books.get(row.id, ""), row)
    left = await interrupted(site, last.values(), who)
    faces, whole = await site.faces.of(shelf)
    fitting = [face for face in faces if all(word in face.words for word in q.lower().split())]
    tiles = []
    for face in fitting:
        run = last.get(face.listed.id)
        tiles.append(Tile(face, run, "" if run is None else INTERRUPTED if run.id in left else run.status))
    shown: dict[str, Any] = {
        "found": tiles,
        "q": q,
        "broken": shelf.broken,
        "folders": site.library.folders,
        "reading": not whole,
    }
    waiting = await waiting_for(site, who)
    # In a thread: thousands of tiles take a while.
    return await asyncio.to_thread(page, request, "library.html", waiting=waiting, **shown)


async def to_library(request: Request, site: Site, who: Principal) -> Response:
    """Redirect to the library, which is the home page."""
    return RedirectResponse(HOME, 303)


async def playbook(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    summary = one.summary
    layout = drawing.laid_out(one.drawing)
    drawn = drawing.picture(layout, f"The steps of {one.title}") if layout.drawing.boxes else Markup("")
    rows = await site.histories.of(one, limit=HISTORY, who=who)
    return await _page(
        request,
        site,
        who,
        "playbook.html",
        one=one,
        summary=summary,
        drawing=drawn,
        is_wide=layout.wide > _WIDE,
        findings=await asyncio.to_thread(findings, one.text, str(one.path)),
        before=(await before_run(site, one, who)).overview,
        rows=rows,
        left=await interrupted(site, rows, who),
        text=one.text,
    )


async def preflight(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    usable = await asyncio.to_thread(catalog.usable_models, site)
    names: list[str] = usable["models"]
    rows = await site.histories.of(one, limit=HISTORY, who=who)
    default = usable["default"] if usable["default"] in names else next(iter(names), "")
    before = await before_run(site, one, who, default if one.needs_model else "")
    costs = await asyncio.to_thread(costs_of, before.explained, rows, names, terms_by_model(site.wiring))
    models = [{"name": name, "words": costs.by_model[name]} for name in names]
    return await _page(
        request,
        site,
        who,
        "preflight.html",
        one=one,
        models=models,
        groups=[_group(provider, models) for provider in usable["providers"]],
        default=default,
        pauses=pauses_of(one.playbook),
        alternatives=one.summary.alternatives,
        findings=grave(await asyncio.to_thread(findings, one.text, str(one.path))),
        estimate=costs,
        before=before.overview,
    )


async def begin(request: Request, site: Site, who: Principal) -> Response:
    """Starts a run from the form as a browser without JavaScript sends it."""
    asked = start_of(request.path_params["id"], await pairs(request))
    row = await start(site, asked, who, idempotency_key(request))
    return RedirectResponse(f"/runs/{row.id}", 303)


def _group(provider: dict[str, Any], models: list[dict[str, str]]) -> dict[str, Any]:
    """The models of one provider, and a note if they are not known."""
    name = provider["name"]
    own = [model for model in models if model["name"].partition("/")[0] == name]
    if not provider["usable"]:
        note = provider["reason"]
    elif provider["listing"]:
        note = f"{name} {provider['listing']}: type the name of a model."
    else:
        note = "" if own else f"{name} offers no model for text."
    return {"provider": name, "models": own, "note": note}


# --- runs ---


async def _titles(site: Site, rows: Iterable[RunRow]) -> dict[str, str]:
    """The titles of the runs' playbooks, by run id, wherever the runs were started."""
    texts = [(row, await site.service.playbook_text(row)) for row in rows]
    return await asyncio.to_thread(lambda: {row.id: _title(row.dialect, text, row.name) for row, text in texts})


@lru_cache(maxsize=_KEPT)
def _title(dialect: str, text: str, name: str) -> str:
    try:
        return recorded(dialect, text, name).title
    except CuebookError:
        return name


async def runs(request: Request, site: Site, who: Principal) -> Response:
    query = request.query_params
    left = frozenset(row.id for row in await site.worker.interrupted(who))
    shown = await rest.page_of_runs(request, site, who, left, HISTORY)
    older = urlencode({**query, "cursor": shown.next}) if shown.next else ""
    kept = {name: query[name] for name in FILTERS if query.get(name)}
    return await _page(
        request,
        site,
        who,
        "runs.html",
        rows=shown.rows,
        left=left,
        titles=await _titles(site, shown.rows),
        listed=(await site.library.read()).listed,
        asked={name: query.get(name, "") for name in FILTERS},
        filtered=bool(kept),
        chosen=[
            (words, kept[name], urlencode({one: value for one, value in kept.items() if one != name}))
            for name, words in _CHOSEN.items()
            if name in kept
        ],
        older=older,
        newest="cursor" in query,
        statuses=LISTED,
    )


async def run(request: Request, site: Site, who: Principal) -> Response:
    row = await site.service.get(request.path_params["id"], who)
    seen = await opened(site, row)
    listed = (await site.histories.playbooks([row])).get(row.id, "")
    others = await _others(site, row, listed, who)
    models = (await asyncio.to_thread(catalog.usable_models, site, 0))["models"]
    return await _page(
        request,
        site,
        who,
        "run.html",
        run=seen.run,
        tails=seen.tails,
        after=seen.after,
        panels=Markup(seen.panels.others(seen.run)),
        drawing=Markup(seen.panels.aside(seen.run)),
        now=site.service.clock(),
        types=seen.panels.projection.types,
        listed=listed,
        others=others,
        left=await interrupted(site, others, who),
        models=models,
        elsewhere="" if seen.run.ended else await site.worker.other_workspace(row.id),
        children=await site.service.children(row.id, who),
        later=await site.service.superseded_by(row, who),
        editable=not row.caller and row.dialect != PYTHON,
        text=await site.service.playbook_text(row),
    )


async def _others(site: Site, row: RunRow, playbook: str, who: Principal) -> list[RunRow]:
    """Runs to compare with: of the same playbook, or else of the same text."""
    if playbook:
        found = await site.histories.of(await site.library.find(playbook), limit=_OTHERS + 1, who=who)
    else:
        named = await site.service.runs(name=row.name, limit=HISTORY, who=who)
        found = [one for one in named if one.playbook == row.playbook]
    return [one for one in found if one.id != row.id][:_OTHERS]


async def diff(request: Request, site: Site, who: Principal) -> Response:
    found = await rest.compared(site, request.path_params["id"], request.path_params["other"], who)
    shared = {name: found[name] for name in ("same", "runs", "steps", "totals")}
    titles = await _titles(site, [await site.service.get(one["run"], who) for one in found["runs"]])
    return await _page(request, site, who, "diff.html", differs=found, titles=titles, **shared)


async def sent(request: Request, site: Site, who: Principal) -> Response:
    """Everything that was sent to a model in one call."""
    row = await site.service.get(request.path_params["id"], who)
    record = request.path_params["record"]
    if not record.isdecimal() or len(record) > _DIGITS:
        raise problems.not_found()
    pieces = await site.service.sent(row.id, int(record), who)
    titles = await _titles(site, [row])
    return await _page(request, site, who, "sent.html", pieces=pieces, run=row, title=titles.get(row.id, row.id))


async def inbox(request: Request, site: Site, who: Principal) -> Response:
    found = await rest.waiting(request, site, who, WAITS)
    runs = [await site.service.get(id, who) for id in {wait.run for wait in found.waits}]
    return page(
        request,
        "inbox.html",
        found=found,
        titles=await _titles(site, [*runs, *found.left]),
        here={row.id for row in found.left if await site.worker.can_drive(row.id)},
        elsewhere={row.id: await site.worker.other_workspace(row.id) for row in runs},
        waiting=found.total,
    )


async def wait(request: Request, site: Site, who: Principal) -> Response:
    """Everything that an approver decides about, including parts that are too long for a run's page."""
    one = await site.service.waiting(request.path_params["id"], who)
    row = await site.service.get(one.run, who)
    titles = await _titles(site, [row])
    return await _page(
        request, site, who, "wait.html", wait=site.service.in_full(one), title=titles.get(row.id, row.id)
    )


# --- settings ---


async def connections(request: Request, site: Site, who: Principal) -> Response:
    return await _page(request, site, who, "connections.html", **await asyncio.to_thread(catalog.connected, site))


async def schedules(request: Request, site: Site, who: Principal) -> Response:
    """The schedules and other triggers."""
    found = (await rest_schedules.all_triggers(site, who, SCHEDULES))[:SCHEDULES]
    now = site.service.clock()
    shown = [(one, when(one), local_times(one, now, 1), state_of(one)) for one in found]
    mine = {one.trigger for one in found if one.owner == who.name or who.may("admin")}
    return await _page(request, site, who, "schedules.html", shown=shown, mine=mine, most=SCHEDULES)


async def schedule(request: Request, site: Site, who: Principal) -> Response:
    """A schedule or another trigger: what it would ask, its next times and its history."""
    one = await rest_schedules.found(request, site, who)
    view, times = await site.triggers.view(one), local_times(one, site.service.clock())
    mine = who.may("runner") and (one.owner == who.name or who.may("admin"))
    more = [*target_lines(one.target), *(time_lines(one) if isinstance(one, Schedule) else one.lines)]
    shown: dict[str, Any] = {"view": view, "fires": when(one), "times": times, "state": state_of(one), "mine": mine}
    return await _page(
        request,
        site,
        who,
        "schedule.html",
        overlap=OVERLAP[one.overlap],
        more=more,
        denied=[*denied_lines(view)],
        **shown,
    )


async def nodes(request: Request, site: Site, who: Principal) -> Response:
    return await _page(request, site, who, "nodes.html", nodes=await site.service.nodes.list(who))


async def overrides(request: Request, site: Site, who: Principal) -> Response:
    """What is allowed in advance in all runs, the newest first."""
    found = list(reversed(await site.service.overrides(who)))
    return await _page(request, site, who, "overrides.html", overrides=found, now=site.service.clock())


# --- signing in and out ---


async def sign_in(request: Request, site: Site, who: Principal) -> Response:
    """The sign-in form, or the start link, which works once; then a redirect to the page that was requested.

    A browser that follows a link from another site does not send its cookie; it does so from a page of this site.
    """
    start, onward = request.query_params.get("start", ""), safe_path(request.query_params.get("next", ""))
    if not start and who != ANONYMOUS and onward != HOME:
        return RedirectResponse(onward, 303)
    if not start or request.method == "HEAD":  # a link preview must not use it up
        out = await oidc.sign_out_place(request, site) if "out" in request.query_params else ""
        return oidc.sign_in_page(request, site, onward, out=out)
    ticket = site.sessions.take_start(start)
    if ticket is None:
        if who != ANONYMOUS:
            return RedirectResponse(onward, 303)
        sign_in_refused(request, "link")
        await site.sign_ins.failed("start link", "used or unknown", oidc.origin_of(request))
        words = "This link was already used, or the server has been restarted."
        return oidc.sign_in_page(request, site, onward, words, 401)
    signed_in(request, ticket.user, "link")
    await site.sign_ins.succeeded(Principal(origin=oidc.origin_of(request)), "start link")
    response: Response = RedirectResponse(onward, 303)
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # From another site, a redirect would not send the new cookie; a page of our own continues with it.
        response = page(request, "signed-in.html", next=onward)
    site.sessions.open(request, response, ticket)
    return response


async def take_token(request: Request, site: Site, who: Principal) -> Response:
    form = await fields(request)
    onward = safe_path(form.get("next", ""))
    token = form.get("token", "").strip()
    ticket = await site.sessions.take_token(token)
    if ticket is None:
        sign_in_refused(request, "form")
        await site.sign_ins.failed("token", "unknown token", oidc.origin_of(request))
        if wants_json(request):
            raise Problem(401, "bad_token", "Invalid token.", WWW_Authenticate="Bearer")
        words = "Invalid token." if site.sessions.local else "Tokens are for programs here. Sign in with your account."
        return oidc.sign_in_page(request, site, onward, words, 401)
    signed_in(request, ticket.user, "form")
    holder = await site.sessions.holder(token) or who
    await site.sign_ins.succeeded(msgspec.structs.replace(holder, origin=oidc.origin_of(request)), "token")
    response = RedirectResponse(onward, 303)
    site.sessions.open(request, response, ticket)
    return response


async def sign_out(request: Request, site: Site, who: Principal) -> Response:
    out = "?out=1" if site.sessions.of_provider(request) is not None else ""
    response = RedirectResponse(f"/sign-in{out}", 303)
    if who != ANONYMOUS:
        await site.sign_ins.ended(msgspec.structs.replace(who, origin=oidc.origin_of(request)))
    await site.sessions.close(request, response)
    signed_out(request, who)
    return response
