"""The tool calls that models requested in a run, with their results and times, and the plans that they keep.

Folded from the journal, one entry at a time, for every dialect that lets a model call tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.events import (
    BranchFinished,
    Noted,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import Entry, branch_path, same_line, step_at, visit_at
from cuebook.kernel.outcomes import Reply, ToolResult
from cuebook.kernel.tool_names import PLAN

CallStatus = Literal["running", "waiting", "completed", "failed", "stopped"]

_TOOL = "CallTool "
_PLAN_STATUSES = ("pending", "in_progress", "completed")


class PlanItem(msgspec.Struct, frozen=True):
    text: str
    status: str
    """`pending`, `in_progress` or `completed`."""


class Plan(msgspec.Struct, frozen=True):
    """The plan that a model keeps in a step."""

    step: str
    items: tuple[PlanItem, ...]

    @property
    def done(self) -> int:
        return sum(1 for item in self.items if item.status == "completed")


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call."""

    id: str
    """The id that the model gave it, which distinguishes parallel calls of one tool."""
    seq: int
    """The record of the reply that requested it."""
    number: int
    """Its position in that reply, from 0."""
    step: str
    visit: int
    tool: str
    arguments: dict[str, Any] = {}
    malformed: str = ""
    """The arguments as they were received, if they were not a JSON object."""
    path: str = ""
    """The branch that makes the call."""
    asked: float = 0.0
    began: float = 0.0
    """When it began, after any approval."""
    ended: float | None = None
    answered: int = 0
    """The record of its result; 0 while there is none."""
    status: CallStatus = "running"
    result: str = ""
    size: int = 0
    """The size of the result in characters, if it is shown in part."""
    agent: str = ""
    """The coding agent that made the call with a tool of its own, and reports it. Cuebook neither made nor examined it."""
    title: str = ""
    """What such an agent calls it. `tool` is its kind, such as `edit` or `execute`."""

    @property
    def key(self) -> str:
        """Identifies the call in its run."""
        return f"{self.seq}-{self.number}"

    @property
    def seconds(self) -> float | None:
        return None if self.ended is None else max(0.0, self.ended - self.began)

    @property
    def input(self) -> str:
        """The arguments as text: as JSON, or as they were received."""
        return self.malformed or msgspec.json.format(msgspec.json.encode(self.arguments), indent=2).decode()

    @property
    def headline(self) -> str:
        """The most telling argument, on one line."""
        if self.agent:
            return " ".join(self.title.split())
        if self.malformed:
            return "not a JSON object"
        if self.tool == PLAN:
            plan = plan_of(self.step, self.arguments)
            return f"{plan.done} of {len(plan.items)} done"
        for name in _TELLING:
            value = self.arguments.get(name)
            if isinstance(value, str) and value.strip():
                return " ".join(value.split())
        plain = [f"{name}: {value}" for name, value in self.arguments.items() if isinstance(value, str | int | float)]
        return " ".join(" ".join(plain).split())


_TELLING = ("command", "path", "file_path", "pattern", "query", "url", "description", "bash_id", "shell_id", "title")


