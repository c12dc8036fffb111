"""Asks the person at the client in place, where the client can: a question, or whether something may be done.

It is the client that shows the form, and not the assistant that fills it in. With the newer protocol the answer comes with
a repeated call and a sealed state that names the run, so that a server that was restarted goes on with it; with the older
one, while the call is under way.
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

from cuebook.kernel.errors import AlreadyAnswered, BadInput, NotFound, Refused, WaitClosed, WaitExpired
from cuebook.kernel.run import WaitRow
from cuebook.service import RunView
from cuebook.surfaces import wording
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.marking import brief
from cuebook.surfaces.mcp.telling import decisions_of, waits_of

_ANSWER, _REASON = "answer", "reason"
_LONGEST = 8_000
"""Characters of what a person is shown."""
_EVERY = 0.5
"""Seconds between two looks whether a form is still about something."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a repeated call goes on with: the run, what was not answered here, and what did not fit."""

    run: str
    asked: tuple[str, ...] = ()
    """What was asked in it: nothing else is answered by it."""
    left: tuple[str, ...] = ()
    wrong: dict[str, str] = {}


def round_of(params: CallToolRequestParams) -> Round | None:
    """The round that a call goes on with; none where it is the first one."""
    if params.request_state is None:
        return None
    return msgspec.json.decode(params.request_state, type=Round)


def askable(ctx: ServerRequestContext[Any, Any], host: Host, caller: Caller, view: RunView) -> list[WaitRow]:
    """What the person at this client can be asked now, with all that they decide about."""
    declared = ctx.session.client_capabilities
    forms = None if declared is None else declared.elicitation
    if forms is None or (forms.form is None and forms.url is not None):
        return []
    if not is_modern(ctx) and not ctx.session.can_send_request:
        return []
    return [wait for wait in map(host.service.in_full, waits_of(view)) if _may(caller, wait) and _fits(wait)]


def _may(caller: Caller, wait: WaitRow) -> bool:
    if wait.kind == "question":
        return caller.person.may("runner")
    if wait.details.get("different_person") and wait.owner in (caller.principal.name, caller.person.name):
        return False  # whoever has the assistant is whoever started it
    return wait.kind in ("approval", "in_doubt") and caller.person_may_decide


def _fits(wait: WaitRow) -> bool:
    """Whether a form can show it. Nobody decides in one what it does not show to its end; the link does."""
    whole = wait.kind == "question" or len(_message(wait)) <= _LONGEST
    return whole and sum(map(len, wait.options)) <= _LONGEST


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def asked_again(caller: Caller, waits: list[WaitRow], now: Round) -> InputRequiredResult:
    """The answer that makes a client ask, and call again."""
    requests: dict[str, InputRequest] = {
        wait.id: ElicitRequest(params=form_of(caller, wait, now.wrong.get(wait.id, ""))) for wait in waits
    }
    state = msgspec.structs.replace(now, asked=tuple(requests))
    return InputRequiredResult(input_requests=requests, request_state=msgspec.json.encode(state).decode())


async def asked_now(
    ctx: ServerRequestContext[Any, Any], host: Host, caller: Caller, wait: WaitRow, wrong: str, seconds: float | None
) -> ElicitResult | None:
    """What the person says; none where the form was left open too long, or is about nothing any more.

    Nobody can take a form away from a person. What is said to it then comes too late, and counts for nothing.
    """
    form = form_of(caller, wait, wrong)
    asking = asyncio.create_task(ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id))
    watching = asyncio.create_task(_closed(host, wait.id))
    try:
        await asyncio.wait({asking, watching}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    except MCPError:  # the client has gone, or cannot show it after all
        return ElicitResult(action="cancel")
    finally:
        for task in (asking, watching):
            task.cancel()
        await asyncio.gather(asking, watching, return_exceptions=True)


async def _closed(host: Host, wait: str) -> None:
    """Comes back when a wait has ended otherwise, or the server is about to."""
    while not host.closing.is_set() and (await host.service.store.wait(wait)).state == "open":
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY):
                await host.closing.wait()


def _message(wait: WaitRow, wrong: str = "") -> str:
    """What a person is shown of it."""
    preview = [] if wait.kind == "question" else wording.preview_lines(wait.details.get("preview", {}))
    return "\n".join([*([wrong] if wrong else []), wait.prompt, *preview])


def form_of(caller: Caller, wait: WaitRow, wrong: str = "") -> ElicitRequestFormParams:
    """What a client shows, and what it gives back. Every field is flat, as the protocol wants it."""
    if wait.kind == "question":
        asked: dict[str, Any] = {"input": _text, "confirm": _yes_or_no, "select": _choice}.get(wait.type, _text)(wait)
        properties = {_ANSWER: asked}
    else:
        decisions = list(decisions_of(wait))
        properties = {
            _ANSWER: {"type": "string", "title": "Your decision", "enum": decisions},
            _REASON: {"type": "string", "title": "Why (kept with the decision)"},
        }
    message = brief(
        _message(wait, wrong), _LONGEST, f"read the whole before you answer: {caller.link(wait.run, wait.id)}"
    )
    schema = {"type": "object", "properties": properties, "required": [_ANSWER]}
    return ElicitRequestFormParams(message=message, requested_schema=schema)


def _text(wait: WaitRow) -> dict[str, Any]:
    return {"type": "string", "title": "Your answer", **({"default": wait.default} if wait.default is not None else {})}


def _yes_or_no(wait: WaitRow) -> dict[str, Any]:
    default = {"default": wait.default.lower() in ("yes", "true", "y")} if wait.default is not None else {}
    return {"type": "boolean", "title": "Yes?", **default}


def _choice(wait: WaitRow) -> dict[str, Any]:
    default = {"default": wait.default} if wait.default in wait.options else {}
    return {"type": "string", "title": "Your choice", "enum": list(wait.options), **default}


async def answered(host: Host, caller: Caller, run: str, wait: str, result: ElicitResult) -> str | None:
    """Takes what a person said. None: it counts, or somebody was faster; empty: they did not say; else what was wrong.

    Whether they may is looked at again: what was asked may be a week old.
    """
    content = result.content or {}
    if result.action != "accept" or content.get(_ANSWER) is None:
        return ""
    service, said = host.service, content[_ANSWER]
    try:
        row = await service.waiting(wait, caller.person)
        if row.run != run or not _may(caller, row):
            return ""
        if row.kind == "question":
            await service.answer(row.id, _words(said), caller.person)
        else:
            decision: Any = str(said)
            if decision not in decisions_of(row):
                return f"'{decision[:100]}' is no decision."
            await service.decide(row.id, decision, caller.person, reason=str(content.get(_REASON) or ""))
        await host.drivers.take(row.run)
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
