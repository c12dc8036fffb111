"""Goes on with a run until it has ended or somebody is needed, and asks the person at the client what they can say."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from mcp_types import ElicitResult

from cuebook.surfaces.mcp import asking, telling
from cuebook.surfaces.mcp.asking import Round
from cuebook.surfaces.mcp.calling import Answer, Call
from cuebook.surfaces.mcp.following import Progress, followed


async def carried(call: Call, run: str, seconds: float | None, now: Round | None = None, note: str = "") -> Answer:
    """How a run stands when it has ended or waits for somebody. What the person at the client can say, they are asked."""
    host, caller, ctx = call.host, call.caller, call.ctx
    now, progress = now or Round(run=run), Progress(ctx.session.report_progress)
    clock = asyncio.get_running_loop().time
    until = None if seconds is None else clock() + seconds
    while True:
        left = None if until is None else max(0.0, until - clock())
        row, stand = await followed(host, run, progress, left)
        view = await host.service.view(run, caller.principal)
        waits = asking.askable(ctx, host, caller, view) if stand == "rests" and row.reason != "timer" else []
        waits = [wait for wait in waits if wait.id not in now.left]
        if not waits:
            note = note or ("The person was asked here and did not answer." if now.left else "")
            return await telling.execution(view, host, caller, stand=stand, note=note)
        if asking.is_modern(ctx):
            return asking.asked_again(caller, waits, now)
        left = None if until is None else max(0.0, until - clock())
        said = await asking.asked_now(ctx, host, caller, waits[0], now.wrong.get(waits[0].id, ""), left)
        if said is not None:
            now = await _heard(call, now, waits[0].id, said)
        elif host.closing.is_set() or (until is not None and clock() >= until):
            view = await host.service.view(run, caller.principal)
            return await telling.execution(
                view, host, caller, stand="rests", note="A form was shown here, and is not answered yet."
            )


async def _heard(call: Call, now: Round, wait: str, said: Any) -> Round:
    wrong = await asking.answered(call.host, call.caller, now.run, wait, said)
    if wrong is None:
        return now
    if not wrong or wait in now.wrong:  # asked twice is enough
        return msgspec.structs.replace(now, left=(*now.left, wait))
    return msgspec.structs.replace(now, wrong={**now.wrong, wait: wrong})


async def gone_on(call: Call, seconds: float | None) -> Answer | None:
    """What a repeated call comes to, where this is one: the person's answers count, and nothing is done twice.

    What was not asked is not answered, whatever a client sends.
    """
    now = asking.round_of(call.params)
    if now is None:
        return None
    for wait, said in (call.params.input_responses or {}).items():
        if isinstance(said, ElicitResult) and wait in now.asked:
            now = await _heard(call, now, wait, said)
    return await carried(call, now.run, seconds, now)
