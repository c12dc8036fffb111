"""The tools that run playbooks. Each call goes on until the run has ended or waits for somebody, and tells what to call next.

The run itself is driven beside the call: a client that goes away loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CallToolResult

from cuebook.gate.people import NotAllowed
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.surfaces.library import Listed
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.mcp import restraining, telling
from cuebook.surfaces.mcp.calling import LOOKS, RUNS, Answer, Call, Hints, Offered
from cuebook.surfaces.mcp.carrying import carried, gone_on
from cuebook.surfaces.mcp.checking import check_given
from cuebook.surfaces.mcp.following import Progress, followed
from cuebook.surfaces.mcp.marking import brief
from cuebook.surfaces.mcp.shapes import (
    Cancel,
    Decide,
    Execute,
    Get,
    ListBooks,
    ListRuns,
    Respond,
    Restart,
    Resume,
    RunText,
)
from cuebook.surfaces.starting import Wanted, check_settings, playbook_of, start_run, typed_changes
from cuebook.surfaces.wording import INTERRUPTED


async def begun(call: Call, playbook: Playbook, wanted: Wanted, key: str, seconds: float | None) -> Answer:
    """Starts a run and goes on until somebody is needed."""
    host, caller = call.host, call.caller
    caller.principal.require("runner", "start runs")
    check_given(playbook, wanted)
    if playbook.path is None:
        folder = next((one for one in host.library.folders if one.is_dir()), None)
        wanted = msgspec.structs.replace(wanted, folder=folder)
    row = await start_run(host.wiring, host.service, playbook, wanted, caller.principal, key=key)
    await host.drivers.take(row.id)
    return await carried(call, row.id, seconds)


async def execute(call: Call, given: Execute) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    wanted = Wanted(
        inputs=given.input_values,
        model=given.model_id,
        breakpoints=given.breakpoints,
        answers=given.elicit,
        unattended=given.unattended,
        options=given.options,
        budget=None if given.budget is None else restraining.tightened(call, given.budget),
    )
    playbook = playbook_for(call, given.playbook_id, given.path, given.content, given.name)
    return await begun(call, playbook, wanted, given.client_key, given.wait_seconds)


async def run_text(call: Call, given: RunText) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    wanted = Wanted(inputs=given.inputs, model=given.model_id)
    playbook = playbook_for(call, "", "", given.content, given.name)
    return await begun(call, playbook, wanted, given.client_key, given.wait_seconds)


def playbook_for(call: Call, id: str, path: str, content: str, name: str) -> Playbook:
    """The playbook that is meant. A file is read only where the library has it."""
    if sum(map(bool, (id, path, content))) != 1:
        raise BadInput(
            "One of playbook_id, path and content is wanted.", fix="list_playbooks lists those that have an id."
        )
    if content:
        return Playbook.from_text(content, Path(name).name)
    return playbook_of(_listed(call, id, path))


def _listed(call: Call, id: str, path: str) -> Listed:
    """The playbook of the library with this id, or else in this file: several files may be called alike."""
    library = call.host.library
    if id:
        return library.named(id)
    try:
        found = library.stored.at(Path(path))
    except (OSError, ValueError):
        found = None
    listed = None if found is None else next((one for one in library.all() if one.path == found.path), None)
    if listed is None:
        raise NotFound(
            f"There is no playbook at '{path[:200]}' in the playbook folders.",
            fix="list_playbooks lists those there are.",
        )
    return listed


async def resume(call: Call, given: Resume) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    row = await _mine(call, given.execution_id)
    settings: dict[str, Any] = {"model": given.model_id} if given.model_id else {}
    check_settings(host.wiring, settings)
    changes = await typed_changes(host.service, row, given.variables)
    budget = None if given.budget is None else msgspec.to_builtins(given.budget)
    if budget:
        settings["budget"] = {**(await _budget_of(call, row)), **budget}
    await restraining.check_raised(call, row, settings.get("budget", {}))
    await host.service.resume(row.id, who, overrides=changes, settings=settings)
    await host.drivers.take(row.id)
    return await carried(call, row.id, given.wait_seconds)


async def _mine(call: Call, run: str) -> RunRow:
    """The run that is meant. `Refused` if it would not go on here."""
    row = await call.host.service.get(run, call.caller.principal)
    await call.host.drivers.require(row.id)
    return row


async def _budget_of(call: Call, row: RunRow) -> dict[str, Any]:
    _, settings = await call.host.service.settings(row.id, call.caller.principal)
    return dict(msgspec.to_builtins(settings.budget))


async def respond(call: Call, given: Respond) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    wait = await _question(call, given)
    await host.service.answer(wait.id, given.response, who)
    await host.drivers.take(wait.run)
    return await carried(call, wait.run, given.wait_seconds)


async def _question(call: Call, given: Respond) -> WaitRow:
    service, who = call.host.service, call.caller.principal
    row = await _mine(call, given.execution_id)
    if given.wait_id:
        wait = await service.waiting(given.wait_id, who)
        if wait.run != row.id:
            raise BadInput(f"{given.wait_id} is no question of execution {row.id}.", fix="Leave wait_id out.")
        return wait
    questions = [wait for wait in await service.store.waits(run=row.id) if wait.kind == "question"]
    if not questions:
        raise BadInput(
            f"Execution {row.id} is {row.status.replace('_', ' ')}: it asks nothing.",
            fix="get_playbook_execution tells how it stands.",
        )
    if len(questions) > 1:
        named = ", ".join(f"{wait.id[: telling.SHORT_ID]} (step {wait.place.step})" for wait in questions)
        raise BadInput(f"Execution {row.id} asks {len(questions)} things.", fix=f"Say which by wait_id: {named}.")
    return questions[0]


async def get(call: Call, given: Get) -> CallToolResult:
    host, caller = call.host, call.caller
    row = await host.service.get(given.execution_id, caller.principal)
    known = host.told.get(caller.key(row.id), "")
    progress = Progress(call.ctx.session.report_progress)
    _, stand = await followed(host, row.id, progress, given.wait_seconds, known)
    view = await host.service.view(row.id, caller.principal)
    return await telling.execution(view, host, caller, stand=stand, include=given.include)


async def list_runs(call: Call, given: ListRuns) -> CallToolResult:
    host, caller = call.host, call.caller
    left = {row.id for row in await host.drivers.left(caller.principal)}
    among = left if INTERRUPTED in given.status else None
    found: list[RunRow] = []
    for row in await _runs(call, given, sorted(set(given.status)), among, given.limit + len(left)):
        if not given.status or (INTERRUPTED if row.id in left else row.status) in given.status:
            found.append(row)
        if len(found) == given.limit:
            break
    return telling.given({"executions": await telling.rows(found, host, caller, left)}, untrusted=telling.LISTED)


async def _runs(
    call: Call, given: ListRuns, status: list[str], among: Collection[str] | None, limit: int
) -> list[RunRow]:
    """Of the playbook that is meant, or all, newest first."""
    host, who = call.host, call.caller.principal
    if given.playbook_id and given.path:
        raise BadInput("A playbook is given by its playbook_id or by its path.", fix="Leave one of them out.")
    if not given.playbook_id and not given.path:
        return await host.service.runs(status=status, among=among, limit=limit, who=who)
    one = _listed(call, given.playbook_id, given.path)
    return await host.histories.of(one, status=status, among=among, limit=limit, who=who)


async def restart(call: Call, given: Restart) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    parent = await _mine(call, given.execution_id)
    settings: dict[str, Any] = {"model": given.model_id} if given.model_id else {}
    check_settings(host.wiring, settings)
    values = await typed_changes(host.service, parent, given.variables)
    row = await host.service.fork(parent.id, given.step, values=values, settings=settings, who=who)
    await host.drivers.take(row.id)
    return await carried(call, row.id, given.wait_seconds)


async def cancel(call: Call, given: Cancel) -> Answer:
    host, caller = call.host, call.caller
    row = await host.service.cancel(given.execution_id, given.reason, caller.principal)
    await host.drivers.take(row.id, adopt=True)
    _, stand = await followed(host, row.id, Progress(call.ctx.session.report_progress), _CANCELLING)
    view = await host.service.view(row.id, caller.principal)
    return await telling.execution(view, host, caller, stand=stand)


_CANCELLING = 10.0
"""Seconds that undoing may take before whoever cancelled hears how it stands."""


async def list_books(call: Call, given: ListBooks) -> CallToolResult:
    shelf = await call.host.library.read(None)
    found, broken = list(shelf.listed), list(shelf.broken)
    wanted = given.query.lower()
    books = [one for one in found if wanted in f"{one.id}\n{one.title}\n{one.description}\n{one.text}".lower()]
    page = books[given.offset : given.offset + _PAGE]
    more = given.offset + len(page)
    return telling.given(
        {
            "total": len(books),
            "next_offset": more if more < len(books) else None,
            "playbooks": [
                {
                    "playbook_id": one.id,
                    "name": one.title,
                    "description": brief(one.description, 1000, "playbook_read tells the whole"),
                    "dialect": one.dialect,
                    "path": one.name,
                    "inputs": [msgspec.to_builtins(declared) for declared in one.inputs],
                    "steps": len(one.steps),
                }
                for one in page
            ],
            "broken": [{"path": one.path.name, "problem": brief(one.problem, 1000)} for one in broken],
        },
        untrusted=("playbooks", "broken"),
    )


_PAGE = 50
"""Playbooks that are listed at once."""


async def decide(call: Call, given: Decide) -> Answer:
    host, who = call.host, call.caller.principal
    wait = await host.service.waiting(given.approval_id, who)
    if wait.owner == who.name:
        raise NotAllowed(
            f"{who.name} asked for this, and does not decide it.",
            fix=f"A person decides it at {call.caller.link(wait.run, wait.id)}.",
        )
    if await restraining.has_changed(call, wait.run):
        raise NotAllowed(
            f"{who.name} has answered, resumed or changed this execution, and does not decide what comes of it.",
            fix=f"A person decides it at {call.caller.link(wait.run, wait.id)}.",
        )
    await host.drivers.require(wait.run)
    await host.service.decide(wait.id, given.decision, who, reason=given.reason)
    await host.drivers.take(wait.run)
    return await carried(call, wait.run, _CANCELLING)


TOOLS: tuple[Offered, ...] = (
    Offered(
        "list_playbooks",
        "List playbooks",
        "Lists the playbooks that can be run here, with their inputs.",
        ListBooks,
        list_books,
        hints=LOOKS,
    ),
    Offered(
        "execute_playbook",
        "Run a playbook",
        "Runs a playbook with input values, a model and optional breakpoints, to its end or to where it needs somebody:"
        " then `status` says so (paused, awaiting_input, awaiting_approval) and `next` names the tool to call. The run goes"
        " on by itself if you stop waiting. Approvals are decided by a person, at the link.",
        Execute,
        execute,
        "runner",
        RUNS,
    ),
    Offered(
        "resume_playbook_execution",
        "Resume an execution",
        "Resumes a paused execution behind a breakpoint, or with a larger budget where you have set it yourself; values may be"
        " changed first. One that was interrupted continues where it stopped.",
        Resume,
        resume,
        "runner",
        RUNS,
    ),
    Offered(
        "respond_to_elicitation",
        "Answer a question",
        "Answers the question that an execution waits for (status awaiting_input), and goes on. Pass on what the person said.",
        Respond,
        respond,
        "runner",
        RUNS,
    ),
    Offered(
        "get_playbook_execution",
        "Look at an execution",
        "Tells how an execution stands, with the outputs of its steps and its variables. With wait_seconds it comes back when"
        " that has changed since you were last told.",
        Get,
        get,
        hints=LOOKS,
    ),
    Offered(
        "list_playbook_executions",
        "List executions",
        "Lists past executions, newest first: all, or those of a playbook, whatever its file held when they began.",
        ListRuns,
        list_runs,
        hints=LOOKS,
    ),
    Offered(
        "restart_playbook_execution",
        "Restart from a step",
        "Starts a new execution that keeps what an old one did before a step, and does the rest again.",
        Restart,
        restart,
        "runner",
        RUNS,
    ),
    Offered(
        "cancel_playbook_execution",
        "Cancel an execution",
        "Asks an execution to stop, and to undo what it can; a second time, at once.",
        Cancel,
        cancel,
        "runner",
        Hints(destroys=True),
    ),
    Offered(
        "decide_approval",
        "Decide an approval",
        "Approves or denies what an execution wants to do that somebody else started, and that you have neither answered nor"
        " resumed nor changed. Only on a person's word.",
        Decide,
        decide,
        "approver",
        RUNS,
        decides=True,
    ),
)
