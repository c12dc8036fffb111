"""The tools that run playbooks. Each call goes on until the run has ended or waits for somebody, and tells what to call next.

The run itself is driven beside the call: a client that goes away loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CallToolResult, ElicitResult

from cuebook.dialects import registry
from cuebook.gate.people import NotAllowed
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.run import Budget, RunRow, WaitRow
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.mcp import asking, telling
from cuebook.surfaces.mcp.asking import Round
from cuebook.surfaces.mcp.calling import LOOKS, RUNS, Answer, Call, Hints, Offered
from cuebook.surfaces.mcp.following import Progress, followed
from cuebook.surfaces.mcp.shapes import (
    Amounts,
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
from cuebook.surfaces.starting import Wanted, playbook_of, start_run, typed_changes

# --- going on until somebody is needed ---


async def carried(call: Call, run: str, seconds: float | None, now: Round | None = None, note: str = "") -> Answer:
    """How a run stands when it has ended or waits for somebody. What the person at the client can say, they are asked."""
    host, caller, ctx = call.host, call.caller, call.ctx
    now, progress = now or Round(run=run), Progress(ctx.session.report_progress)
    while True:
        row, rests = await followed(host, run, progress, seconds)
        view = await host.service.view(run, caller.principal)
        waits = asking.askable(ctx, caller, view) if rests and row.reason != "timer" else []
        waits = [wait for wait in waits if wait.id not in now.left]
        if not waits:
            note = note or ("The person was asked here and did not answer." if now.left else "")
            return telling.execution(view, host, caller, rests=rests, note=note)
        if asking.is_modern(ctx):
            return asking.asked_again(waits, now)
        said = await asking.asked_now(ctx, waits[0], now.wrong.get(waits[0].id, ""))
        now = await _heard(call, now, waits[0].id, said)


async def _heard(call: Call, now: Round, wait: str, said: Any) -> Round:
    wrong = await asking.answered(call.host, call.caller, wait, said)
    if wrong is None:
        return now
    if not wrong or wait in now.wrong:  # asked twice is enough
        return Round(run=now.run, left=(*now.left, wait), wrong=now.wrong)
    return Round(run=now.run, left=now.left, wrong={**now.wrong, wait: wrong})


async def gone_on(call: Call, seconds: float | None) -> Answer | None:
    """What a repeated call comes to, where this is one: the person's answers count, and nothing is done twice."""
    now = asking.round_of(call.params)
    if now is None:
        return None
    for wait, said in (call.params.input_responses or {}).items():
        if isinstance(said, ElicitResult):
            now = await _heard(call, now, wait, said)
    return await carried(call, now.run, seconds, now)


# --- the tools ---


async def begun(call: Call, playbook: Playbook, wanted: Wanted, key: str, seconds: float | None) -> Answer:
    """Starts a run and goes on until somebody is needed."""
    host, caller = call.host, call.caller
    caller.principal.require("runner", "start runs")
    _check_names(playbook, wanted.inputs)
    if playbook.path is None:
        folder = next((one for one in host.library.folders if one.is_dir()), None)
        wanted = msgspec.structs.replace(wanted, folder=folder)
    row = await start_run(host.wiring, host.service, playbook, wanted, caller.principal, key=key)
    await host.drivers.take(row.id)
    return await carried(call, row.id, seconds)


def _check_names(playbook: Playbook, given: Mapping[str, Any]) -> None:
    """`BadInput` for values that the playbook has no place for: a name that is misspelled would be lost."""
    dialect, document = playbook.dialect, playbook.document
    declared = [one.name for one in playbook.inputs]
    places = dialect.places(document, playbook.text) if isinstance(dialect, registry.Filling) else frozenset()
    takes = dialect.takes if isinstance(dialect, registry.Typed) else lambda document, name: False
    strays = [name for name in given if name not in declared and name not in places and not takes(document, name)]
    if strays:
        known = ", ".join(declared) or "none"
        raise BadInput(f"{playbook.name} declares no input {', '.join(strays)[:200]}.", fix=f"Its inputs are: {known}.")


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
        budget=None if given.budget is None else _budget(given.budget),
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
    return playbook_of(call.host.library.named(id) if id else _at(call, path))


