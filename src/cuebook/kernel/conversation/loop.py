"""The conversation itself: call a model, make the tool calls it requests, call it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from cuebook.kernel.context import EMPTY, Context, ToolCall
from cuebook.kernel.conversation.calls import (
    ENDING,
    MADE,
    CallOutcome,
    Tools,
    before,
    branch_of,
    end_if_stopped,
    read,
    refusal,
    result_of,
    shown,
    tokens_of,
)
from cuebook.kernel.conversation.compaction import SUMMARIES, Window
from cuebook.kernel.conversation.relay import relayed
from cuebook.kernel.conversation.repeats import Repeats
from cuebook.kernel.effects import All, AskModel, CallTool, Program
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult

VERSION = 2
"""The version of this program: 1 has neither compaction nor a closing turn, and keeps the beginning of long results only.

A dialect passes the version that its own interpreter began with, so that a replay takes the same path.
"""

REPAIRS = 2
"""How often a model is called again after an unusable reply."""

LAST_CALL = "last_call"
"""Key in the details of a failure: a limit is nearly reached, and there is room for one last call."""

Heard = Callable[[ToolCall, CallOutcome], Failed | None]
"""Receives the outcome of a call; returns the failure that ends the conversation, or None."""

Flaw = Callable[[Reply], str]
"""Returns the problem with a final reply, worded for the model, or an empty string."""


class Turns:
    """The model calls that a conversation and its sub-agents may still make, together."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most
        self.given = 0
        """How many of them sub-agents have made, or are making."""


class Talk(msgspec.Struct):
    """A conversation so far. A caller that passes in a `Talk` keeps it even if the conversation fails."""

    replies: list[Reply] = []
    calls: list[tuple[ToolCall, ToolResult]] = []
    context: Context = EMPTY
    """Everything before the last reply."""
    closed: bool = False
    """Whether a limit was reached and the last reply is what the model could say by then."""

    @property
    def reply(self) -> Reply:
        return self.replies[-1]


def converse(
    ask: AskModel,
    tools: Mapping[str, CallTool] | Tools,
    *,
    max_turns: int | Turns = 20,
    max_calls: int | None = None,
    talk: Talk | None = None,
    heard: Heard = end_if_stopped,
    flaw: Flaw | None = None,
    version: int = VERSION,
    closes: bool = False,
    summaries: int = SUMMARIES,
) -> Program[Talk]:
    """Calls the model until it calls no more tools.

    `tools` maps the name that a model sees to a call, which receives the model's arguments. A tool's failure is returned to
    the model as the result of that call. It ends the conversation only if `heard` returns a failure, or if the same calls keep
    failing the same way with nothing in between. `heard` receives the outcome of every call.

    With `max_calls`, a call that the model repeats under the same id counts once: it is not made again, and the model gets
    its earlier result.

    With `flaw`, the model is asked to correct a flawed final reply, at most `REPAIRS` times and within `max_turns`. Each
    attempt is noted as `repair`. The caller judges the final reply.

    `max_turns` may be shared with the conversations of sub-agents.

    A conversation that fills its model's window is compacted; see `compaction`. With `closes`, a model that runs out of
    turns, room or budget is asked once more, without tools, for its best answer; otherwise the conversation fails.
    `summaries` is the number of additional calls that compaction may make.
    """
    ask = msgspec.structs.replace(ask, relays=True)
    talk = talk if talk is not None else Talk()
    made: dict[str, tuple[ToolCall, CallOutcome]] = {}
    count = repairs = 0
    repeats = Repeats()
    window = Window(ask, summaries) if version >= 2 else None
    turns = max_turns if isinstance(max_turns, Turns) else Turns(max_turns)
    while turns.left > 0:
        turns.left -= 1
        if window is None:
            reply: Reply = yield from relayed(ask, tools)
        else:
            ask = yield from window.fitted(ask)
            if closes and window.is_full(ask):
                return (yield from _closed(ask, talk, _full()))
            try:
                ask, reply = yield from window.asked(ask, lambda one: relayed(one, tools, version))
            except EffectFailed as error:
                if not closes or not talk.replies or not error.failed.details.get(LAST_CALL):
                    raise
                return (yield from _closed(ask, talk, error.failed))
        talk.replies.append(reply)
        context = talk.context = ask.context.add("user", ask.prompt) if ask.prompt else ask.context
        if not reply.calls:
            wrong = flaw(reply) if flaw is not None and repairs < REPAIRS and turns.left > 0 else ""
            if not wrong:
                return talk
            repairs += 1
            yield Noted("repair", {"number": repairs, "most": REPAIRS, "problems": [wrong]})
            ask = msgspec.structs.replace(
                ask, prompt=_again(reply, wrong), context=_with_reply(context, reply), session=reply.session
            )
            continue
        known = [before(made, call) if max_calls is not None else None for call in reply.calls]
        count += known.count(None)
        if max_calls is not None and count > max_calls:
            raise EffectFailed(Failed("too_many_calls", f"The model requested more than {max_calls} tool calls."))
        context = context.add("assistant", reply.content, calls=reply.calls, thinking=reply.thinking)
        # One branch for each call, even an invalid one: readers of the journal find them by number.
        calls = list(zip(reply.calls, known, strict=True))
        given = yield All(
            tuple(branch_of(tools, call, reply, version) if one is None else refusal(MADE) for call, one in calls)
        )
        outcomes = [one or read(tools, call, now) for (call, one), now in zip(calls, given, strict=True)]
        endings = [heard(*one) or end_if_stopped(*one) for one in zip(reply.calls, outcomes, strict=True)]
        answered: list[tuple[ToolCall, ToolResult]] = []
        for call, outcome, ended in zip(reply.calls, outcomes, endings, strict=True):
            if ended is not None:
                raise EffectFailed(ended)
            made[call.id] = (call, outcome)
            answered.append((call, result_of(outcome, tools.get(call.name))))
            talk.calls.append(answered[-1])
        repeats.see(reply, answered)
        note = repeats.note()
        texts = [shown(result) for _, result in answered]
        for (call, result), text in zip(
            answered, texts if window is None else window.trim(answered, texts), strict=True
        ):
            said, files = f"{text}{note}", result.attachments
            context = context.add("tool", said, call_id=call.id, is_error=result.is_error, attachments=files)
        ask = msgspec.structs.replace(ask, prompt="", context=context)
    given = f", of which its sub-agents used {turns.given}" if turns.given else ""
    failed = Failed("too_many_turns", f"The model did not finish within {turns.most} turns{given}.")
    if window is None or not closes:
        raise EffectFailed(failed)
    ask = yield from window.fitted(ask)
    return (yield from _closed(ask, talk, failed))


