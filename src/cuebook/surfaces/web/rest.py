"""The JSON API: runs, and what they wait for."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import AlreadyAnswered
from cuebook.kernel.events import ENDED, RunStatus
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service import Principal
from cuebook.surfaces import comparing, wording
from cuebook.surfaces.starting import check_settings
from cuebook.surfaces.web import bodies
from cuebook.surfaces.web.answers import answer
from cuebook.surfaces.web.artifacts import file_name
from cuebook.surfaces.web.bodies import body, fields, idempotency_key
from cuebook.surfaces.web.events import EventStream
from cuebook.surfaces.web.guard import FORM, content_type
from cuebook.surfaces.web.late import answered_already
from cuebook.surfaces.web.objects import row_object, run_object, wait_object
from cuebook.surfaces.web.positions import Position
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site
from cuebook.surfaces.web.standing import is_interrupted
from cuebook.surfaces.web.starting import declared_artifact, no_artifact, start, typed_changes
from cuebook.surfaces.web.watching import page_events, plain_events

MOST_RUNS = 1000
MOST_WAITS = 1_000_000
LISTED: tuple[str, ...] = (*get_args(RunStatus), wording.INTERRUPTED)
"""What runs can be listed by: their statuses, and whether they are interrupted."""
_FIELD = "var_"
_DIFF_LINES = 500


# --- beginning ---


async def start_run(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Start)
    row = await start(site, asked, who, idempotency_key(request))
    return answer(row_object(row), 201, Location=f"/api/runs/{row.id}")


async def restart(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Restart)
    parent = await _mine(request, site, who)
    row = await site.service.restart(parent.id, asked.step, visit=asked.visit, who=who)
    return await _begun(site, row)


async def fork(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Fork)
    parent = await _mine(request, site, who)
    check_settings(site.wiring, asked.settings)
    values = await typed_changes(site, parent, asked.values)
    row = await site.service.fork(
        parent.id, asked.step, visit=asked.visit, path=asked.path, values=values, settings=asked.settings, who=who
    )
    return await _begun(site, row)


async def _mine(request: Request, site: Site, who: Principal) -> RunRow:
    """The run that is asked for. `Refused` if it would not go on here."""
    row = await site.service.get(request.path_params["id"], who)
    await site.drivers.require(row.id)
    return row


async def _begun(site: Site, row: RunRow) -> Response:
    await site.drivers.take(row.id)
    return answer(row_object(row), 201, Location=f"/api/runs/{row.id}")


# --- what people do ---


async def resume(request: Request, site: Site, who: Principal) -> Response:
    """Ends a pause, or goes on with what was interrupted. Values to change come as JSON, or as fields `var_NAME` of a form."""
    row = await _mine(request, site, who)
    if await is_interrupted(site, row):
        site.service.check_program(row)
    is_form = content_type(request) == FORM
    asked = await (_changes(request) if is_form else body(request, bodies.Resume))
    check_settings(site.wiring, asked.settings)
    changes = await typed_changes(site, row, asked.variables)
    row = await site.service.resume(row.id, who, overrides=changes, settings=asked.settings)
    if is_form and "text/html" in request.headers.get("accept", ""):
        await site.drivers.take(row.id)
        return RedirectResponse(f"/runs/{row.id}", 303)
    return await _goes_on(site, row)


async def _changes(request: Request) -> bodies.Resume:
    form = await fields(request)
    given = {name[len(_FIELD) :]: value for name, value in form.items() if name.startswith(_FIELD)}
    return bodies.Resume(variables=given)


async def cancel(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Cancel)
    row = await site.service.cancel(request.path_params["id"], asked.reason, who)
    return await _goes_on(site, row, adopt=True)


async def retry(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Retry)
    row = await _mine(request, site, who)
    row = await site.service.retry(row.id, whole_step=asked.whole_step, who=who)
    return await _goes_on(site, row)


async def _goes_on(site: Site, row: RunRow, *, adopt: bool = False) -> Response:
    await site.drivers.take(row.id, adopt=adopt)
    row = await site.service.store.run(row.id)
    return answer(row_object(row, interrupted=await is_interrupted(site, row)), 202)


async def answer_wait(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Answer)
    wait = await site.service.waiting(request.path_params["id"], who)
    await site.drivers.require(wait.run)
    try:
        done = await site.service.answer(wait.id, asked.value, who)
    except AlreadyAnswered:
        raise await answered_already(site, wait.id) from None
    await site.drivers.take(done.run)
    return answer(wait_object(done))


async def decide_wait(request: Request, site: Site, who: Principal) -> Response:
    asked = await body(request, bodies.Decide)
    wait = await site.service.waiting(request.path_params["id"], who)
    await site.drivers.require(wait.run)
    check_settings(site.wiring, asked.settings)
    try:
        done = await site.service.decide(
            wait.id, asked.decision, who, reason=asked.reason, outcome=asked.outcome, settings=asked.settings
        )
    except AlreadyAnswered:
        raise await answered_already(site, wait.id) from None
    await site.drivers.take(done.run)
    return answer(wait_object(done))


# --- looking ---


async def runs(request: Request, site: Site, who: Principal) -> Response:
    query = request.query_params
    status, limit = _statuses(query.get("status", "")), _limit(query.get("limit", "100"))
    left = {row.id for row in await site.drivers.left(who)}
    among = left if wording.INTERRUPTED in status else None
    if query.get("run"):
        row = await site.service.get(query["run"], who)
        rows = [row] if not status or row.status in status or row.id in (among or ()) else []
    elif query.get("playbook"):
        one = await site.library.find(query["playbook"])
        rows = await site.histories.of(one, status=status, among=among, limit=limit, who=who)
    else:
        rows = await site.service.runs(status=status, among=among, limit=limit, who=who)
    return answer({"runs": [row_object(row, interrupted=row.id in left) for row in rows]})


def _statuses(text: str) -> list[str]:
    given = [one.strip() for one in text.split(",") if one.strip()]
    unknown = next((one for one in given if one not in LISTED), None)
    if unknown is not None:
        known = ", ".join(LISTED)
        raise Problem(422, "bad_status", f"There is no status '{unknown[:100]}'.", fix=f"The statuses are {known}.")
    return given


def _limit(text: str) -> int:
    digits = text.lstrip("0")[:9] if text.isascii() and text.isdigit() else ""
    if not digits or int(digits) > MOST_RUNS:
        raise Problem(422, "bad_limit", f"`limit` is a number from 1 to {MOST_RUNS}.")
    return int(digits)


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > most:
        raise Problem(422, f"bad_{name}", f"`{name}` is a number from 0 to {most:,}.")
    return int(text)


async def run(request: Request, site: Site, who: Principal) -> Response:
    view = await site.service.view(request.path_params["id"], who)
    return answer(run_object(view, interrupted=await is_interrupted(site, view.run)))


async def artifact(request: Request, site: Site, who: Principal) -> Response:
    """The result as a file, which is named and typed as its artifact is.

    Of a run that did not come to one it is the last output there is, of the type that the playbook declares.
    """
    view = await site.service.view(request.path_params["id"], who)
    output = wording.final_output(view)
    if output is None:
        raise no_artifact(view.run)
    kind = view.artifact.type if view.artifact is not None else await declared_artifact(site, view.run)
    _, content_type = wording.artifact_file(kind)
    named = quote(file_name(view.run.name, kind, view.run.id))
    headers = {
        "Content-Disposition": f'attachment; filename="{named}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(str(output).encode("utf-8", "replace"), 200, headers, f"{content_type}; charset=utf-8")


async def diff(request: Request, site: Site, who: Principal) -> Response:
    return answer(await compared(site, request.path_params["id"], request.path_params["other"], who))


async def compared(site: Site, first: str, second: str, who: Principal) -> dict[str, Any]:
    """Two runs side by side, step by step."""
    sides = [await comparing.side_of(site.service, run, who) for run in (first, second)]
    return comparing.compare(sides[0], sides[1], lines=_DIFF_LINES)


class Waiting(NamedTuple):
    """What waits for a person: all of it, or the part that was asked for."""

    waits: list[WaitRow]
    left: list[RunRow]
    """Runs that somebody has to resume."""
    total: int
    next_offset: int | None
    """Where the waits after these begin; None where there are no more."""
    mark: str
    """Changes whenever something comes or goes."""


async def waiting(request: Request, site: Site, who: Principal, limit: int | None) -> Waiting:
    query = request.query_params
    limit = limit if query.get("limit") is None else _number(query["limit"], "limit", MOST_WAITS)
    offset = _number(query.get("offset", "0"), "offset", MOST_WAITS)
    ids, left = await site.service.inbox_ids(who), await site.drivers.left(who)
    waits = [] if limit == 0 else await site.service.inbox(who, limit=limit, offset=offset)
    after = offset + len(waits)
    mark = digest_of(" ".join([*ids, *(row.id for row in left)]))
    return Waiting(waits, left, len(ids) + len(left), after if after < len(ids) else None, mark)


async def inbox(request: Request, site: Site, who: Principal) -> Response:
    """Everything that waits for a person; with `limit` and `offset`, a part of the waits."""
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
    """The run, where the reader is, and whether nothing more will come after what there is.

    Its journal is read once before anything is sent: of what cannot be read, an error is told. A reader who is further than
    the journal has seen what was lost, or never read it, and begins anew.
    """
    row = await site.service.get(request.path_params["id"], who)
    after = Position.read(request.headers.get("last-event-id") or request.query_params.get("after", ""))
    moves = await site.drivers.moves(row.id)  # looked at before the journal: what it comes to is in there
    last = 0
    async for entry in site.service.engine.entries(row.id):
        last = entry.seq
    row = await site.service.store.run(row.id)
    return row, after if after.record <= last + 1 else Position(), row.status in ENDED and not moves


async def stream(request: Request, site: Site, who: Principal) -> Response:
    """The events of a run's live page, from where the reader is. 204 says that nothing more will come."""
    row, after, over = await _opened(request, site, who)
    if over:
        async for _ in page_events(site, row, after, follow=False):
            break
        else:
            return Response(status_code=204)
    return EventStream(page_events(site, row, after, goes_on=not over), site.closing)


async def events(request: Request, site: Site, who: Principal) -> Response:
    """The plain events: as a stream for who asks for one, otherwise those there are."""
    row, after, over = await _opened(request, site, who)
    streams = "text/event-stream" in request.headers.get("accept", "")
    if streams and not over:
        return EventStream(plain_events(site, row, after, goes_on=True), site.closing)
    told = [told async for told in plain_events(site, row, after, follow=False) if told is not None]
    if not streams:
        listed = [{"id": one.id, **one.event.data} for one in told]
        return answer({"events": listed, "after": told[-1].id if told else str(after), "status": row.status})
    return EventStream(plain_events(site, row, after), site.closing) if told else Response(status_code=204)
