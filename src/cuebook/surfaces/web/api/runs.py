"""The JSON API: runs and their waits."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cuebook.dialects.playbook import read
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import AlreadyAnswered, BadInput
from cuebook.kernel.events import ENDED, Performed, WaitClosed
from cuebook.kernel.outcomes import Page
from cuebook.kernel.ports import RunFilter
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.runs import compare
from cuebook.service.runs import objects as run_objects
from cuebook.service.runs.bulk import MOST
from cuebook.service.runs.lists import Asked, RunPage
from cuebook.service.runs.objects import INTERRUPTED
from cuebook.service.service import Principal
from cuebook.service.waits.decisions import decided
from cuebook.surfaces.display import moment, short
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.artifacts import file_name
from cuebook.surfaces.web.api.bodies import body, fields, idempotency_key
from cuebook.surfaces.web.api.objects import answer, row_object, run_object, wait_object
from cuebook.surfaces.web.api.start import declared_artifact, no_artifact, start
from cuebook.surfaces.web.auth.guard import FORM, content_type
from cuebook.surfaces.web.live.interrupted import is_interrupted
from cuebook.surfaces.web.live.sse import EventStream
from cuebook.surfaces.web.live.stream import Position
from cuebook.surfaces.web.live.watch import json_events, page_events
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site
from cuebook.wiring.run_request import check_settings

MOST_RUNS = 1000
MOST_WAITS = 1_000_000
_FIELD = "var_"
_DIFF_LINES = 500


# --- starting ---


async def start_run(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Start)
    row = await start(site, asked, who, idempotency_key(request))
    return answer(row_object(row), 201, Location=f"/api/runs/{row.id}")


async def restart(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Restart)
    parent = await _run_to_continue(request, site, who)
    row = await site.service.restart(parent.id, asked.step, visit=asked.visit, who=who)
    return await _started(site, row)


async def fork(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Fork)
    parent = await _run_to_continue(request, site, who)
    check_settings(site.wiring, asked.settings)
    values = await site.service.typed_changes(parent, asked.values)
    row = await site.service.fork(
        parent.id, asked.step, visit=asked.visit, path=asked.path, values=values, settings=asked.settings, who=who
    )
    return await _started(site, row)


async def edit(request: Request, site: Site, who: Principal) -> Response:
    """The plan for continuing a run with a changed text; with the id of that plan, the run that continues."""
    asked = await body(request, bodies.Edit)
    parent = await _run_to_continue(request, site, who)
    playbook = read(asked.text, parent.name, path=await _path_of(site, parent, who))
    site.wiring.check_models(playbook.dialect, playbook.document, (await site.service.settings(parent.id, who))[1])
    if not asked.plan:
        return answer((await site.service.edit_plan(parent.id, playbook, who)).as_object())
    row = await site.service.continue_with(parent.id, playbook, who, plan=asked.plan)
    return await _started(site, row)


async def _path_of(site: Site, row: RunRow, who: Principal) -> Path | None:
    """The file that a run's playbook would be in; its imports are read from there."""
    folder = (await site.service.settings(row.id, who))[1].folder
    return Path(folder) / os.path.basename(row.name) if folder else None


async def _run_to_continue(request: Request, site: Site, who: Principal) -> RunRow:
    """The requested run. Raises `Refused` if this server cannot continue it."""
    row = await site.service.get(request.path_params["id"], who)
    await site.worker.check_workspace(row.id)
    return row


async def _started(site: Site, row: RunRow) -> Response:
    await site.worker.take(row.id)
    return answer(row_object(row), 201, Location=f"/api/runs/{row.id}")


# --- actions on runs ---


async def resume(request: Request, site: Site, who: Principal) -> Response:
    """Resume a paused or interrupted run. Changed values are sent as JSON, or as form fields `var_NAME`."""
    row = await _run_to_continue(request, site, who)
    if await is_interrupted(site, row):
        site.service.check_program(row)
    is_form = content_type(request) == FORM
    asked = await (_changes(request) if is_form else body(request, bodies.Resume))
    check_settings(site.wiring, asked.settings)
    changes = await site.service.typed_changes(row, asked.variables)
    row = await site.service.resume(row.id, who, overrides=changes, settings=asked.settings)
    if is_form and "text/html" in request.headers.get("accept", ""):
        await site.worker.take(row.id)
        return RedirectResponse(f"/runs/{row.id}", 303)
    return await _continued(site, row)


