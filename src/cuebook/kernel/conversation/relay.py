"""What a coding agent asks of the program that called it: permissions, files, commands and the step's tools."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.conversation.calls import Tools, branch_of, end_if_stopped, read, result_of, shown
from cuebook.kernel.effects import All, AskModel, Branch, CallTool, Program
from cuebook.kernel.outcomes import EffectFailed, Reply, ToolResult

CLIENT_CALLS = {
    "agent_permission": CallTool("agent_permission", internal=True, reads_only=True, witnessed=True),
    "agent_read": CallTool("agent_read", internal=True, reads_only=True, witnessed=True),
    "agent_write": CallTool("agent_write", internal=True, idempotent=True),
    "agent_run": CallTool("agent_run", internal=True),
}
"""The requests of the agent's own protocol, by name."""


def relayed(ask: AskModel, tools: Tools | None = None, version: int = 1) -> Program[Reply]:
    """The reply of a model. While it is a coding agent that waits for something, that is performed first; see `served`."""
    reply: Reply = yield ask
    return (yield from served(ask, reply, tools, version))


def served(ask: AskModel, reply: Reply, tools: Tools | None = None, version: int = 1) -> Program[Reply]:
    """The final reply of a coding agent whose reply may be a request. What it asks for is performed through the gate, as every
    other call, and its session continues with the results. `ask` must have `relays`.
    """
    grants = _Grants()
    while reply.session and reply.calls:
        known: Tools = {**(tools or {}), **CLIENT_CALLS}
        given = yield All(tuple(grants.use(call, branch_of(known, call, reply, version)) for call in reply.calls))
        context = ask.context.add("user", ask.prompt) if ask.prompt else ask.context
        context = context.add("assistant", reply.content, calls=reply.calls)
        for call, value in zip(reply.calls, given, strict=True):
            outcome = read(known, call, value)
            ended = end_if_stopped(call, outcome)
            if ended is not None:
                raise EffectFailed(ended)
            result = result_of(outcome, known.get(call.name))
            grants.see(call, result)
            context = context.add("tool", shown(result), call_id=call.id, is_error=result.is_error)
        ask = msgspec.structs.replace(ask, prompt="", context=context, session=reply.session)
        reply = yield ask
    return reply


class _Grants:
    """The writes that the agent was permitted in this turn, each until it is made. They come from the recorded results of its
    permission requests, so a replay finds the same.
    """

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str], str] = {}
        """The file action that was permitted, by path and content."""

    def see(self, call: ToolCall, result: ToolResult) -> None:
        if call.name != "agent_permission" or result.is_error or not isinstance(result.value, dict):
            return
        targets: dict[str, Any] = result.value.get("writes") or {}
        for one in call.arguments.get("writes") or ():
            if one["path"] in targets:
                self._targets[one["path"], one["content"]] = str(targets[one["path"]])

    def use(self, call: ToolCall, effect: CallTool | Branch) -> CallTool | Branch:
        """The effect of a call, with the permission for it, if there is one."""
        if call.name != "agent_write" or not isinstance(effect, CallTool):
            return effect
        target = self._targets.pop((str(call.arguments.get("path")), str(call.arguments.get("content"))), "")
        return msgspec.structs.replace(effect, granted=(target,)) if target else effect
