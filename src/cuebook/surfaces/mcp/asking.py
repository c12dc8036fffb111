"""Asks the person at the client in place, where the client can: a question, or whether something may be done.

It is the client that shows the form, and not the assistant that fills it in. With the newer protocol the answer comes with
a repeated call and a sealed state that names the run, so that a server that was restarted goes on with it; with the older
one, while the call is under way.
"""

from __future__ import annotations

from typing import Any

import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cuebook.kernel.errors import BadInput, NotFound, Refused
from cuebook.kernel.run import WaitRow
from cuebook.service import RunView
from cuebook.surfaces.cli import wording
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.telling import decisions_of, waits_of

_ANSWER, _REASON = "answer", "reason"
_LONGEST = 8_000
"""Characters of what a person is shown."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a repeated call goes on with: the run, what was not answered here, and what did not fit."""

    run: str
    left: tuple[str, ...] = ()
    wrong: dict[str, str] = {}


def round_of(params: CallToolRequestParams) -> Round | None:
    """The round that a call goes on with; none where it is the first one."""
    if params.request_state is None:
        return None
    return msgspec.json.decode(params.request_state, type=Round)


def askable(ctx: ServerRequestContext[Any, Any], caller: Caller, view: RunView) -> list[WaitRow]:
    """What the person at this client can be asked now."""
    declared = ctx.session.client_capabilities
    forms = None if declared is None else declared.elicitation
    if forms is None or (forms.form is None and forms.url is not None):
        return []
    if not is_modern(ctx) and not ctx.session.can_send_request:
        return []
    return [wait for wait in waits_of(view) if _may(caller, wait)]


def _may(caller: Caller, wait: WaitRow) -> bool:
    if wait.kind == "question":
        return caller.person.may("runner")
    return wait.kind in ("approval", "in_doubt") and caller.person_may_decide


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def asked_again(waits: list[WaitRow], now: Round) -> InputRequiredResult:
    """The answer that makes a client ask, and call again."""
    requests: dict[str, InputRequest] = {
        wait.id: ElicitRequest(params=form_of(wait, now.wrong.get(wait.id, ""))) for wait in waits
    }
    return InputRequiredResult(input_requests=requests, request_state=msgspec.json.encode(now).decode())


async def asked_now(ctx: ServerRequestContext[Any, Any], wait: WaitRow, wrong: str) -> ElicitResult:
    form = form_of(wait, wrong)
    return await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)


def form_of(wait: WaitRow, wrong: str = "") -> ElicitRequestFormParams:
    """What a client shows, and what it gives back. Every field is flat, as the protocol wants it."""
    lead = [wrong] if wrong else []
    if wait.kind == "question":
        asked: dict[str, Any] = {"input": _text, "confirm": _yes_or_no, "select": _choice}.get(wait.type, _text)(wait)
        properties = {_ANSWER: asked}
        lines = [*lead, wait.prompt]
    else:
        decisions = list(decisions_of(wait))
        properties = {
            _ANSWER: {"type": "string", "title": "Your decision", "enum": decisions},
            _REASON: {"type": "string", "title": "Why (kept with the decision)"},
        }
        lines = [*lead, wait.prompt, *wording.preview_lines(wait.details.get("preview", {}))]
    message = "\n".join(lines)[:_LONGEST]
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


async def answered(host: Host, caller: Caller, wait: str, result: ElicitResult) -> str | None:
    """Takes what a person said. None: it counts, or somebody was faster; empty: they did not say; else what was wrong."""
    content = result.content or {}
    if result.action != "accept" or content.get(_ANSWER) is None:
        return ""
    service, said = host.service, content[_ANSWER]
    try:
        row = await service.waiting(wait, caller.person)
        if row.kind == "question":
            await service.answer(row.id, _words(said), caller.person)
        else:
            decision: Any = str(said)
            if decision not in decisions_of(row):
                return f"'{decision[:100]}' is no decision."
            await service.decide(row.id, decision, caller.person, reason=str(content.get(_REASON) or ""))
        await host.drivers.take(row.run)
    except (Refused, NotFound):
        return None
    except BadInput as error:
        return str(error)
    return None


def _words(said: Any) -> str:
    if isinstance(said, bool):
        return "yes" if said else "no"
    return str(said)
