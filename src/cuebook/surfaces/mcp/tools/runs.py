"""The tools that run playbooks. Each call returns when the run has ended or needs a person, and names the tool to call next.

The run is driven independently of the call: a client that disconnects loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CallToolResult

from cuebook.dialects.dialect import input_object
from cuebook.dialects.playbook import Playbook, read
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import FOR_HOST, Forked, Rewound, WaitClosed, WaitOpened
from cuebook.kernel.run import HOST, Budget, RunRow, WaitRow
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.triggers import MCP
from cuebook.service.playbooks.library import Listed
from cuebook.service.runs.lists import Asked, RunPage
from cuebook.service.runs.objects import INTERRUPTED
from cuebook.service.start import check_answers
from cuebook.surfaces.mcp import run_report
from cuebook.surfaces.mcp.elicitation import attend, continue_call, does_steps
from cuebook.surfaces.mcp.progress import Progress, follow
from cuebook.surfaces.mcp.tools.schemas import (
    Amounts,
    Cancel,
    Decide,
    Edit,
    Execute,
    Get,
    ListBooks,
    ListRuns,
    Respond,
    Restart,
    Resume,
    RunText,
)
from cuebook.surfaces.mcp.tools.tool import LOOKS, RUNS, Answer, Call, Hints, Offered
from cuebook.surfaces.mcp.untrusted_text import brief
from cuebook.wiring.run_request import RunRequest, check_settings, start_run


async def start_and_attend(
    call: Call, playbook: Playbook, wanted: RunRequest, key: str, seconds: float | None
) -> Answer:
    """Start a run and follow it until it ends or needs a person."""
    host, caller = call.host, call.caller
    caller.principal.require("runner", "start runs")
    check_inputs(playbook, wanted)
    if playbook.path is None:
        folder = next((one for one in host.library.folders if one.is_dir()), None)
        wanted = msgspec.structs.replace(wanted, folder=folder)
    row = await start_run(host.wiring, host.service, playbook, wanted, caller.principal, key=key, trigger=MCP)
    await host.worker.take(row.id)
    return await attend(call, row.id, seconds)


async def execute(call: Call, given: Execute) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    wanted = RunRequest(
        inputs=given.input_values,
        sensitive=given.sensitive,
        model=given.model_id,
        breakpoints=given.breakpoints,
        answers=given.elicit,
        unattended=given.unattended,
        options=given.options,
        budget=None if given.budget is None else capped_budget(call, given.budget),
    )
    playbook = playbook_for(call, given.playbook_id, given.path, given.content, given.name)
    return await start_and_attend(call, playbook, wanted, given.client_key, given.wait_seconds)


async def run_text(call: Call, given: RunText) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    wanted = RunRequest(inputs=given.inputs, sensitive=given.sensitive, model=given.model_id)
    playbook = playbook_for(call, "", "", given.content, given.name)
    return await start_and_attend(call, playbook, wanted, given.client_key, given.wait_seconds)


def playbook_for(call: Call, id: str, path: str, content: str, name: str) -> Playbook:
    """The requested playbook. Only files of the library are read."""
    if sum(map(bool, (id, path, content))) != 1:
        raise BadInput("Expected exactly one of playbook_id, path and content.", fix="list_playbooks lists the ids.")
    if content:
        return Playbook.from_text(content, Path(name).name)
    return _listed(call, id, path).playbook


def _listed(call: Call, id: str, path: str) -> Listed:
    """The library's playbook with this id, or in this file: several files may have the same name."""
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
            fix="list_playbooks lists all playbooks.",
        )
    return listed


async def resume(call: Call, given: Resume) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    row = await run_to_continue(call, given.execution_id)
    settings: dict[str, Any] = {"model": given.model_id} if given.model_id else {}
    check_settings(host.wiring, settings)
    changes = await host.service.typed_changes(row, given.variables)
    budget = None if given.budget is None else msgspec.to_builtins(given.budget)
    if budget:
        settings["budget"] = {**(await _budget_of(call, row)), **budget}
    await check_raised_limits(call, row, settings.get("budget", {}))
    await host.service.resume(row.id, who, overrides=changes, settings=settings)
    await host.worker.take(row.id)
    return await attend(call, row.id, given.wait_seconds)


async def run_to_continue(call: Call, run: str) -> RunRow:
    """The requested run. Raises `Refused` if this server cannot continue it."""
    row = await call.host.service.get(run, call.caller.principal)
    await call.host.worker.check_workspace(row.id)
    return row