# --- the closing turn ---------------------------------------------------------------------------------------


def _closed(ask: AskModel, talk: Talk, why: Failed) -> Program[Talk]:
    """Asks once for the best answer, without tools. Fails with `why` if there is none."""
    yield Warned("closing_turn", f"{why.message} The model was asked for its best answer without further tool calls.")
    # Without `relays`, a coding agent can only look, and its requests are refused.
    ask = msgspec.structs.replace(ask, prompt=_closing(why, ask), may_call=False, relays=False)
    try:
        reply: Reply = yield ask
    except EffectFailed as error:
        code = error.failed.code
        ended = code in ENDING or code in ("cancelled", "denied")
        raise (error if ended else EffectFailed(why)) from None
    if not reply.text.strip():
        raise EffectFailed(why)
    talk.replies.append(reply)
    talk.context, talk.closed = ask.context.add("user", ask.prompt), True
    return talk


def _closing(why: Failed, ask: AskModel) -> str:
    earlier = f"{ask.prompt}\n\n" if ask.prompt else ""
    return (
        f"{earlier}[{why.message}] You cannot call tools any more. Give your best final answer now, from what you know so far,"
        " in the form that the task asks for. Say what is done, what is not, and what you could not check."
    )


def _full() -> Failed:
    return Failed(
        "context_too_long",
        "The conversation has filled the model's window, and removing its earlier turns no longer makes enough room.",
        "Split the step, or choose a model with a larger window.",
    )


# --- repairs ------------------------------------------------------------------------------------------------


def _again(reply: Reply, wrong: str) -> str:
    cut = f" It was cut off at the output limit{tokens_of(reply)}: make it shorter." if reply.finish == "length" else ""
    return f"Your reply cannot be used: {wrong}.{cut} Send the whole reply again, with this corrected."


def _with_reply(context: Context, reply: Reply) -> Context:
    """The context with the reply, unless it is empty: providers reject empty turns."""
    return context.add("assistant", reply.content) if reply.text.strip() else context
