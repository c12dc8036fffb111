"""Asks the user directly in the client, if the client supports it: a question, or whether to approve something.

The client shows the form to the user; the assistant does not fill it in. With the newer protocol the answer comes with a
repeated call and a sealed state that names the run, so even a restarted server can continue. With the older protocol the
answer comes during the call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cuebook.formats.forms import Field, fields_of
from cuebook.kernel.errors import AlreadyAnswered, BadInput, NotFound, Refused, WaitClosed, WaitExpired
from cuebook.kernel.events import FOR_HOST
from cuebook.kernel.events import WaitClosed as Closed
from cuebook.kernel.run import WaitRow
from cuebook.kernel.votes import is_listed, rule_of, votes_of, votes_words
from cuebook.service.service import RunView
from cuebook.service.waits.lasting_approvals import Lasts, offered
from cuebook.surfaces import display
from cuebook.surfaces.mcp import run_report
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.progress import Progress, follow
from cuebook.surfaces.mcp.run_report import decisions_of, waits_of
from cuebook.surfaces.mcp.tools.tool import Answer, Call
from cuebook.surfaces.mcp.untrusted_text import brief

_ANSWER, _REASON = "answer", "reason"
_LASTING: dict[str, tuple[Lasts, int]] = {
    "approve for this run": ("run", 1),
    "approve always": ("always", 1),
    "approve for this run (wider)": ("run", 2),
    "approve always (wider)": ("always", 2),
}
"""The answers that approve more than the one action, each with how long it lasts and the number of its offer."""
_HOW_LONG = {"run": "for the rest of this run", "always": "in all runs, until it is revoked"}
_LONGEST = 8_000
"""Maximum number of characters in a form's message."""
_EVERY = 0.5
"""Seconds between checks of whether a form's wait is still open."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a repeated call: the run, the questions not answered here, and the rejected answers."""

    run: str
    asked: tuple[str, ...] = ()
    """The waits the user was asked about; answers to other waits are ignored."""
    left: tuple[str, ...] = ()
    wrong: dict[str, str] = {}


def round_of(params: CallToolRequestParams) -> Round | None:
    """The round that a call continues, or None for a first call."""
    if params.request_state is None:
        return None
    return msgspec.json.decode(params.request_state, type=Round)


async def askable(ctx: ServerRequestContext[Any, Any], host: Host, caller: Caller, view: RunView) -> list[WaitRow]:
    """The waits that the user of this client can be asked about now, in full."""
    declared = ctx.session.client_capabilities
    forms = None if declared is None else declared.elicitation
    if forms is None or (forms.form is None and forms.url is not None):
        return []
    if not is_modern(ctx) and not ctx.session.can_send_request:
        return []
    waits = [wait for wait in map(host.service.in_full, waits_of(view)) if _may(caller, wait) and _fits(wait)]
    if any(wait.kind != "question" for wait in waits) and await does_steps(host, caller, view.run.id):
        return [wait for wait in waits if wait.kind == "question"]
    return waits


def _may(caller: Caller, wait: WaitRow) -> bool:
    if wait.kind == "question":
        by = wait.details.get("by", ())
        return caller.person.may("runner") and is_listed(by, caller.person.name, caller.person.roles)
    if not is_listed(rule_of(wait.details).by, caller.person.name, caller.person.roles):
        return False
    if any(vote["by"] == caller.person.name for vote in votes_of(wait.answer)):
        return False
    if wait.details.get("different_person") and wait.owner in (caller.principal.name, caller.person.name):
        return False  # the assistant's user is the person who started it
    return wait.kind in ("approval", "in_doubt") and caller.person_may_decide


async def does_steps(host: Host, caller: Caller, run: str) -> bool:
    """Whether steps of the run were done by this caller, or are being done. The program that shows the form is then the one
    whose work is to be approved, so its user decides elsewhere.
    """
    names = {caller.principal.name, caller.person.name}
    if any(wait.lease is not None and wait.lease.by in names for wait in await host.service.host_steps.open(run)):
        return True
    async for entry in host.service.entries(run):
        if isinstance(entry.event, Closed) and entry.event.kind == FOR_HOST and entry.event.by in names:
            return True
    return False


def _fits(wait: WaitRow) -> bool:
    """Whether a form can show the wait in full. Approvals that are too long for a form are decided at the link."""
    whole = wait.kind == "question" or len(_message(wait)) <= _LONGEST
    return whole and sum(map(len, wait.options)) <= _LONGEST


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def input_required(caller: Caller, waits: list[WaitRow], now: Round) -> InputRequiredResult:
    """The response that makes a client ask the user and call again."""
    requests: dict[str, InputRequest] = {
        wait.id: ElicitRequest(params=form_of(caller, wait, now.wrong.get(wait.id, ""))) for wait in waits
    }
    state = msgspec.structs.replace(now, asked=tuple(requests))
    return InputRequiredResult(input_requests=requests, request_state=msgspec.json.encode(state).decode())