async def _budget_of(call: Call, row: RunRow) -> dict[str, Any]:
    _, settings = await call.host.service.settings(row.id, call.caller.principal)
    return dict(msgspec.to_builtins(settings.budget))


async def respond(call: Call, given: Respond) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    wait = await _question(call, given)
    await host.service.answer(wait.id, given.response, who)
    await host.worker.take(wait.run)
    return await attend(call, wait.run, given.wait_seconds)


async def _question(call: Call, given: Respond) -> WaitRow:
    service, who = call.host.service, call.caller.principal
    row = await run_to_continue(call, given.execution_id)
    if given.wait_id:
        wait = await service.waiting(given.wait_id, who)
        if wait.run != row.id:
            raise BadInput(f"Execution {row.id} has no question {given.wait_id}.", fix="Leave wait_id out.")
        return wait
    questions = [wait for wait in await service.waits(row.id) if wait.kind == "question"]
    if not questions:
        raise BadInput(
            f"Execution {row.id} is {row.status.replace('_', ' ')}: it has no open question.",
            fix="get_playbook_execution shows its state.",
        )
    if len(questions) > 1:
        named = ", ".join(f"{short_id(wait.id)} (step {wait.place.step})" for wait in questions)
        raise BadInput(
            f"Execution {row.id} has {len(questions)} open questions.", fix=f"Choose one by wait_id: {named}."
        )
    return questions[0]


async def get(call: Call, given: Get) -> CallToolResult:
    host, caller = call.host, call.caller
    row = await host.service.get(given.execution_id, caller.principal)
    known = host.last_reports.get(caller.key(row.id), "")
    progress = Progress(call.ctx.session.report_progress)
    _, activity = await follow(host, row.id, progress, given.wait_seconds, known)
    view = await host.service.view(row.id, caller.principal)
    return await run_report.execution(view, host, caller, activity=activity, include=given.include)


async def list_runs(call: Call, given: ListRuns) -> CallToolResult:
    host, caller = call.host, call.caller
    left = {row.id for row in await host.worker.interrupted(caller.principal)}
    page = await _page(call, given, left)
    fitting = [
        row for row in page.rows if not given.status or (INTERRUPTED if row.id in left else row.status) in given.status
    ]
    rows = await run_report.rows(fitting, host, caller, left)
    more = {"next_cursor": page.next} if page.next else {}
    return run_report.value_result({"executions": rows, **more}, untrusted=run_report.LISTED)


async def _page(call: Call, given: ListRuns, interrupted: Collection[str]) -> RunPage:
    """Runs of the requested playbook, or all runs, newest first."""
    host, who = call.host, call.caller.principal
    if given.playbook_id and given.path:
        raise BadInput("Expected playbook_id or path, got both.", fix="Leave one of them out.")
    asked = Asked(
        owner=given.owner,
        status=given.status,
        since=given.since,
        until=given.until,
        trigger=given.trigger,
        search=given.search,
    )
    which, limit, cursor = asked.checked(host.service.clock(), interrupted), given.limit, given.cursor
    if not given.playbook_id and not given.path:
        return await host.service.page(which, limit=limit, cursor=cursor, who=who)
    one = _listed(call, given.playbook_id, given.path)
    return await host.histories.page(one, which, limit=limit, cursor=cursor, who=who)


async def restart(call: Call, given: Restart) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    parent = await run_to_continue(call, given.execution_id)
    settings: dict[str, Any] = {"model": given.model_id} if given.model_id else {}
    check_settings(host.wiring, settings)
    values = await host.service.typed_changes(parent, given.variables)
    row = await host.service.fork(parent.id, given.step, values=values, settings=settings, who=who)
    await host.worker.take(row.id)
    return await attend(call, row.id, given.wait_seconds)


async def edit(call: Call, given: Edit) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    parent = await run_to_continue(call, given.execution_id)
    _, settings = await host.service.settings(parent.id, who)
    if settings.model == HOST or await _asked_assistants(call, parent.id):
        raise NotAllowed(
            "An assistant does the steps of this execution, so it cannot change its text: it could leave out steps and checks.",
            fix=f"A person can, at {call.caller.link(parent.id)} or with `cuebook resume {parent.id} --with FILE`.",
        )
    path = Path(settings.folder) / Path(parent.name).name if settings.folder else None
    playbook = read(given.content, parent.name, path=path)
    host.wiring.check_models(playbook.dialect, playbook.document, settings)
    if not given.plan:
        plan = await host.service.edit_plan(parent.id, playbook, who)
        return run_report.value_result(plan.as_object(), untrusted=("steps",))
    row = await host.service.continue_with(parent.id, playbook, who, plan=given.plan)
    await host.worker.take(row.id)
    return await attend(call, row.id, given.wait_seconds)


