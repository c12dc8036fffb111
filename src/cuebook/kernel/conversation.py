"""The conversation that all dialects share: ask a model, call each tool it asks for, ask again.

A sub-program: use it with `yield from`. It knows nothing of how tools or models are reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.kernel.context import EMPTY, Context, ToolCall
from cuebook.kernel.effects import All, AskModel, Branch, CallTool, Program
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult

_ENDING = frozenset({"in_doubt", "expired"})
"""Failures of a call that end the conversation: a person has stopped the run there, or nobody came."""

SAME_FAILURES = 3
"""So often a model may make the very same call and see the very same failure. It would not stop by itself."""


_encoder = msgspec.json.Encoder(order="sorted")


_MADE = "It was made before."

CallOutcome = ToolResult | Failed | str
"""What came of a call. A text is a call that made no sense."""

Heard = Callable[[ToolCall, CallOutcome], Failed | None]
"""Looks at what came of a call: why the conversation ends with it, or None."""


def _goes_on(call: ToolCall, outcome: CallOutcome) -> Failed | None:
    """Only where a person has stopped the run, or nobody came."""
    ends = isinstance(outcome, Failed) and (outcome.code in _ENDING or bool(outcome.details.get("in_doubt")))
    return outcome if ends and isinstance(outcome, Failed) else None


class Talk(msgspec.Struct):
    """A conversation so far. Whoever hands one in has it also when the conversation fails."""

    replies: list[Reply] = []
    calls: list[tuple[ToolCall, ToolResult]] = []
    context: Context = EMPTY
    """Everything that was said before the last reply."""

    @property
    def reply(self) -> Reply:
        return self.replies[-1]


def converse(
    ask: AskModel,
    tools: dict[str, CallTool],
    *,
    max_turns: int = 20,
    max_calls: int | None = None,
    talk: Talk | None = None,
    heard: Heard = _goes_on,
) -> Program[Talk]:
    """Asks until the model calls no more tools.

    `tools` maps the name a model sees to the call it stands for; the model's arguments are put in. A tool's
    failure goes back to the model as that call's result; it does not end the conversation, unless the same call fails
    the same way again and again, or `heard` says that it does. `heard` is told of every call, whichever ends it.

    With `max_calls`, a call counts once, also when the model sends it again under the same id: it is not made again
    then, and the model is told what came of it.
    """
    talk = talk if talk is not None else Talk()
    made: dict[str, tuple[ToolCall, CallOutcome]] = {}
    count = 0
    failures: Counter[tuple[str, bytes, str]] = Counter()
    for _ in range(max_turns):
        reply: Reply = yield ask
        talk.replies.append(reply)
        context = talk.context = ask.context.add("user", ask.prompt) if ask.prompt else ask.context
        if not reply.calls:
            return talk
        before = [_before(made, call) if max_calls is not None else None for call in reply.calls]
        count += before.count(None)
        if max_calls is not None and count > max_calls:
            raise EffectFailed(Failed("too_many_calls", f"The model asked for more than {max_calls} tool calls."))
        context = context.add("assistant", reply.content, calls=reply.calls)
        # One branch for each call, also for one that makes no sense: a reader of the journal finds them by number.
        calls = zip(reply.calls, before, strict=True)
        given = yield All(tuple(_branch(tools, call) if known is None else _refusal(_MADE) for call, known in calls))
        outcomes = [known or outcome for known, outcome in zip(before, given, strict=True)]
        endings = [heard(*one) or _goes_on(*one) for one in zip(reply.calls, outcomes, strict=True)]
        for call, outcome, ended in zip(reply.calls, outcomes, endings, strict=True):
            if ended is not None:
                raise EffectFailed(ended)
            made[call.id] = (call, outcome)
            result = _result(outcome)
            talk.calls.append((call, result))
            context = context.add("tool", _shown(result), call_id=call.id)
            if result.is_error:
                failures[call.name, _encoder.encode(call.arguments), _shown(result)] += 1
        if failures and max(failures.values()) >= SAME_FAILURES:
            raise EffectFailed(_stuck(*failures.most_common(1)[0]))
        ask = msgspec.structs.replace(ask, prompt="", context=context)
    raise EffectFailed(Failed("too_many_turns", f"The model did not come to an end within {max_turns} turns."))


def _stuck(call: tuple[str, bytes, str], times: int) -> Failed:
    name, arguments, said = call
    return Failed(
        "same_call",
        f"The model called '{name}' {times} times with the same arguments, and it failed each time: {said}",
        "Say in the instruction what the tool is for, take the tool away, or use a larger model.",
        details={"tool": name, "arguments": arguments.decode()},
    )


def _branch(tools: dict[str, CallTool], call: ToolCall) -> CallTool | Branch:
    if call.name not in tools:
        return _refusal(f"There is no tool named '{call.name}'. There are: {', '.join(sorted(tools))}.")
    if call.malformed:
        return _refusal(f"The arguments of '{call.name}' were not a JSON object.")
    return msgspec.structs.replace(tools[call.name], arguments=call.arguments)


def _before(made: dict[str, tuple[ToolCall, CallOutcome]], call: ToolCall) -> CallOutcome | None:
    """What came of this very call in an earlier turn."""
    known, outcome = made.get(call.id, (None, None))
    return outcome if known == call else None


def _refusal(words: str) -> Branch:
    def start(state: Any) -> Program[str]:
        return words
        yield

    return Branch(start)


def _result(outcome: CallOutcome) -> ToolResult:
    return outcome if isinstance(outcome, ToolResult) else ToolResult(str(outcome), is_error=True)


def _shown(result: ToolResult) -> str:
    return result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode()