async def ask_during_call(
    ctx: ServerRequestContext[Any, Any], host: Host, caller: Caller, wait: WaitRow, wrong: str, seconds: float | None
) -> ElicitResult | None:
    """Ask the user during the call. None if the form was open too long, or its wait was closed in the meantime.

    A form cannot be withdrawn; an answer that comes too late is ignored.
    """
    form = form_of(caller, wait, wrong)
    asking = asyncio.create_task(ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id))
    watching = asyncio.create_task(_closed(host, wait.id))
    try:
        await asyncio.wait({asking, watching}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    except MCPError:  # the client has disconnected, or cannot show the form after all
        return ElicitResult(action="cancel")
    finally:
        for task in (asking, watching):
            task.cancel()
        await asyncio.gather(asking, watching, return_exceptions=True)


async def _closed(host: Host, wait: str) -> None:
    """Return when the wait was closed elsewhere, or the server is about to stop."""
    while not host.closing.is_set() and (await host.service.wait_row(wait)).state == "open":
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY):
                await host.closing.wait()


def _message(wait: WaitRow, wrong: str = "") -> str:
    """The message of a form."""
    preview = [] if wait.kind == "question" else display.preview_lines(wait.details.get("preview", {}))
    return "\n".join([*([wrong] if wrong else []), wait.prompt, *preview, *_rule_lines(wait), *_offer_lines(wait)])


def _rule_lines(wait: WaitRow) -> list[str]:
    """Who decides, the votes so far, and where changes lead."""
    rule = rule_of(wait.details)
    if wait.kind != "approval":
        return []
    back = f'"changes" goes back to step {rule.changes[0]}; the reason is the feedback.' if rule.changes else ""
    who = f"Who decides: {rule.words()}." if rule.words() else ""
    return [one for one in (who, votes_words(wait.details, wait.answer), back) if one]


def _offer_lines(wait: WaitRow) -> list[str]:
    """What each answer that lasts would allow, or why the action can only be approved once."""
    if wait.kind != "approval":
        return []
    choices = offered(wait)
    if not choices:
        why = wait.details.get("once_only")
        return [f"It can only be approved once: {why}."] if why else []
    return [
        f'"{word}" also allows {_HOW_LONG[lasts]}: {display.patterns_words(choices[number - 1])}'
        for word, (lasts, number) in _LASTING.items()
        if number <= len(choices)
    ]


def _decisions(wait: WaitRow) -> dict[str, tuple[str, Lasts, int]]:
    """The decisions that a person can choose from in a form, each with how long it lasts and the number of its offer."""
    plain: dict[str, tuple[str, Lasts, int]] = {one: (one, "once", 1) for one in decisions_of(wait)}
    count = len(offered(wait)) if wait.kind == "approval" else 0
    lasting = {word: ("approve", lasts, number) for word, (lasts, number) in _LASTING.items() if number <= count}
    return {**{name: plain.pop(name) for name in ("approve",) if name in plain}, **lasting, **plain}


def form_of(caller: Caller, wait: WaitRow, wrong: str = "") -> ElicitRequestFormParams:
    """The form that a client shows, and the fields it returns. All fields are flat, as the protocol requires."""
    if wait.kind == "question" and wait.type == "form":
        fields = fields_of(wait.details.get("schema"))
        properties = {one.name or _ANSWER: _property(one) for one in fields} or {_ANSWER: _json(wait)}
        needed = [one.name or _ANSWER for one in fields if one.required] if fields else [_ANSWER]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": needed}
        return ElicitRequestFormParams(message=_shown(caller, wait, wrong), requested_schema=schema)
    if wait.kind == "question":
        asked: dict[str, Any] = {"input": _text, "confirm": _yes_or_no, "select": _choice}.get(wait.type, _text)(wait)
        properties = {_ANSWER: asked}
    else:
        decisions = list(_decisions(wait))
        properties = {
            _ANSWER: {"type": "string", "title": "Your decision", "enum": decisions},
            _REASON: {"type": "string", "title": "Reason (recorded with the decision)"},
        }
    schema = {"type": "object", "properties": properties, "required": [_ANSWER]}
    return ElicitRequestFormParams(message=_shown(caller, wait, wrong), requested_schema=schema)


def _shown(caller: Caller, wait: WaitRow, wrong: str) -> str:
    link = f"read the full text before you answer: {caller.link(wait.run, wait.id)}"
    return brief(_message(wait, wrong), _LONGEST, link)


def _property(field: Field) -> dict[str, Any]:
    """A field as the protocol allows it: a single value, without other keywords than these."""
    made: dict[str, Any] = {"type": _TYPES[field.kind], "title": field.title or "Your answer"}
    made |= {"enum": list(field.options)} if field.options else {}
    made |= {"description": field.about} if field.about else {}
    return {**made, "default": field.default} if field.default is not None else made