async def _asked_assistants(call: Call, run: str) -> bool:
    """Whether a step of the run was, or is, for an assistant to do."""
    async for entry in call.host.service.entries(run):
        if isinstance(entry.event, WaitOpened) and entry.event.kind == FOR_HOST:
            return True
    return False


async def cancel(call: Call, given: Cancel) -> Answer:
    host, caller = call.host, call.caller
    row = await host.service.cancel(given.execution_id, given.reason, caller.principal)
    await host.worker.take(row.id, adopt=True)
    _, activity = await follow(host, row.id, Progress(call.ctx.session.report_progress), _CANCELLING)
    view = await host.service.view(row.id, caller.principal)
    return await run_report.execution(view, host, caller, activity=activity)


_CANCELLING = 10.0
"""Seconds to wait for a cancelled run to undo its work before its state is reported."""


async def list_books(call: Call, given: ListBooks) -> CallToolResult:
    shelf = await call.host.library.read(None)
    found, broken = list(shelf.listed), list(shelf.broken)
    wanted = given.query.lower()
    books = [one for one in found if wanted in f"{one.id}\n{one.title}\n{one.description}\n{one.text}".lower()]
    page = books[given.offset : given.offset + _PAGE]
    more = given.offset + len(page)
    return run_report.value_result(
        {
            "total": len(books),
            "next_offset": more if more < len(books) else None,
            "playbooks": [
                {
                    "playbook_id": one.id,
                    "name": one.title,
                    "description": brief(one.description, 1000, "playbook_read has the full text"),
                    "dialect": one.dialect,
                    "path": one.name,
                    "inputs": [input_object(declared) for declared in one.inputs],
                    "steps": len(one.steps),
                }
                for one in page
            ],
            "broken": [{"path": one.path.name, "problem": brief(one.problem, 1000)} for one in broken],
        },
        untrusted=("playbooks", "broken"),
    )


_PAGE = 50
"""Playbooks on one page of the list."""


async def decide(call: Call, given: Decide) -> Answer:
    host, who = call.host, call.caller.principal
    wait = await host.service.waiting(given.approval_id, who)
    if wait.owner == who.name:
        raise NotAllowed(
            f"{who.name} started this and cannot decide on it.",
            fix=f"A person must decide at {call.caller.link(wait.run, wait.id)}.",
        )
    if await took_part(call, wait.run) or await does_steps(host, call.caller, wait.run):
        raise NotAllowed(
            f"{who.name} has answered, resumed or changed this execution, or done its steps, and cannot decide its approvals.",
            fix=f"A person must decide at {call.caller.link(wait.run, wait.id)}.",
        )
    await host.worker.check_workspace(wait.run)
    await host.service.decide(wait.id, given.decision, who, reason=given.reason, to=given.to)
    await host.worker.take(wait.run)
    return await attend(call, wait.run, _CANCELLING)


# --- limits: an assistant must not spend more than a person allowed, or decide on what it took part in ---


def capped_budget(call: Call, wanted: Amounts) -> Budget:
    """The budget an assistant asked for, capped by the configured one."""
    configured = call.host.wiring.config.budget
    both = {name: (getattr(wanted, name), getattr(configured, name)) for name in Budget.__struct_fields__}
    return Budget(**{name: min((one for one in two if one is not None), default=None) for name, two in both.items()})


async def check_raised_limits(call: Call, row: RunRow, wanted: Mapping[str, Any]) -> None:
    """Raise `NotAllowed` unless the assistant only raises its own limits, up to the configured ones."""
    service, who = call.host.service, call.caller.principal
    _, settings = await service.settings(row.id, who)
    for name, amount in wanted.items():
        now = getattr(settings.budget, name)
        most = getattr(call.host.wiring.config.budget, name) if row.owner == who.name else now
        if most is not None and amount is not None and amount > max(most, now or 0):
            raise _cannot_raise(call, row, name)
    waits = await service.waits(row.id)
    unpriced = any(wait.kind == "budget" and wait.details.get("code") == "unknown_price" for wait in waits)
    if unpriced and not call.host.may_raise(call.caller, row, "money"):
        raise _cannot_raise(call, row, "money")


