"""What a run of a program shows: the conversation, the lines it went through, its stack, its variables, and what was refused.

All of it is read off the journal, entry by entry; where a checkpoint says more exactly how things stand, that counts.
Every surface takes it from here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cuebook.dialects.program.expressions import Expression
from cuebook.dialects.program.expressions import Literal as Known
from cuebook.dialects.program.frames import Frame, QueuedCall
from cuebook.dialects.program.listing import Listing, Status
from cuebook.dialects.program.model import ListingLine, Playbook, ProgramText
from cuebook.dialects.program.prompts import shown
from cuebook.dialects.program.turns import SAYS
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
"""A call that waits, as `Standing.pending` has it."""


class Said(msgspec.Struct, frozen=True):
    """Something that was said, by the program or to it."""

    by: Literal["program", "user"]
    text: str
    to: str = "user"
    agent: str = ""
    """The agent that said it, or that heard it."""


class Standing(msgspec.Struct):
    """A frame on the stack."""

    agent: str
    playbook: str
    arguments: dict[str, Any]
    line: str = ""
    """The line it stands at; empty for a playbook without a listing."""
    status: Status = "arrived"
    """`arrived`: the line is still to be executed; `done`: it has taken effect."""
    pending: tuple[str, ...] = ()
    """Its calls that have not run yet, as far as a checkpoint told: `02#1 $n = Count(...)`."""


class Refusal(msgspec.Struct, frozen=True):
    """A reply that was refused, and what the model was told."""

    playbook: str
    rule: str
    asks: str
    """What the rule asks for."""
    problem: str
    at: str
    """Where in the reply."""
    position: str
    """Where the frame stands, as in `Main:02, executed`."""
    legal: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    attempt: int = 1
    """The how-manieth in a row it was."""
    retries: int = 0
    """How often it is asked again at most."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    type: str
    """As it is declared; otherwise that of its value."""
    value: Any


class MarkedLine(msgspec.Struct, frozen=True):
    """A line of a listing, and whether a frame stands there."""

    line: ListingLine
    current: bool
    times: int
    """How often it was gone through."""


