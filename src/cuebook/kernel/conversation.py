"""The conversation that all dialects share: call a model, make the tool calls it requests, call it again.

A sub-program: use it with `yield from`. It does not depend on how tools or models are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cuebook.kernel.context import EMPTY, Context, ToolCall
from cuebook.kernel.effects import All, AskModel, Branch, CallTool, Program
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import UNANSWERED, EffectFailed, Failed, Reply, ToolResult

_ENDING = frozenset({"in_doubt", "expired"})
"""Failures of a call that end the conversation: someone stopped the run there, or no one answered in time."""

WARNED_FAILURES = 3
"""Consecutive turns with identical calls and failures after which the model is warned."""
SAME_FAILURES = 5
"""Consecutive turns with identical calls and failures after which the conversation ends."""
CUT_TURNS = 5
"""Consecutive turns with only calls that were cut off at the token limit, after which the conversation ends."""
REPAIRS = 2
"""How often a model is called again after an unusable reply."""


_encoder = msgspec.json.Encoder(order="sorted")


_LOOK = "It may still have taken effect, in whole or in part: check before you do it again."

_MADE = "It was made before."

CallOutcome = ToolResult | Failed | str
"""The outcome of a call. A string says why the call was invalid."""

Heard = Callable[[ToolCall, CallOutcome], Failed | None]
"""Receives the outcome of a call; returns the failure that ends the conversation, or None."""

Flaw = Callable[[Reply], str]
"""Returns the problem with a final reply, worded for the model, or an empty string."""


def _end_if_stopped(call: ToolCall, outcome: CallOutcome) -> Failed | None:
    """Ends the conversation only if someone stopped the run or no one answered in time."""
    ends = isinstance(outcome, Failed) and (outcome.code in _ENDING or bool(outcome.details.get("in_doubt")))
    return outcome if ends and isinstance(outcome, Failed) else None


class Talk(msgspec.Struct):
    """A conversation so far. A caller that passes in a `Talk` keeps it even if the conversation fails."""

    replies: list[Reply] = []
    calls: list[tuple[ToolCall, ToolResult]] = []
    context: Context = EMPTY
    """Everything before the last reply."""

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
    heard: Heard = _end_if_stopped,
    flaw: Flaw | None = None,
) -> Program[Talk]:
    """Calls the model until it calls no more tools.

    `tools` maps the name that a model sees to a call, which receives the model's arguments. A tool's failure is returned to
    the model as the result of that call. It ends the conversation only if `heard` returns a failure, or if the same calls keep
    failing the same way with nothing in between. `heard` receives the outcome of every call.

    With `max_calls`, a call that the model repeats under the same id counts once: it is not made again, and the model gets
    its earlier result.

    With `flaw`, the model is asked to correct a flawed final reply, at most `REPAIRS` times and within `max_turns`. Each
    attempt is noted as `repair`. The caller judges the final reply.
    """
    talk = talk if talk is not None else Talk()
    made: dict[str, tuple[ToolCall, CallOutcome]] = {}
    count = repairs = 0
    repeats = _Repeats()
    for turn in range(1, max_turns + 1):
        reply: Reply = yield ask
        talk.replies.append(reply)
        context = talk.context = ask.context.add("user", ask.prompt) if ask.prompt else ask.context
        if not reply.calls:
            wrong = flaw(reply) if flaw is not None and repairs < REPAIRS and turn < max_turns else ""
            if not wrong:
                return talk
            repairs += 1
            yield Noted("repair", {"number": repairs, "most": REPAIRS, "problems": [wrong]})
            ask = msgspec.structs.replace(ask, prompt=_again(reply, wrong), context=_with_reply(context, reply))
            continue
        before = [_before(made, call) if max_calls is not None else None for call in reply.calls]
        count += before.count(None)
        if max_calls is not None and count > max_calls:
            raise EffectFailed(Failed("too_many_calls", f"The model requested more than {max_calls} tool calls."))
        context = context.add("assistant", reply.content, calls=reply.calls)
        # One branch for each call, even an invalid one: readers of the journal find them by number.
        calls = zip(reply.calls, before, strict=True)
        given = yield All(
            tuple(_branch(tools, call, reply) if known is None else _refusal(_MADE) for call, known in calls)
        )
        outcomes = [known or outcome for known, outcome in zip(before, given, strict=True)]
        endings = [heard(*one) or _end_if_stopped(*one) for one in zip(reply.calls, outcomes, strict=True)]
        answered: list[tuple[ToolCall, ToolResult]] = []
        for call, outcome, ended in zip(reply.calls, outcomes, endings, strict=True):
            if ended is not None:
                raise EffectFailed(ended)
            made[call.id] = (call, outcome)
            answered.append((call, _result(outcome, tools.get(call.name))))
            talk.calls.append(answered[-1])
        repeats.see(reply, answered)
        note = repeats.note()
        for call, result in answered:
            context = context.add("tool", f"{_shown(result)}{note}", call_id=call.id, is_error=result.is_error)
        ask = msgspec.structs.replace(ask, prompt="", context=context)
    raise EffectFailed(Failed("too_many_turns", f"The model did not finish within {max_turns} turns."))


class _Repeats:
    """Counts consecutive turns without progress: the same calls that fail the same way, or calls that were all cut.

    Anything in between resets the count: a different or successful call may have changed the effect of the next one.
    """

    def __init__(self) -> None:
        self._last: frozenset[tuple[str, bytes, str]] = frozenset()
        self._call = ToolCall("", "")
        self._said = ""
        self._same = self._cut = 0

    def see(self, reply: Reply, answered: Sequence[tuple[ToolCall, ToolResult]]) -> None:
        """Counts a turn; raises if the limit is exceeded."""
        self._call, self._said = answered[0][0], _shown(answered[0][1])
        if not all(result.is_error for _, result in answered):
            self._last, self._same, self._cut = frozenset(), 0, 0
            return
        turn = frozenset((call.name, _arguments(call), _shown(result)) for call, result in answered)
        self._same = self._same + 1 if turn == self._last else 1
        self._last = turn
        self._cut = self._cut + 1 if all(_is_cut(call, reply) for call in reply.calls) else 0
        if self._cut >= CUT_TURNS:
            raise EffectFailed(self._too_long())
        if self._same >= SAME_FAILURES:
            raise EffectFailed(self._stuck())

    def note(self) -> str:
        """The last message to the model before the conversation ends."""
        if self._same < WARNED_FAILURES:
            return ""
        return (
            f"\n[The very same call failed the same way {self._same} times in a row, with nothing in between."
            f" At {SAME_FAILURES} times this step ends. Change something first, or answer without it.]"
        )

    def _stuck(self) -> Failed:
        return Failed(
            "same_call",
            f"The model called '{self._call.name}' {self._same} times in a row with the same arguments, and it failed each"
            f" time: {self._said}",
            "Explain the tool in the instruction, remove it, or use a larger model.",
            details={"tool": self._call.name, "arguments": _arguments(self._call).decode()},
        )

    def _too_long(self) -> Failed:
        return Failed(
            "call_cut",
            f"The model's calls to '{self._call.name}' were cut off at its output limit {self._cut} times in a row.",
            "Raise max_tokens, or ask for smaller pieces.",
            details={"tool": self._call.name},
        )


def _again(reply: Reply, wrong: str) -> str:
    cut = f" It was cut off at the output limit{_tokens(reply)}: make it shorter." if reply.finish == "length" else ""
    return f"Your reply cannot be used: {wrong}.{cut} Send the whole reply again, with this corrected."


def _with_reply(context: Context, reply: Reply) -> Context:
    """The context with the reply, unless it is empty: providers reject empty turns."""
    return context.add("assistant", reply.content) if reply.text.strip() else context


def _is_cut(call: ToolCall, reply: Reply) -> bool:
    """Whether the reply was cut off in this call, so its arguments are incomplete or missing."""
    return reply.finish == "length" and (bool(call.malformed) or (call is reply.calls[-1] and not call.arguments))


def _tokens(reply: Reply) -> str:
    return f" ({reply.usage.output:,} tokens)" if reply.usage.output else ""


def _arguments(call: ToolCall) -> bytes:
    return call.malformed.encode("utf-8", "replace") if call.malformed else _encoder.encode(call.arguments)


def _branch(tools: dict[str, CallTool], call: ToolCall, reply: Reply) -> CallTool | Branch:
    if _is_cut(call, reply):
        return _refusal(
            f"This call was not made: your reply was cut off at the output limit{_tokens(reply)} before the arguments of"
            f" '{call.name}' were complete. Send less at a time, for example in several smaller calls."
        )
    if call.name not in tools:
        return _refusal(f"There is no tool named '{call.name}'. Use one of: {', '.join(sorted(tools))}.")
    if call.malformed:
        return _refusal(f"The arguments of '{call.name}' were not a JSON object.")
    tool = tools[call.name]
    return msgspec.structs.replace(tool, arguments=call.arguments, doubt=tool.doubt or "tell")


def _before(made: dict[str, tuple[ToolCall, CallOutcome]], call: ToolCall) -> CallOutcome | None:
    """The outcome of the same call in an earlier turn."""
    known, outcome = made.get(call.id, (None, None))
    return outcome if known == call else None


def _refusal(words: str) -> Branch:
    def start(state: Any) -> Program[str]:
        return words
        yield

    return Branch(start)


def _result(outcome: CallOutcome, tool: CallTool | None) -> ToolResult:
    """The result of a call for the model. If the outcome is unknown, it advises the model to check before repeating the call."""
    if isinstance(outcome, ToolResult):
        return outcome
    open_ended = isinstance(outcome, Failed) and outcome.details.get(UNANSWERED) and tool and not tool.repeatable
    return ToolResult(f"{outcome} {_LOOK}" if open_ended else str(outcome), is_error=True)


def _shown(result: ToolResult) -> str:
    return result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode()
