"""Tool calls and plans as lines of text: one line for each call, or a call with its arguments and its whole result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuebook.service.runs.tool_calls import Plan, ToolUse
from cuebook.surfaces import display

MOST = 40
"""The number of calls that are listed; the latest are shown."""
_STATES = {"running": "running", "waiting": "waiting for a decision", "failed": "failed", "stopped": "not finished"}
_MARKS = {"completed": "x", "in_progress": ">"}


def brief(calls: Sequence[ToolUse], plans: Sequence[Plan]) -> Iterator[str]:
    """A line for each call, and the plans."""
    if len(calls) > MOST:
        yield f"{display.counted(len(calls) - MOST, 'earlier tool call')} not shown; --calls shows all"
    for call in calls[-MOST:]:
        yield f"calls {_headline(call)}"
    for plan in plans:
        yield f"plan: {plan.done} of {len(plan.items)} done"
        for item in plan.items:
            yield f"  [{_MARKS.get(item.status, ' ')}] {display.short(item.text)}"


def whole(calls: Sequence[ToolUse]) -> Iterator[str]:
    """Each call with its arguments and its result."""
    for call in calls:
        kind = "arguments, not a JSON object" if call.malformed else "arguments"
        parts = [f"step {call.step or '-'}: {_headline(call)}\n  id: {call.id}\n{kind}:\n{call.input}"]
        if call.answered:
            parts.append(f"{'error' if call.status == 'failed' else 'result'}:\n{call.result.rstrip()}")
        yield "\n".join(parts)


def _headline(call: ToolUse) -> str:
    first = call.result.strip().partition("\n")[0] if call.status == "failed" else ""
    state = _STATES.get(call.status, "")
    said = f"{state}: {display.short(first)}" if first else state
    spent = display.duration(call.seconds) if call.seconds is not None else ""
    own = f"by {call.agent} itself" if call.agent else ""
    named = f"{call.tool} {display.short(call.headline)}".rstrip()
    return display.joined([one for one in (named, own, said, spent) if one])