def _cannot_raise(call: Call, row: RunRow, name: str) -> NotAllowed:
    return NotAllowed(
        f"An assistant cannot raise the {name} budget that a person has set.",
        fix=f"Ask the person to do it at {call.caller.link(row.id)}.",
    )


async def took_part(call: Call, run: str) -> bool:
    """Whether the caller has answered, resumed, retried or changed this run, or done one of its steps."""
    who = call.caller.principal.name
    async for entry in call.host.service.entries(run):
        match entry.event:
            case WaitClosed(kind="question" | "breakpoint" | "budget" | "secret" | "model", by=by) if by == who:
                return True
            case Rewound(by=by) | Forked(owner=by) if by == who:
                return True
    return False


# --- inputs are checked before anything is created: nobody is there to notice a mistake ---


def check_inputs(playbook: Playbook, wanted: RunRequest) -> None:
    """Raise `BadInput` for missing, unknown or wrongly typed inputs, and for answers that match no question."""
    _check_names(playbook, wanted.inputs)
    missing = [one.name for one in playbook.inputs if one.required and one.name not in wanted.inputs]
    if missing:
        raise BadInput(f"{playbook.name} needs {', '.join(missing)}.", fix="Pass the inputs by name.")
    dialect = playbook.dialect
    texts = () if dialect.typed_inputs else playbook.inputs  # a dialect with types checks them itself
    for one in texts:
        if isinstance(wanted.inputs.get(one.name), (list, dict)):
            raise BadInput(
                f"The input {one.name} of {playbook.name} cannot be a list or an object.", fix="Pass a string."
            )
    if wanted.answers:
        check_answers(wanted.answers, dialect.outline(playbook.document))


def _check_names(playbook: Playbook, given: Mapping[str, Any]) -> None:
    """Raise `BadInput` for unknown names: a misspelled input would be ignored silently."""
    dialect, document = playbook.dialect, playbook.document
    declared = [one.name for one in playbook.inputs]
    known = {*declared, *dialect.places(document, playbook.text)}
    unknown = [name for name in given if name not in known and not dialect.takes(document, name)]
    if unknown:
        names = ", ".join(declared) or "none"
        raise BadInput(
            f"{playbook.name} has no input named {', '.join(unknown)[:200]}.", fix=f"Its inputs are: {names}."
        )


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
        "Runs a playbook with input values, a model and optional breakpoints until it ends or needs a person."
        " `status` then says why (paused, awaiting_input, awaiting_approval) and `next` names the tool to call. The run"
        " continues on its own if you stop waiting. A person decides on approvals, at the link. With model_id host, you do the"
        " steps that need a model yourself: see next_step.",
        Execute,
        execute,
        "runner",
        RUNS,
    ),
    Offered(
        "resume_playbook_execution",
        "Resume an execution",
        "Resumes an execution that paused at a breakpoint, or at a budget that you set yourself and now raise. You can change"
        " values first. An interrupted execution continues where it stopped.",
        Resume,
        resume,
        "runner",
        RUNS,
    ),
    Offered(
        "respond_to_elicitation",
        "Answer a question",
        "Answers the question that an execution is waiting for (status awaiting_input), and continues. Pass on what the person said.",
        Respond,
        respond,
        "runner",
        RUNS,
    ),
    Offered(
        "get_playbook_execution",
        "Look at an execution",
        "Shows the state of an execution, the outputs of its steps and its variables. With wait_seconds it returns when the"
        " state has changed since your last call.",
        Get,
        get,
        hints=LOOKS,
    ),
    Offered(
        "list_playbook_executions",
        "List executions",
        "Lists past executions, newest first: all of them, or those of one playbook, including earlier versions of its file.",
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
        "edit_playbook_execution",
        "Continue with a changed text",
        "Continues a failed, paused or waiting execution with a changed text, in a new execution that replaces it. Without `plan`,"
        " nothing changes, and the result says what becomes of each step: show that to a person, then call it with the plan.",
        Edit,
        edit,
        "runner",
        RUNS,
    ),
    Offered(
        "cancel_playbook_execution",
        "Cancel an execution",
        "Asks an execution to stop and undo what it can. A second call stops it at once.",
        Cancel,
        cancel,
        "runner",
        Hints(destroys=True),
    ),
    Offered(
        "decide_approval",
        "Decide on an approval",
        "Approves or denies an action of an execution that someone else started and that you have not answered, resumed or"
        " changed. Call it only when a person has decided.",
        Decide,
        decide,
        "approver",
        RUNS,
        decides=True,
    ),
)