class ToolCalls:
    """All tool calls of a run, in the order in which models requested them."""

    def __init__(self, longest: int | None = None) -> None:
        """`longest` is the number of characters that are kept of a result: its beginning and its end."""
        self._longest = longest
        self.calls: dict[str, ToolUse] = {}
        """By their keys."""
        self._branches: dict[str, str] = {}
        """The keys of calls by the branches that make them."""
        self._plans: list[tuple[int, str, Plan]] = []
        """Every version of a plan, with the record and the branch of its call."""
        self._own: dict[tuple[str, str, int, str], str] = {}
        """The keys of the calls that coding agents made themselves, by branch, step, visit and the agent's id for it."""

    @property
    def plans(self) -> list[Plan]:
        """The current plan of each step that has one, the latest last."""
        latest: dict[tuple[str, str], Plan] = {}
        for _, path, plan in self._plans:
            latest.pop((path, plan.step), None)
            latest[path, plan.step] = plan
        return [plan for plan in latest.values() if plan.items]

    @property
    def plan_versions(self) -> int:
        """How often plans were written. It changes whenever `plans` may."""
        return len(self._plans)

    def see(self, entry: Entry) -> list[str]:
        """Applies the next entry; returns the keys of the calls that it adds or changes, including removed ones."""
        event, path = entry.event, entry.place.path
        match event:
            case Performed(outcome=Reply(calls=calls)) if calls:
                return [self._add(entry, number, call) for number, call in enumerate(calls)]
            case Performing() if path in self._branches:
                return self._change(path, began=entry.at, status="running")
            case WaitOpened() if path in self._branches:
                return self._change(path, status="waiting")
            case WaitClosed() if path in self._branches:
                return self._change(path, status="running", began=entry.at)
            case Performed(outcome=outcome, fingerprint=made) if path in self._branches and made.startswith(_TOOL):
                return self._answer(entry, outcome)
            case BranchFinished() if path in self._branches:
                return self._answer(entry, event.failed or event.value)
            case Noted(name="agent_call", data={"agent": str(agent), "call": str(named), "status": str(status)}):
                return self._report(entry, agent, named, status, event.data)
            case Noted(name="agent_plan", data={"entries": [*items]}):
                step = step_at(entry.place)
                self._plans.append((entry.seq, path, plan_of(step, {"todos": items})))
            case Rewound():
                return self._rewind(event)
            case RunFinished():
                under_way = [call for call in self.calls.values() if call.status in ("running", "waiting")]
                for call in under_way:
                    self.calls[call.key] = msgspec.structs.replace(call, status="stopped")
                return [call.key for call in under_way]
        return []

    def _add(self, entry: Entry, number: int, call: ToolCall) -> str:
        place = entry.place
        step, visit = visit_at(place)
        # The calls in a reply are the branches of the visit's next `All`.
        path = branch_path(place.path, place.step, place.visit, place.index + 1, number)
        made = ToolUse(
            id=call.id,
            seq=entry.seq,
            number=number,
            step=step,
            visit=visit,
            tool=call.name,
            arguments=call.arguments,
            malformed=call.malformed,
            path=path,
            asked=entry.at,
            began=entry.at,
        )
        self.calls[made.key] = made
        self._branches[path] = made.key
        return made.key

    def _report(self, entry: Entry, agent: str, call: str, status: str, data: Mapping[str, Any]) -> list[str]:
        """A call that a coding agent made itself, as it reports it: at its beginning and whenever its status changes."""
        place = entry.place
        step, visit = visit_at(place)
        known = (place.path, place.step, place.visit, call)
        before = self.calls.get(self._own.get(known, ""))
        if before is None:
            before = ToolUse(
                id=call,
                seq=entry.seq,
                number=0,
                step=step,
                visit=visit,
                tool=str(data.get("kind", "")),
                path=place.path,
                asked=entry.at,
                began=entry.at,
                agent=agent,
            )
            self._own[known] = before.key
        given, paths = str(data.get("input", "")), data.get("paths")
        ended = status in ("completed", "failed")
        shown, size = self._shortened(str(data.get("output", "")))
        self.calls[before.key] = msgspec.structs.replace(
            before,
            title=str(data.get("title", "")),
            arguments={**({"paths": paths} if paths else {}), **({"input": given} if given else {})},
            status=status if ended else "running",
            **({"ended": entry.at, "answered": entry.seq, "result": shown, "size": size} if ended else {}),
        )
        return [before.key]

    def _change(self, path: str, **changes: Any) -> list[str]:
        key = self._branches[path]
        self.calls[key] = msgspec.structs.replace(self.calls[key], **changes)
        return [key]

    def _answer(self, entry: Entry, outcome: Any) -> list[str]:
        if isinstance(outcome, dict):  # of a sub-agent
            from cuebook.kernel.conversation.subagents import result_of_branch

            outcome = result_of_branch(outcome) or outcome
        good = isinstance(outcome, ToolResult) and not outcome.is_error
        said = outcome.value if isinstance(outcome, ToolResult) else str(outcome)
        text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
        shown, size = self._shortened(text)
        status = "completed" if good else "failed"
        key = self._branches[entry.place.path]
        call = self.calls[key]
        if good and call.tool == PLAN:
            self._plans.append((entry.seq, entry.place.path.rpartition("/")[0], plan_of(call.step, call.arguments)))
        return self._change(
            entry.place.path, ended=entry.at, answered=entry.seq, status=status, result=shown, size=size
        )

    def _shortened(self, text: str) -> tuple[str, int]:
        if self._longest is None or len(text) <= self._longest:
            return text, 0
        half = self._longest // 2
        left = len(text) - 2 * half
        return f"{text[:half]}\n[{left:,} of {len(text):,} characters are left out here]\n{text[-half:]}", len(text)

    def _rewind(self, event: Rewound) -> list[str]:
        changed: list[str] = []
        self._plans = [one for one in self._plans if one[0] < event.seq or not same_line(one[1], event.path)]
        for key, call in list(self.calls.items()):
            if call.seq >= event.seq and same_line(call.path, event.path):
                del self.calls[key]
                if not call.agent:
                    del self._branches[call.path]
                changed.append(key)
            elif call.status == "stopped" or (call.answered >= event.seq and same_line(call.path, event.path)):
                self.calls[key] = msgspec.structs.replace(
                    call, ended=None, answered=0, status="running", result="", size=0
                )
                changed.append(key)
        return changed


def plan_of(step: str, arguments: Mapping[str, Any]) -> Plan:
    """The plan in the arguments of a call that was accepted."""
    items = arguments.get("todos")
    found = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    return Plan(step, tuple(PlanItem(" ".join(_words(one).split()), _status(one)) for one in found))


def _words(item: Mapping[str, Any]) -> str:
    return next((str(item[name]) for name in ("content", "text", "step", "title", "task") if item.get(name)), "")


def _status(item: Mapping[str, Any]) -> str:
    status = item.get("status")
    return status if status in _PLAN_STATUSES else "pending"


def tool_calls_of(entries: Iterable[Entry]) -> ToolCalls:
    """The tool calls of a whole journal, with their full results."""
    made = ToolCalls()
    for entry in entries:
        made.see(entry)
    return made


def call_object(call: ToolUse) -> dict[str, Any]:
    """A call as plain values, in the form that `--json`, REST and MCP share."""
    return {
        "id": call.id,
        "step": call.step,
        "visit": call.visit,
        "tool": call.tool,
        **({"agent": call.agent, "title": call.title} if call.agent else {}),
        **({"malformed": call.malformed} if call.malformed else {"arguments": call.arguments}),
        "status": call.status,
        "result": call.result if call.answered else None,
        **({"size": call.size} if call.size else {}),
        "started": call.began,
        "seconds": call.seconds,
    }


def plan_object(plan: Plan) -> dict[str, Any]:
    return {"step": plan.step, "items": [{"text": one.text, "status": one.status} for one in plan.items]}
