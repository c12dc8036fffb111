"""The calls in a model's reply: what is performed for each, and what the model reads about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import Branch, CallTool, Program
from cuebook.kernel.outcomes import UNANSWERED, Failed, Reply, ToolResult

_encoder = msgspec.json.Encoder(order="sorted")

_LOOK = "It may still have taken effect, in whole or in part: check before you do it again."

MADE = "It was made before."

CallOutcome = ToolResult | Failed | str
"""The outcome of a call. A string says why the call was invalid."""


ENDING = frozenset({"in_doubt", "expired"})
"""Failures of a call that end the conversation: someone stopped the run there, or no one answered in time."""


class Agent(msgspec.Struct, frozen=True):
    """A tool that holds a conversation of its own."""

    start: Callable[[ToolCall], Branch]
    read: Callable[[object], CallOutcome]
    """The outcome of a call, from the plain value that its branch returned."""


Tools = Mapping[str, CallTool | Agent]


def is_cut(call: ToolCall, reply: Reply) -> bool:
    """Whether the reply was cut off in this call, so its arguments are incomplete or missing."""
    return reply.finish == "length" and (bool(call.malformed) or (call is reply.calls[-1] and not call.arguments))


def tokens_of(reply: Reply) -> str:
    return f" ({reply.usage.output:,} tokens)" if reply.usage.output else ""


def arguments_of(call: ToolCall) -> bytes:
    return call.malformed.encode("utf-8", "replace") if call.malformed else _encoder.encode(call.arguments)


def flaw_of(call: ToolCall, reply: Reply, names: list[str]) -> str:
    """Why a call cannot be made, worded for the model; empty if it can."""
    if is_cut(call, reply):
        return (
            f"This call was not made: your reply was cut off at the output limit{tokens_of(reply)} before the arguments of"
            f" '{call.name}' were complete. Send less at a time, for example in several smaller calls."
        )
    if call.name not in names:
        return f"There is no tool named '{call.name}'. Use one of: {', '.join(sorted(names))}."
    return f"The arguments of '{call.name}' were not a JSON object." if call.malformed else ""


def prepared(tool: CallTool, call: ToolCall, *, ends: bool) -> CallTool:
    """The effect of a call. With `ends`, a result that is too long keeps its beginning and its end."""
    given = msgspec.structs.replace(tool, arguments=call.arguments, doubt=tool.doubt or "tell")
    return msgspec.structs.replace(given, ends=True) if ends else given


def branch_of(tools: Tools, call: ToolCall, reply: Reply, version: int) -> CallTool | Branch:
    """What is performed for a call."""
    flaw = flaw_of(call, reply, list(tools))
    if flaw:
        return refusal(flaw)
    tool = tools[call.name]
    return tool.start(call) if isinstance(tool, Agent) else prepared(tool, call, ends=version >= 2)


def read(tools: Tools, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
    """The outcome of a call, from what its branch returned."""
    tool = tools.get(call.name)
    if not isinstance(tool, Agent) or isinstance(outcome, ToolResult | Failed | str):
        return outcome
    return tool.read(outcome)


def end_if_stopped(call: ToolCall, outcome: CallOutcome) -> Failed | None:
    """Ends the conversation only if someone stopped the run or no one answered in time."""
    ends = isinstance(outcome, Failed) and (outcome.code in ENDING or bool(outcome.details.get("in_doubt")))
    return outcome if ends and isinstance(outcome, Failed) else None


def before(made: dict[str, tuple[ToolCall, CallOutcome]], call: ToolCall) -> CallOutcome | None:
    """The outcome of the same call in an earlier turn."""
    known, outcome = made.get(call.id, (None, None))
    return outcome if known == call else None


def refusal(words: str) -> Branch:
    def start(state: Any) -> Program[str]:
        return words
        yield

    return Branch(start)


def result_of(outcome: CallOutcome, tool: Any) -> ToolResult:
    """The result of a call for the model. If the outcome is unknown, it advises the model to check before repeating the call."""
    if isinstance(outcome, ToolResult):
        return outcome
    unknown = isinstance(outcome, Failed) and outcome.details.get(UNANSWERED)
    open_ended = unknown and isinstance(tool, CallTool) and not tool.repeatable
    return ToolResult(f"{outcome} {_LOOK}" if open_ended else str(outcome), is_error=True)


def shown(result: ToolResult) -> str:
    return result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode()


def trimmed(text: str, limit: int, size: int = 0) -> str:
    """The beginning and the end of a text that is longer than `limit` characters, with a note about its true size.

    `size` is the number of bytes that it had before it was cut the first time, if it was.
    """
    if len(text) <= limit:
        return text
    half = max(0, limit // 2)
    whole = size or len(text.encode("utf-8", "replace"))
    head, tail = text[:half], text[len(text) - half :]
    kept = len(head.encode("utf-8", "replace")) + len(tail.encode("utf-8", "replace"))
    return f"{head}\n[{max(0, whole - kept):,} of {whole:,} bytes are left out here]\n{tail}"
