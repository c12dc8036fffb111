"""`Task`: a tool with which a model hands a piece of work to a sub-agent, a conversation of its own.

A sub-agent has a part of the tools and its own limit of turns. It sees the prompt it is given, not the conversation that
started it, and only its final text comes back. It has no `Task` itself, so there is one level of them. Its turns are taken from
those of the conversation that started it, before it begins, and those that it did not need are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.kernel.context import Context, ToolCall
from cuebook.kernel.conversation.calls import Agent, CallOutcome, refusal
from cuebook.kernel.conversation.loop import VERSION, Talk, Turns, converse
from cuebook.kernel.effects import All, AskModel, Branch, CallTool, Program, ToolSpec
from cuebook.kernel.interception import intercepted
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult, Usage

TASK = "Task"
TURNS = 10
"""The turns of a sub-agent if the model does not say how many it may take."""
MAX_TURNS = 30
"""The most turns that a model may give to a sub-agent."""
_SPARE = 2
"""The calls that a sub-agent may need in addition to its turns: a summary and a closing turn."""

_ENDING = frozenset({"in_doubt", "expired", "cancelled", "denied"})
_ROLE = (
    "You are a sub-agent: another agent has given you one piece of its work. Do it with your tools, without asking back. Your"
    " last reply is all that the other agent receives, so it must hold everything that was asked for."
)


class Spending(msgspec.Struct, frozen=True):
    """What a finished sub-agent has used, as its branch reports it."""

    tokens: int = 0
    money: float = 0.0
    unknown: bool = False


class _Report(msgspec.Struct, frozen=True):
    """What the branch of a sub-agent returns, as plain values."""

    text: str
    is_error: bool = False
    spent: Spending = Spending()
    unused: int = 0
    """The turns that it did not need."""


class SubAgent(Branch, frozen=True):
    """The branch of a sub-agent."""


def spending_of(value: Any) -> Spending | None:
    """What a sub-agent has used, from the plain value of its branch; None for any other value."""
    report = _report(value)
    return None if report is None else report.spent


def result_of_branch(value: Any) -> ToolResult | None:
    """The result of a sub-agent, from the plain value of its branch; None for any other value."""
    report = _report(value)
    return None if report is None else ToolResult(report.text, report.is_error)


def _report(value: Any) -> _Report | None:
    if not isinstance(value, dict) or "text" not in value or "spent" not in value:
        return None
    try:
        return msgspec.convert(value, _Report)
    except msgspec.ValidationError:
        return None


def task_spec(names: list[str]) -> ToolSpec:
    """`Task` as a model sees it. `names` are the tools that a sub-agent may have."""
    properties = {
        "description": {"type": "string", "description": "What the task is, in a few words."},
        "prompt": {
            "type": "string",
            "description": "The whole task. The sub-agent does not see this conversation: say everything it needs to know,"
            " and what it should report.",
        },
        "tools": {
            "type": "array",
            "items": {"type": "string", "enum": names},
            "description": "The tools that it may use. If omitted, all of these.",
        },
        "max_turns": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TURNS,
            "description": f"The limit of its turns; {TURNS} if omitted.",
        },
    }
    return ToolSpec(
        TASK,
        "Hands a piece of work to a sub-agent with a conversation of its own, and returns its final report. Use it for work"
        " that needs many tool calls but whose details you do not need, such as a search through many files. Several tasks in"
        " one reply run at the same time.",
        {"type": "object", "properties": properties, "required": ["prompt"]},
    )


def task_tool(
    ask: AskModel, tools: Mapping[str, CallTool], turns: Turns, *, shared: bool = True, version: int = VERSION
) -> Agent:
    """The tool `Task` of a conversation. `ask` gives the model and its settings; `tools` are those that it may pass on; `turns`
    are the model calls that all sub-agents together may make. If they are `shared` with the conversation itself, one turn is
    left for it, and turns that a sub-agent did not need are returned.
    """
    offered = {spec.name: spec for spec in ask.tools if spec.name in tools}

    def start(call: ToolCall) -> Branch:
        task = _task(call, offered, turns.left - 1 if shared else turns.left)
        if isinstance(task, str):
            return refusal(task)
        turns.left -= task.turns + _SPARE
        turns.given += task.turns + _SPARE
        return SubAgent(lambda state: _work(ask, offered, tools, task, shared, version))

    def read(value: object) -> CallOutcome:
        report = _report(value)
        if report is None:
            return Failed("bad_report", "The sub-agent returned nothing that can be read.")
        turns.left += report.unused
        turns.given -= report.unused
        return ToolResult(report.text, report.is_error)

    return Agent(start, read)


class _Task(msgspec.Struct, frozen=True):
    prompt: str
    tools: tuple[str, ...]
    turns: int


def _task(call: ToolCall, offered: Mapping[str, ToolSpec], left: int) -> _Task | str:
    """The task in a call, or why it cannot be given, worded for the model."""
    prompt, wanted, turns = call.arguments.get("prompt"), call.arguments.get("tools"), call.arguments.get("max_turns")
    if not isinstance(prompt, str) or not prompt.strip():
        return f"'{TASK}' needs a prompt: the whole task, as text."
    if wanted is not None and not (isinstance(wanted, list) and all(isinstance(one, str) for one in wanted)):
        return f"'tools' of '{TASK}' must be a list of names."
    unknown = [one for one in wanted or () if one not in offered]
    if unknown:
        return f"A sub-agent cannot have {', '.join(unknown)}. It can have: {', '.join(offered) or 'no tools'}."
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or not 1 <= turns <= MAX_TURNS):
        return f"'max_turns' of '{TASK}' must be a whole number from 1 to {MAX_TURNS}."
    if left <= _SPARE:
        return "No turns are left for sub-agents. Do this yourself."
    if turns is not None and turns + _SPARE > left:
        return f"Only {left - _SPARE} turns are left for sub-agents. Give it fewer turns, or do this yourself."
    names = tuple(offered) if wanted is None else tuple(name for name in offered if name in wanted)
    return _Task(prompt, names, turns or min(TURNS, left - _SPARE))


def _work(
    ask: AskModel,
    offered: Mapping[str, ToolSpec],
    tools: Mapping[str, CallTool],
    task: _Task,
    shared: bool,
    version: int,
) -> Program[Any]:
    child = msgspec.structs.replace(
        ask,
        prompt=task.prompt,
        context=Context().add("system", _ROLE),
        schema=None,
        tools=tuple(offered[name] for name in task.tools),
    )
    talk, used = Talk(), _Used()
    work = converse(
        child,
        {name: tools[name] for name in task.tools},
        max_turns=task.turns,
        talk=talk,
        flaw=lambda reply: "" if reply.text.strip() else "it is empty",
        version=version,
        closes=True,
        summaries=1,
    )

    def report(text: str, is_error: bool) -> Any:
        if not shared:
            return msgspec.to_builtins(_Report(text, is_error, _spent([reply.usage for reply in talk.replies])))
        unused = max(0, task.turns + _SPARE - used.calls)
        return msgspec.to_builtins(_Report(text, is_error, _spent(used.usages), unused))

    try:
        yield from intercepted(work, lambda asked: asked, used.see, used.failing)
    except EffectFailed as error:
        if error.failed.code in _ENDING:
            raise
        said = next((reply.text for reply in reversed(talk.replies) if reply.text.strip()), "")
        words = f"The sub-agent failed: {error.failed}" + (f"\nIts last words were: {said}" if said else "")
        return report(words, True)
    return report(talk.reply.text, not talk.reply.text.strip())


class _Used:
    """Every model call of a sub-agent, with summaries, the closing turn and replies that could not be used."""

    def __init__(self) -> None:
        self.calls = 0
        self.usages: list[Usage] = []

    def see(self, asked: Any, outcome: Any) -> None:
        for one in outcome if isinstance(asked, All) else (outcome,):
            if isinstance(one, Reply):
                self.calls += 1
                self.usages.append(one.usage)
            elif isinstance(one, Failed):
                self.failing(one)

    def failing(self, failed: Failed) -> None:
        used = failed.details.get("usage")
        if used:
            self.calls += 1
            self.usages.append(msgspec.convert(used, Usage))


def _spent(usages: list[Usage]) -> Spending:
    return Spending(
        sum(one.input + one.output for one in usages),
        sum(one.cost or 0.0 for one in usages),
        any(one.cost is None for one in usages),
    )