async def _changes(request: Request) -> bodies.Resume:
    form = await fields(request)
    given = {name[len(_FIELD) :]: value for name, value in form.items() if name.startswith(_FIELD)}
    return bodies.Resume(variables=given)


async def cancel(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Cancel)
    row = await site.service.cancel(request.path_params["id"], asked.reason, who)
    return await _continued(site, row, adopt=True)


async def bulk(request: Request, site: Site, who: Principal) -> Response:
    """Cancels, retries or resumes many runs, each with its own permission."""
    asked = await body(request, bodies.Bulk)
    where, act = asked.where, asked.act
    chosen = Asked(
        playbook=where.name,
        owner=where.owner,
        status=where.status,
        since=where.since,
        until=where.until,
        trigger=where.trigger,
        search=where.search,
    )
    left = {row.id for row in await site.worker.interrupted(who)} if INTERRUPTED in where.status else ()
    which = chosen.checked(site.service.clock(), left)
    if where.runs is not None:
        if chosen.says_something:
            raise BadInput("`runs` cannot be combined with filters.", fix="Leave one of them out.")
        which = RunFilter(among=where.runs)
    acted = await site.service.bulk.act(
        act,
        which,
        who,
        limit=asked.limit if where.runs is None else MOST,  # those that are named are all accounted for
        cursor=asked.cursor,
        reason=asked.reason,
        whole_step=asked.whole_step,
        dry_run=asked.dry_run,
        check=None if act == "cancel" else lambda row: site.worker.check_workspace(row.id),
        said=chosen.words,
    )
    for run in () if asked.dry_run else acted.done:
        await site.worker.take(run, adopt=act == "cancel")
    return answer({"act": act, "dry_run": asked.dry_run, **msgspec.to_builtins(acted), "next": acted.next or None})


async def delete(request: Request, site: Site, who: Principal) -> Response:
    """Deletes a run, or purges its contents."""
    asked = await body(request, bodies.Delete)
    row = await site.service.get(request.path_params["id"], who)
    await site.service.retention.delete(row.id, who, force=asked.force, contents=asked.contents, reason=asked.reason)
    return Response(status_code=204)


async def usage(request: Request, site: Site, who: Principal) -> Response:
    """The space that runs use."""
    return answer({"usage": msgspec.to_builtins(await site.service.retention.usage(who))})


async def retry(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Retry)
    row = await _run_to_continue(request, site, who)
    row = await site.service.retry(row.id, whole_step=asked.whole_step, who=who)
    return await _continued(site, row)


async def _continued(site: Site, row: RunRow, *, adopt: bool = False) -> Response:
    await site.worker.take(row.id, adopt=adopt)
    row = await site.service.row(row.id)
    return answer(row_object(row, interrupted=await is_interrupted(site, row)), 202)


async def answer_wait(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Answer)
    wait = await site.service.waiting(request.path_params["id"], who)
    await site.worker.check_workspace(wait.run)
    try:
        done = await site.service.answer(wait.id, asked.value, who)
    except AlreadyAnswered:
        raise await answered_already(site, wait.id) from None
    await site.worker.take(done.run)
    return answer(wait_object(done))


async def decide_wait(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Decide)
    wait = await site.service.waiting(request.path_params["id"], who)
    await site.worker.check_workspace(wait.run)
    check_settings(site.wiring, asked.settings)
    try:
        done = await site.service.decide(
            wait.id,
            asked.decision,
            who,
            reason=asked.reason,
            outcome=asked.outcome,
            settings=asked.settings,
            lasts=asked.lasts,
            offer=asked.offer,
            to=asked.to,
        )
    except AlreadyAnswered:
        raise await answered_already(site, wait.id) from None
    await site.worker.take(done.run)
    return answer(wait_object(done))


async def overrides(request: Request, site: Site, who: Principal) -> Response:
    """What is allowed in advance in all runs; `GET /api/runs/{id}` lists what is allowed in one."""
    found, now = await site.service.overrides(who), site.service.clock()
    return answer({"overrides": [run_objects.override_object(one, now) for one in found]})


async def revoke_override(request: Request, site: Site, who: Principal) -> Response:
    await site.service.revoke_override(request.path_params["id"], who)
    return Response(status_code=204)