_TYPES = {"text": "string", "choice": "string", "number": "number", "integer": "integer", "boolean": "boolean"}


def _json(wait: WaitRow) -> dict[str, Any]:
    about = f"JSON that follows this schema: {msgspec.json.encode(wait.details.get('schema')).decode()}"
    return {"type": "string", "title": "Your answer, as JSON", "description": about}


def _text(wait: WaitRow) -> dict[str, Any]:
    return {"type": "string", "title": "Your answer", **({"default": wait.default} if wait.default is not None else {})}


def _yes_or_no(wait: WaitRow) -> dict[str, Any]:
    default = {"default": wait.default.lower() in ("yes", "true", "y")} if wait.default is not None else {}
    return {"type": "boolean", "title": "Yes?", **default}


def _choice(wait: WaitRow) -> dict[str, Any]:
    default = {"default": wait.default} if wait.default in wait.options else {}
    return {"type": "string", "title": "Your choice", "enum": list(wait.options), **default}


async def record_answer(host: Host, caller: Caller, run: str, wait: str, result: ElicitResult) -> str | None:
    """Record the user's answer. Returns None if it was accepted or the wait was already closed, an empty string if the user
    did not answer, and otherwise an error message.

    Permissions are checked again: the question may be a week old.
    """
    content = result.content or {}
    if result.action != "accept":
        return ""
    service = host.service
    said: Any = content.get(_ANSWER)
    try:
        row = await service.waiting(wait, caller.person)
        if row.type == "form" and any(one.name for one in fields_of(row.details.get("schema"))):
            said = dict(content)
        if said is None:
            return ""
        if row.run != run or not _may(caller, row):
            return ""
        if row.kind != "question" and await does_steps(host, caller, run):
            return ""
        if row.kind == "question":
            await service.answer(row.id, said if row.type == "form" else _words(said), caller.person)
        else:
            meant = _decisions(row).get(str(said))
            if meant is None:
                return f"Invalid decision '{str(said)[:100]}'."
            decision: Any = meant[0]
            reason = str(content.get(_REASON) or "")
            await service.decide(row.id, decision, caller.person, reason=reason, lasts=meant[1], offer=meant[2])
        await host.worker.take(row.run)
    except (AlreadyAnswered, WaitClosed, WaitExpired, NotFound):
        return None
    except Refused:
        return ""
    except BadInput as error:
        return str(error)
    return None


def _words(said: Any) -> str:
    if isinstance(said, bool):
        return "yes" if said else "no"
    return str(said)


# --- following a run, with questions in place ---


async def attend(call: Call, run: str, seconds: float | None, now: Round | None = None, note: str = "") -> Answer:
    """Follow a run until it ends or waits, ask the user of the client what can be asked there, and report its state."""
    host, caller, ctx = call.host, call.caller, call.ctx
    now, progress = now or Round(run=run), Progress(ctx.session.report_progress)
    clock = asyncio.get_running_loop().time
    until = None if seconds is None else clock() + seconds
    while True:
        left = None if until is None else max(0.0, until - clock())
        row, activity = await follow(host, run, progress, left)
        view = await host.service.view(run, caller.principal)
        waits = await askable(ctx, host, caller, view) if activity == "resting" and row.reason != "timer" else []
        waits = [wait for wait in waits if wait.id not in now.left]
        if not waits:
            note = note or ("The person was asked here and did not answer." if now.left else "")
            return await run_report.execution(view, host, caller, activity=activity, note=note)
        if is_modern(ctx):
            return input_required(caller, waits, now)
        left = None if until is None else max(0.0, until - clock())
        said = await ask_during_call(ctx, host, caller, waits[0], now.wrong.get(waits[0].id, ""), left)
        if said is not None:
            now = await _take_answer(call, now, waits[0].id, said)
        elif host.closing.is_set() or (until is not None and clock() >= until):
            view = await host.service.view(run, caller.principal)
            return await run_report.execution(
                view, host, caller, activity="resting", note="A form was shown here and has not been answered yet."
            )


async def _take_answer(call: Call, now: Round, wait: str, said: Any) -> Round:
    wrong = await record_answer(call.host, call.caller, now.run, wait, said)
    if wrong is None:
        return now
    if not wrong or wait in now.wrong:  # asking twice is enough
        return msgspec.structs.replace(now, left=(*now.left, wait))
    return msgspec.structs.replace(now, wrong={**now.wrong, wait: wrong})


async def continue_call(call: Call, seconds: float | None) -> Answer | None:
    """Handle a repeated call that carries the user's answers; nothing is done twice. None if this is a first call.

    Only questions that were asked can be answered, even if the client sends more.
    """
    now = round_of(call.params)
    if now is None:
        return None
    for wait, said in (call.params.input_responses or {}).items():
        if isinstance(said, ElicitResult) and wait in now.asked:
            now = await _take_answer(call, now, wait, said)
    return await attend(call, now.run, seconds, now)
