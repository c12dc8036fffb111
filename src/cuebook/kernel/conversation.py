"""The conversation that all dialects share: ask a model, call each tool it asks for, ask again.

A sub-program: use it with `yield from`. It knows nothing of how tools or models are reached.
"""

from __future__ import annotations

import msgspec

from cuebook.kernel.effects import All, AskModel, CallTool, EffectFailed, Failed, Program, Reply, ToolResult


class Talk(msgspec.Struct, frozen=True):
    """How a conversation ended."""

    reply: Reply
    turns: int
    calls: tuple[tuple[CallTool, ToolResult], ...] = ()


def converse(
    ask: AskModel,
    tools: dict[str, CallTool],
    *,
    max_turns: int = 20,
    max_calls: int | None = None,
) -> Program[Talk]:
    """Asks until the model calls no more tools.

    `tools` maps the name a model sees to the call it stands for; the model's arguments are put in. A tool's
    failure goes back to the model as that call's result; it does not end the conversation.
    """
    context = ask.context.add("user", ask.prompt) if ask.prompt else ask.context
    made: list[tuple[CallTool, ToolResult]] = []
    for turn in range(1, max_turns + 1):
        reply: Reply = yield msgspec.structs.replace(ask, prompt="", context=context)
        if not reply.calls:
            return Talk(reply, turn, tuple(made))
        if max_calls is not None and len(made) + len(reply.calls) > max_calls:
            raise EffectFailed(Failed("too_many_calls", f"The model asked for more than {max_calls} tool calls."))
        context = context.add("assistant", reply.content, calls=reply.calls)
        effects = [_call(tools, call.name, call.arguments, call.malformed) for call in reply.calls]
        real = tuple(effect for effect in effects if isinstance(effect, CallTool))
        outcomes = iter((yield All(real)) if real else ())
        for call, effect in zip(reply.calls, effects, strict=True):
            result = _result(next(outcomes)) if isinstance(effect, CallTool) else effect
            if isinstance(effect, CallTool):
                made.append((effect, result))
            context = context.add("tool", _shown(result), call_id=call.id)
    raise EffectFailed(Failed("too_many_turns", f"The model did not come to an end within {max_turns} turns."))


def _call(tools: dict[str, CallTool], name: str, arguments: dict[str, object], malformed: str) -> CallTool | ToolResult:
    if name not in tools:
        return ToolResult(f"There is no tool named '{name}'. There are: {', '.join(sorted(tools))}.", is_error=True)
    if malformed:
        return ToolResult(f"The arguments of '{name}' were not a JSON object.", is_error=True)
    return msgspec.structs.replace(tools[name], arguments=arguments)


def _result(outcome: ToolResult | Failed) -> ToolResult:
    return ToolResult(str(outcome), is_error=True) if isinstance(outcome, Failed) else outcome


def _shown(result: ToolResult) -> str:
    return result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode()