async def answered_already(site: Site, wait: str) -> AlreadyAnswered:
    """The error for a wait that was already answered, with the person, the time and the answer."""
    row = await site.service.wait_row(wait)
    done = "decided" if row.kind in ("approval", "in_doubt") else "answered"
    at = await _closed_at(site, row)
    when = "" if at is None else f" at {moment(at)}"
    said = decided(row) or short(row.answer.get("value", ""))
    reason = short(row.answer.get("reason", ""))
    words = f"Already {done} by {row.by}{when}"
    words += f": {said}" if said else ""
    words += f" ({reason})" if reason else ""
    return AlreadyAnswered(f"{words}.", fix="Your input was not used. The run's page shows how it continues.")


async def _closed_at(site: Site, wait: WaitRow) -> float | None:
    """When the run's journal recorded the answer; None if it has not done so yet."""
    async for entry in site.service.entries(wait.run):
        if isinstance(entry.event, WaitClosed) and entry.event.wait == wait.id:
            return entry.at
    return None


# --- reading ---


async def runs(request: Request, site: Site, who: Principal) -> Response:
    query = request.query_params
    left = {row.id for row in await site.worker.interrupted(who)}
    if query.get("run"):
        row = await site.service.get(query["run"], who)
        status = asked_of(query).status
        rows = [row] if not status or row.status in status or (row.id in left and INTERRUPTED in status) else []
        page = RunPage(rows)
    else:
        page = await page_of_runs(request, site, who, left, _limit(query.get("limit", "100")))
    listed = [row_object(row, interrupted=row.id in left) for row in page.rows]
    return answer({"runs": listed, "next": page.next or None})


async def page_of_runs(
    request: Request, site: Site, who: Principal, interrupted: Collection[str], limit: int
) -> RunPage:
    """The runs that a request asks for."""
    query = request.query_params
    which, cursor = asked_of(query).checked(site.service.clock(), interrupted), query.get("cursor", "")
    if not query.get("playbook"):
        return await site.service.page(which, limit=limit, cursor=cursor, who=who)
    one = await site.library.find(query["playbook"])
    return await site.histories.page(one, which, limit=limit, cursor=cursor, who=who)


def asked_of(query: Mapping[str, str]) -> Asked:
    """What the parameters of a list ask for. `playbook` is an id of the library, and so not among them."""
    given = {name: query.get(name, "") for name in ("owner", "since", "until", "trigger", "search")}
    status = [one.strip() for one in query.get("status", "").split(",") if one.strip()]
    return Asked(playbook=query.get("name", ""), status=status, **given)


def _limit(text: str) -> int:
    digits = text.lstrip("0")[:9] if text.isascii() and text.isdigit() else ""
    if not digits or int(digits) > MOST_RUNS:
        raise Problem(422, "bad_limit", f"`limit` must be a number from 1 to {MOST_RUNS}.")
    return int(digits)


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > most:
        raise Problem(422, f"bad_{name}", f"`{name}` must be a number from 0 to {most:,}.")
    return int(text)


async def run(request: Request, site: Site, who: Principal) -> Response:
    view = await site.service.view(request.path_params["id"], who)
    interrupted, waits_for = await is_interrupted(site, view.run), await site.worker.waits_for(view.run.id)
    return answer(run_object(view, interrupted=interrupted, waits_for=waits_for))


