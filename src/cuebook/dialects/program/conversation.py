"""A program's run, computed from its journal: the conversation, executed lines, stack, variables and refusals.

A checkpoint is authoritative for the state of the frames.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.presentation.panels import Line, LineStatus
from cuebook.dialects.presentation.panels import Listing as ListingContent
from cuebook.dialects.presentation.projection import Conversation, ProgramRun, Refusal, Said, StackFrame, Variable
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.frames import Frame, QueuedCall
from cuebook.dialects.program.machine.prompts import CHECK, shown
from cuebook.dialects.program.machine.turns import SAYS
from cuebook.dialects.program.model import Playbook, ProgramText
from cuebook.dialects.program.reply.items import Call, ReplyItem
from cuebook.dialects.program.reply.reader import ReplyReader
from cuebook.dialects.program.values.expressions import Expression, Words
from cuebook.dialects.program.values.expressions import Literal as Known
from cuebook.dialects.program.values.placeholders import interpolated
from cuebook.kernel.effects import Send
from cuebook.kernel.events import (
    Checkpointed,
    Forked,
    ModelAsked,
    Noted,
    Performed,
    Performing,
    Rewound,
    RunFinished,
    StepStarted,
    ValueSet,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import ROOT, Entry, Key, without_void
from cuebook.kernel.outcomes import Answer, Resumed

_CALLED = re.compile(r"\S+ (?:\$\w+ = )?(?:[\w.]+\.)?(?P<name>\w+)\(")
"""A pending call, as in `StackFrame.pending`."""
_USER = ("user", "human")
_LONG = 100
"""The maximum length of a value in a line, in characters."""


class ProgramConversation(Conversation):
    """Folds the entries of a run. Given the program, it also finds the declared types of variables."""

    def __init__(self, program: ProgramText | None = None) -> None:
        self._program = program
        self._declares: dict[str, dict[str, str]] = {}
        """The types that the listings of an agent declare, by agent; filled on first use."""
        self._begin()

    @classmethod
    def of(cls, entries: Iterable[Entry], program: ProgramText | None = None) -> ProgramConversation:
        """Return the conversation after these entries."""
        made = cls(program)
        for entry in entries:
            made.see(entry)
        return made

    def _begin(self) -> None:
        self.said: list[Said] = []
        self.lines: list[str] = []
        """The labels of the executed lines, as in `Main:02`."""
        self.times: dict[str, int] = {}
        """How often each line was executed."""
        self.variables: dict[str, dict[str, Any]] = {}
        """By agent, then by name."""
        self.warnings: list[str] = []
        self.verdicts: list[str] = []
        """As in `C5:R`."""
        self.refused: list[Refusal] = []
        self.triggers: list[str] = []
        self.calls: list[str] = []
        self.model_calls = 0
        self._without: dict[str, int] = {}
        """The number of lines that needed no model, by branch, according to the journal."""
        self.at_least = False
        self.question = ""
        """The last question to the user."""
        self.result: Any = None
        self.ended = False
        self.failed = False
        self._types: dict[str, dict[str, str]] = {}
        self._stacks: dict[str, list[StackFrame]] = {}
        self._failing: list[StackFrame] = []
        """The stack at the first failure."""
        self._sent: set[Key] = set()
        self._entries: list[Entry] = []

    # --- state ---

    @property
    def stack(self) -> list[StackFrame]:
        """The frames from bottom to top, concurrent calls one after the other. For a failed run, the stack at the
        failure."""
        return self._now() or self._failing

    def _now(self) -> list[StackFrame]:
        return [frame for path in sorted(self._stacks) for frame in self._stacks[path]]

    @property
    def without_model(self) -> int:
        """The number of lines that needed no model. Before the run ends, the count of its last checkpoint."""
        return sum(self._without.values())

    @property
    def line_count(self) -> int:
        """The number of executed lines, without playbooks that have no listing."""
        return sum(":" in label for label in self.lines)

    def typed(self) -> dict[str, list[Variable]]:
        """The variables by agent, each with its type. Internal variables, whose names begin with `_`, are left out."""
        return {
            agent: [
                Variable(name, self.type_of(agent, name, value), value)
                for name, value in variables.items()
                if not name.startswith("_")
            ]
            for agent, variables in self.variables.items()
        }

    def type_of(self, agent: str, name: str, value: Any) -> str:
        """The declared type, or else the type of the value."""
        declared = self._types.get(agent, {}).get(name) or self._declared(agent).get(name)
        return declared or ("null" if value is None else type(value).__name__)

    def _declared(self, agent: str) -> dict[str, str]:
        if self._program is None or agent not in self._program.agents:
            return {}
        if agent in self._declares:
            return self._declares[agent]
        found = self._declares[agent] = {}
        for playbook in self._program.agents[agent].playbooks.values():
            for name, type in Listing.of(playbook).declared.items():
                if type:
                    found.setdefault(name, type)
        return found

    def playbook_of(self, frame: StackFrame) -> Playbook | None:
        """The playbook that a frame executes; None if it is remote or the program is unknown."""
        agent = self._program.agents.get(frame.agent) if self._program is not None else None
        return agent.playbooks.get(frame.playbook) if agent is not None else None

    def listing(self, frame: StackFrame) -> ListingContent:
        playbook = self.playbook_of(frame)
        kind = playbook.kind if playbook is not None else "external"
        return ListingContent(
            _signature(frame, playbook),
            self.lines_of(playbook, frame.line) if playbook is not None else (),
            tuple(f"{note.id}: {note.text}" for note in playbook.notes) if playbook is not None else (),
            empty=f"This {kind} playbook has no listing.",
        )

    def lines_of(self, playbook: Playbook, current: str) -> tuple[Line, ...]:
        """The lines of a playbook, with the current line marked."""
        found = []
        for line in playbook.steps:
            times = self.times.get(f"{playbook.name}:{line.number}", 0)
            status: LineStatus = "passed" if times else ""
            if line.number == current:
                status = "failed" if self.failed else "current"
            found.append(Line(line.number, line.text, line.code, line.number.count("."), status, times))
        return tuple(found)

    def agent_at(self, path: str) -> str:
        """The agent that acts on a branch: the agent of its top frame, or of the frame that started the branch."""
        top = self.top_at(path)
        return top.agent if top is not None else ""

    def top_at(self, path: str) -> StackFrame | None:
        while path and not self._stacks.get(path):
            path = path[:-1].rpartition("/")[0]
            path = f"{path}/" if path else ""
        stack: Sequence[StackFrame] = self._stacks.get(path, ())
        return stack[-1] if stack else None

    def as_object(self) -> dict[str, Any]:
        return {
            "conversation": [msgspec.to_builtins(one) for one in self.said],
            "lines": list(self.lines),
            "stack": [msgspec.to_builtins(frame) for frame in self.stack],
            "variables": {
                agent: [msgspec.to_builtins(one, enc_hook=str) for one in several]
                for agent, several in self.typed().items()
            },
            "refused": [msgspec.to_builtins(one) for one in self.refused],
            "triggers": list(self.triggers),
            "turns": self.model_calls,
            "without_model": self.without_model,
        }

    def program_run(self) -> ProgramRun:
        ended: dict[str, Any] = self.result if isinstance(self.result, dict) else {}
        return ProgramRun(
            said=tuple(self.said),
            lines=tuple(self.lines),
            calls=tuple(self.calls),
            stack=tuple(self.stack),
            variables={**self.variables, **ended.get("variables", {})},
            triggers=tuple(self.triggers),
            refusals=tuple(self.refused),
            value=ended.get("value"),
            exited=bool(ended.get("exited")),
            turns=ended.get("model_calls", self.model_calls),
            without_model=self.without_model,
        )

    def changes(self, entry: Entry) -> list[str]:
        match entry.event:
            case StepStarted(label, title):
                return [f"{label} {title}".rstrip()]
            case ModelAsked(model=model):
                return [f"  asks {model}"]
            case ValueSet(name, value) if not name.startswith("_"):
                return [f"  ${name} = {_brief(value)}"]
            case Noted("called", data):
                given = ", ".join(f"{name}={_brief(value)}" for name, value in data["arguments"].items())
                return [f"  call {data['playbook']}({given}), stack: {self._stack_words()}"]
            case Noted("returned", {"playbook": playbook, "error": error}):
                return [f"  {playbook} failed: {error['message']}, stack: {self._stack_words()}"]
            case Noted("returned", data):
                value = f" {_brief(data['value'])}" if data.get("value") is not None else ""
                return [f"  {data['playbook']} returned{value}, stack: {self._stack_words()}"]
            case Noted("trigger", data):
                return [f"  trigger {data['id']}"]
        return []

    def _stack_words(self) -> str:
        frames = [f"{frame.playbook}:{frame.line}".rstrip(":") for frame in self.stack]
        return " > ".join(frames) or "empty"

    def speaker(self, asked: Entry) -> str | None:
        event = asked.event
        if not isinstance(event, ModelAsked) or str(event.prompt).startswith(CHECK):
            return None
        top = self.top_at(asked.place.path)
        playbook = self.playbook_of(top) if top is not None else None
        return None if playbook is not None and playbook.kind == "raw" else self.agent_at(asked.place.path)

    def position(self, path: str) -> str:
        top = self.top_at(path)
        if top is None:
            return ""
        return f"line {top.line} of {top.playbook}" if top.line else top.playbook

    def spoken(self, reply: str) -> list[str]:
        return spoken_in(ReplyReader(), reply)

    # --- folding ---

    def see(self, entry: Entry) -> list[Said]:
        """Process the next entry and return what was said in it."""
        before = len(self.said)
        if isinstance(entry.event, Rewound):
            return self._again(entry)
        self._entries.append(entry)
        self._take(entry)
        return self.said[before:]

    def _again(self, rewound: Entry) -> list[Said]:
        """Start over, without the entries that the rewind voids."""
        kept = without_void([*self._entries, rewound])
        self._begin()
        for entry in kept:
            self.see(entry)
        return []

    def _take(self, entry: Entry) -> None:
        path = entry.place.path
        stack = self._stacks.setdefault(path, [])
        match entry.event:
            case Performing(Send(text=text, to=to)) if entry.place.key not in self._sent:
                self._sent.add(entry.place.key)
                self.said.append(Said("program", text, to, self.agent_at(path)))
                self._done(path)
                _ran(stack, SAYS)
            case Performed(Answer(value)):
                self.said.append(Said("user", value, "program", self.agent_at(path)))
            case Performed(Resumed(overrides)):
                for name, value in overrides.items():
                    self._set(path, name.removeprefix("$"), value)
            case WaitOpened(kind="question", prompt=prompt):
                self.question = prompt
                self._done(path)
            case Forked(values=values):
                for name, value in values.items():
                    self._set(path, name.removeprefix("$"), value)
            case StepStarted(label):
                self._failing = []
                self.at_least = True
                self.lines.append(label)
                self.times[label] = self.times.get(label, 0) + 1
                if stack and ":" in label:
                    stack[-1].line, stack[-1].status = label.rpartition(":")[2], "arrived"
            case ValueSet(name, value):
                self._set(path, name, value)
                self._done(path)
            case Noted(name, data):
                self._noted(path, name, data)
            case Warned(_, message):
                self.warnings.append(message)
            case ModelAsked():
                self.model_calls += 1
            case Checkpointed(state):
                self._checkpointed(path, state)
            case RunFinished(status, result):
                self.ended = True
                self.failed = status != "completed"
                if status == "completed":
                    self.result = result
                    self._stacks.clear()
                    self._failing = []
                    if isinstance(result, Mapping):
                        self._count(ROOT, result.get("without_model", self.without_model))
            case _:
                pass

    def _noted(self, path: str, name: str, data: Mapping[str, Any]) -> None:
        stack = self._stacks[path]
        match name:
            case "called":
                self._done(path)
                self._failing = []
                stack.append(StackFrame(data["agent"], data["playbook"], dict(data["arguments"])))
                self.calls.append(data["playbook"])
            case "returned" if stack:
                if "error" in data and not self._failing:
                    self._failing = self._now()
                _ran(stack[:-1], {stack.pop().playbook})
            case "verdicts":
                self.verdicts += [f"{one['rule']}:{one['policy']}" for one in data["verdicts"]]
            case "refused":
                self.refused.append(msgspec.convert(data, Refusal))
            case "trigger":
                self.triggers.append(data["id"])
            case "stopped":
                self._count(path, data["without_model"])

    def _done(self, path: str) -> None:
        """Record that something took effect at the frame's current line."""
        stack = self._stacks.get(path)
        if stack:
            stack[-1].status = "done"

    def _count(self, path: str, without_model: int) -> None:
        """Store the count of a branch. It includes the branches it started, which have ended by then."""
        self._without = {one: number for one, number in self._without.items() if not one.startswith(path)}
        self._without[path] = without_model
        self.at_least = False

    def _set(self, path: str, name: str, value: Any) -> None:
        top = self.top_at(path)
        if top is not None and name in top.arguments:
            top.arguments[name] = value
        else:
            self.variables.setdefault(self.agent_at(path), {})[name] = value

    def _checkpointed(self, path: str, state: Mapping[str, Any]) -> None:
        """Restore the position and the pending calls of every frame, and the types of variables."""
        self._stacks[path] = [_frame_of(msgspec.convert(frame, Frame)) for frame in state["stack"]]
        for name, agent in state["agents"].items():
            self._types.setdefault(name, {}).update(agent["types"])
        self._count(path, state["counts"][3])