def _at(call: Call, path: str) -> Any:
    library = call.host.library
    try:
        found = library.stored.at(Path(path))
    except (OSError, ValueError):
        found = None
    if found is None:
        raise NotFound(
            f"There is no playbook at '{path[:200]}' in the playbook folders.",
            fix="list_playbooks lists those there are.",
        )
    return library.called(found.name) or library.named(found.id)


async def resume(call: Call, given: Resume) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    row = await host.service.get(given.execution_id, who)
    changes = await typed_changes(host.service, row, given.variables)
    budget = None if given.budget is None else msgspec.to_builtins(given.budget)
    settings = {} if not budget else {"budget": {**(await _budget_of(call, row)), **budget}}
    await host.service.resume(row.id, who, overrides=changes, settings=settings)
    await host.drivers.take(row.id)
    return await carried(call, row.id, given.wait_seconds)


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
    row = await service.get(given.execution_id, who)
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
    _, rests = await followed(host, row.id, Progress(call.ctx.session.report_progress), given.wait_seconds)
    view = await host.service.view(row.id, caller.principal)
    return telling.execution(view, host, caller, rests=rests, include=given.include)


async def list_runs(call: Call, given: ListRuns) -> CallToolResult:
    host, caller = call.host, call.caller
    name = host.library.named(given.playbook_id).name if given.playbook_id else None
    rows = await host.service.runs(name=name, status=given.status, limit=given.limit, who=caller.principal)
    return telling.given({"executions": [telling.row_object(row, host, caller) for row in rows]})


async def restart(call: Call, given: Restart) -> Answer:
    again = await gone_on(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    parent = await host.service.get(given.execution_id, who)
    values = await typed_changes(host.service, parent, given.variables)
    settings: dict[str, Any] = {}
    if given.model_id:
        host.wiring.providers.check(given.model_id)
        settings["model"] = given.model_id
    row = await host.service.fork(parent.id, given.step, values=values, settings=settings, who=who)
    await host.drivers.take(row.id)
    return await carried(call, row.id, given.wait_seconds)


async def cancel(call: Call, given: Cancel) -> Answer:
    host, caller = call.host, call.caller
    row = await host.service.cancel(given.execution_id, given.reason, caller.principal)
    await host.drivers.take(row.id)
    _, rests = await followed(host, row.id, Progress(call.ctx.session.report_progress), _CANCELLING)
    view = await host.service.view(row.id, caller.principal)
    return telling.execution(view, host, caller, rests=rests)


_CANCELLING = 10.0
"""Seconds that undoing may take before whoever cancelled hears how it stands."""


async def list_books(call: Call, given: ListBooks) -> CallToolResult:
    found, broken = call.host.library.found()
    wanted = given.query.lower()
    books = [one for one in found if wanted in f"{one.id}\n{one.title}\n{one.description}\n{one.text}".lower()]
    return telling.given(
        {
            "playbooks": [
                {
                    "playbook_id": one.id,
                    "name": one.title,
                    "description": one.description,
                    "dialect": one.dialect,
                    "path": one.name,
                    "inputs": [msgspec.to_builtins(declared) for declared in one.inputs],
                    "steps": len(one.steps),
                }
                for one in books
            ],
            "broken": [{"path": one.path.name, "problem": one.problem} for one in broken],
        }
    )


async def decide(call: Call, given: Decide) -> Answer:
    host, who = call.host, call.caller.principal
    wait = await host.service.waiting(given.approval_id, who)
    if wait.owner == who.name:
        raise NotAllowed(
            f"{who.name} asked for this, and does not decide it.",
            fix=f"A person decides it at {call.caller.link(wait.run, wait.id)}.",
        )
    await host.service.decide(wait.id, given.decision, who, reason=given.reason)
    await host.drivers.take(wait.run)
    return await carried(call, wait.run, _CANCELLING)


def _budget(amounts: Amounts) -> Budget:
    return Budget(amounts.money, amounts.tokens, amounts.seconds, amounts.steps)


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
        "Resumes a paused execution behind a breakpoint, or with a larger budget; values may be changed first.",
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
        "Tells how an execution stands, with the outputs of its steps and its variables.",
        Get,
        get,
        hints=LOOKS,
    ),
    Offered(
        "list_playbook_executions",
        "List executions",
        "Lists past executions, newest first: all, or those of a playbook.",
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
        "Approves or denies what an execution that somebody else started wants to do. Only on a person's word.",
        Decide,
        decide,
        "approver",
        RUNS,
        decides=True,
    ),
)