async def artifact(request: Request, site: Site, who: Principal) -> Response:
    """The artifact as a file, with its name and type.

    If the run has no artifact, the file contains its last output, with the type that the playbook declares.
    """
    view = await site.service.view(request.path_params["id"], who)
    output = run_objects.final_output(view)
    if output is None:
        raise no_artifact(view.run)
    kind = view.artifact.type if view.artifact is not None else await declared_artifact(site, view.run)
    _, content_type = run_objects.artifact_file(kind)
    named = quote(file_name(view.run.name, kind, view.run.id))
    headers = {
        "Content-Disposition": f'attachment; filename="{named}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(str(output).encode("utf-8", "replace"), 200, headers, f"{content_type}; charset=utf-8")


async def page_picture(request: Request, site: Site, who: Principal) -> Response:
    """The picture of a browser's page after a command."""
    page = await _page(request, site, who)
    if page.picture is None:
        raise Problem(404, "no_such_page", "There is no picture of this page.")
    data = base64.b64decode(str(page.picture.data))
    return Response(data, 200, {"Content-Security-Policy": "default-src 'none'; sandbox"}, page.picture.media_type)


async def page_elements(request: Request, site: Site, who: Principal) -> Response:
    """The elements of a browser's page after a command, to be read as text."""
    page = await _page(request, site, who)
    headers = {
        "Content-Disposition": 'attachment; filename="page.html.txt"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(str(page.html).encode("utf-8", "replace"), 200, headers, "text/plain; charset=utf-8")


async def _page(request: Request, site: Site, who: Principal) -> Page:
    view = await site.service.view(request.path_params["id"], who)
    seq = _number(request.path_params["record"], "record", 999_999_999)
    async for entry in site.service.entries(view.run.id, seq - 1):
        if entry.seq == seq and isinstance(entry.event, Performed) and isinstance(entry.event.outcome, Page):
            return entry.event.outcome
        break
    raise Problem(404, "no_such_page", f"Record {seq} of this run is not a page.")


async def diff(request: Request, site: Site, who: Principal) -> Response:
    return answer(await compared(site, request.path_params["id"], request.path_params["other"], who))


async def compared(site: Site, first: str, second: str, who: Principal) -> dict[str, Any]:
    """A comparison of two runs, step by step."""
    sides = [await compare.side_of(site.service, run, who) for run in (first, second)]
    return compare.compare(sides[0], sides[1], lines=_DIFF_LINES)


class Waiting(NamedTuple):
    """The inbox of a user, or one page of it."""

    waits: list[WaitRow]
    left: list[RunRow]
    """Interrupted runs."""
    total: int
    next_offset: int | None
    """The offset of the next page; None on the last one."""
    mark: str
    """Changes whenever the inbox changes."""


async def waiting(request: Request, site: Site, who: Principal, limit: int | None) -> Waiting:
    query = request.query_params
    limit = limit if query.get("limit") is None else _number(query["limit"], "limit", MOST_WAITS)
    offset = _number(query.get("offset", "0"), "offset", MOST_WAITS)
    ids, left = await site.service.inbox_ids(who), await site.worker.interrupted(who)
    waits = [] if limit == 0 else await site.service.inbox(who, limit=limit, offset=offset)
    after = offset + len(waits)
    mark = digest_of(" ".join([*ids, *(row.id for row in left)]))
    return Waiting(waits, left, len(ids) + len(left), after if after < len(ids) else None, mark)


async def inbox(request: Request, site: Site, who: Principal) -> Response:
    """The inbox; with `limit` and `offset`, one page of the waits."""
    found = await waiting(request, site, who, None)
    return answer(
        {
            "waits": [wait_object(wait) for wait in found.waits],
            "interrupted": [row_object(row, interrupted=True) for row in found.left],
            "total": found.total,
            "next_offset": found.next_offset,
            "mark": found.mark,
        }
    )


async def wait(request: Request, site: Site, who: Principal) -> Response:
    return answer(wait_object(site.service.in_full(await site.service.waiting(request.path_params["id"], who))))


# --- streams ---


async def _opened(request: Request, site: Site, who: Principal) -> tuple[RunRow, Position, bool]:
    """The run, the reader's position, and whether the journal is complete.

    The journal is read once before anything is sent, so that an unreadable one becomes an error response. A position beyond
    the end of the journal is invalid, and the reader starts from the beginning.
    """
    row = await site.service.get(request.path_params["id"], who)
    after = Position.read(request.headers.get("last-event-id") or request.query_params.get("after", ""))
    moves = await site.worker.is_moving(row.id)  # checked before the journal is read, so that nothing is missed
    last = 0
    async for entry in site.service.entries(row.id):
        last = entry.seq
    row = await site.service.row(row.id)
    return row, after if after.record <= last + 1 else Position(), row.status in ENDED and not moves


async def stream(request: Request, site: Site, who: Principal) -> Response:
    """The events of a run's live page after the reader's position. A response of 204 means that there are no more."""
    row, after, over = await _opened(request, site, who)
    if over:
        async for _ in page_events(site, row, after, follow=False):
            break
        else:
            return Response(status_code=204)
    return EventStream(page_events(site, row, after, continued=not over), site.closing)


async def events(request: Request, site: Site, who: Principal) -> Response:
    """The JSON events: as a stream if the client accepts one, otherwise the events so far."""
    row, after, over = await _opened(request, site, who)
    streams = "text/event-stream" in request.headers.get("accept", "")
    if streams and not over:
        return EventStream(json_events(site, row, after, continued=True), site.closing)
    past = [one async for one in json_events(site, row, after, follow=False) if one is not None]
    if not streams:
        listed = [{"id": one.id, **one.event.data} for one in past]
        return answer({"events": listed, "after": past[-1].id if past else str(after), "status": row.status})
    return EventStream(json_events(site, row, after), site.closing) if past else Response(status_code=204)