class Projection:
    """A run as far as it has been seen. Given the program, it knows the types that variables are declared with."""

    def __init__(self, program: ProgramText | None = None) -> None:
        self._program = program
        self._declares: dict[str, dict[str, str]] = {}
        """The types that an agent's listings declare, once somebody asked."""
        self._begin()

    def _begin(self) -> None:
        self.said: list[Said] = []
        self.trace: list[str] = []
        """The lines that were gone through, as in `Main:02`."""
        self.variables: dict[str, dict[str, Any]] = {}
        """By agent, and by name."""
        self.warnings: list[str] = []
        self.verdicts: list[str] = []
        """As in `C5:R`."""
        self.refused: list[Refusal] = []
        self.triggers: list[str] = []
        self.calls: list[str] = []
        self.model_calls = 0
        self._without: dict[str, int] = {}
        """By branch: lines that needed no model, as far as that was told."""
        self.at_least = False
        """Whether there may have been more of them since."""
        self.question = ""
        """What the person was asked last."""
        self.result: Any = None
        self.failed = False
        self._types: dict[str, dict[str, str]] = {}
        self._stacks: dict[str, list[Standing]] = {}
        self._failing: list[Standing] = []
        """The stack when something began to fail: how the run stood when it ended so."""
        self._sent: set[Key] = set()
        self._entries: list[Entry] = []

    # --- looking ---

    @property
    def stack(self) -> list[Standing]:
        """From the bottom to the top; calls that run beside each other come one after the other. Of a run that failed, as
        it stood then.
        """
        return self._now() or self._failing

    def _now(self) -> list[Standing]:
        return [frame for path in sorted(self._stacks) for frame in self._stacks[path]]

    @property
    def top(self) -> Standing | None:
        return self.stack[-1] if self.stack else None

    @property
    def without_model(self) -> int:
        """Lines that needed no model. Of a run that is under way, those up to its last checkpoint."""
        return sum(self._without.values())

    @property
    def messages(self) -> list[str]:
        """What the program said to the user."""
        return [one.text for one in self.said if one.by == "program" and one.to == "user"]

    def typed(self) -> dict[str, list[Variable]]:
        """The variables by agent, each with its type; those whose names begin with `_` are the program's own."""
        return {
            agent: [
                Variable(name, self.type_of(agent, name, value), value)
                for name, value in variables.items()
                if not name.startswith("_")
            ]
            for agent, variables in self.variables.items()
        }

    def type_of(self, agent: str, name: str, value: Any) -> str:
        """As it is declared; otherwise that of the value."""
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

    def playbook_of(self, frame: Standing) -> Playbook | None:
        """What a frame executes; None for what lives elsewhere, and where the program is not known."""
        agent = self._program.agents.get(frame.agent) if self._program is not None else None
        return agent.playbooks.get(frame.playbook) if agent is not None else None

    def listing(self, frame: Standing) -> list[MarkedLine]:
        """The lines of the playbook that a frame executes."""
        playbook = self.playbook_of(frame)
        times = self.visits
        return [
            MarkedLine(line, line.number == frame.line, times.get(f"{frame.playbook}:{line.number}", 0))
            for line in (playbook.steps if playbook is not None else ())
        ]

    @property
    def visits(self) -> dict[str, int]:
        """By line, as in `Main:02`: how often it was gone through."""
        found: dict[str, int] = {}
        for label in self.trace:
            found[label] = found.get(label, 0) + 1
        return found

    def agent_at(self, path: str) -> str:
        """Who acts on a branch: the agent of the frame on its top, or of the one that began it."""
        top = self.top_at(path)
        return top.agent if top is not None else ""

    def top_at(self, path: str) -> Standing | None:
        while path and not self._stacks.get(path):
            path = path[:-1].rpartition("/")[0]
            path = f"{path}/" if path else ""
        stack: Sequence[Standing] = self._stacks.get(path, ())
        return stack[-1] if stack else None

    def plain(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "conversation": [msgspec.to_builtins(one) for one in self.said],
            "lines": list(self.trace),
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

    # --- seeing ---

    def see(self, entry: Entry) -> list[Said]:
        """Takes one entry, in order, and gives what was said by it."""
        before = len(self.said)
        if isinstance(entry.event, Rewound):
            return self._again(entry)
        self._entries.append(entry)
        self._take(entry)
        return self.said[before:]

    def _again(self, rewound: Entry) -> list[Said]:
        """What was taken back has not happened."""
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
                self.trace.append(label)
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
                stack.append(Standing(data["agent"], data["playbook"], dict(data["arguments"])))
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
        """Something took effect at the line where the frame stands."""
        stack = self._stacks.get(path)
        if stack:
            stack[-1].status = "done"

    def _count(self, path: str, without_model: int) -> None:
        """What a branch says counts all that it began itself, which has ended by then."""
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
        """Takes over where every frame stands, what it has still to call, and the types of variables."""
        self._stacks[path] = [_standing(msgspec.convert(frame, Frame)) for frame in state["stack"]]
        for name, agent in state["agents"].items():
            self._types.setdefault(name, {}).update(agent["types"])
        self._count(path, state["counts"][3])


def seen(entries: Iterable[Entry], program: ProgramText | None = None) -> Projection:
    made = Projection(program)
    for entry in entries:
        made.see(entry)
    return made


def _ran(stack: Sequence[Standing], names: Collection[str]) -> None:
    """The first call of the top frame that has one of these names waits no more."""
    if not stack:
        return
    pending = stack[-1].pending
    for index, call in enumerate(pending):
        found = _CALLED.match(call)
        if found is not None and found["name"] in names:
            stack[-1].pending = (*pending[:index], *pending[index + 1 :])
            return


def _standing(frame: Frame) -> Standing:
    waiting = (*frame.running, *frame.queue)
    return Standing(
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