def _ran(stack: Sequence[StackFrame], names: Collection[str]) -> None:
    """Remove the first pending call of the top frame with one of these names: it has run."""
    if not stack:
        return
    pending = stack[-1].pending
    for index, call in enumerate(pending):
        found = _CALLED.match(call)
        if found is not None and found["name"] in names:
            stack[-1].pending = (*pending[:index], *pending[index + 1 :])
            return


def _frame_of(frame: Frame) -> StackFrame:
    waiting = (*frame.running, *frame.queue)
    return StackFrame(
        frame.agent,
        frame.playbook,
        {name: value for name, value in frame.arguments.items() if not name.startswith("_")},
        frame.position.line,
        frame.position.status,
        tuple(_call_words(one) for one in waiting),
    )


def _call_words(queued: QueuedCall) -> str:
    given = [
        *((str(at), "", one) for at, one in enumerate(queued.call.args)),
        *((k, f"{k}=", v) for k, v in queued.call.named),
    ]
    args = [before + ("..." if key in queued.private else _value_words(value)) for key, before, value in given]
    target = f"${queued.target} = " if queued.target and not queued.target.startswith("{") else ""
    return f"{queued.id} {target}{queued.name}({', '.join(args)})"


def _value_words(value: Expression) -> str:
    return shown(value.value) if isinstance(value, Known) else "..."


def _signature(frame: StackFrame, playbook: Playbook | None) -> str:
    params = playbook.params if playbook is not None else ()
    given = ", ".join(f"${one.name}{f':{one.type}' if one.type else ''}" for one in params)
    returns = f" -> {playbook.returns}" if playbook is not None and playbook.returns else ""
    return f"{frame.agent}.{frame.playbook}({given}){returns}"


def _brief(value: Any) -> str:
    """A value as JSON, shortened if it is long."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}… ({len(text):,} characters)"


# --- replies ---


def spoken_in(reader: ReplyReader, text: str) -> list[str]:
    """The messages to the user in the next piece of a reply."""
    return [said for item in reader.feed(text) if (said := _spoken(item)) is not None]


def _spoken(item: ReplyItem) -> str | None:
    """The text of a `Say` to the user, if it is a literal."""
    target = item.said_to if isinstance(item, Call) else None
    if not isinstance(item, Call) or target is None or str(_text(target)).strip().lower() not in _USER:
        return None
    return _text(interpolated(item.message))  # placeholders are shown when the message is sent


def _text(value: Expression | None) -> str | None:
    match value:
        case Known(text) if isinstance(text, str):
            return text
        case Words(text):
            return text
    return None
