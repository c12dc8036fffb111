"""What a running program remembers: frames on a stack, and for each agent its variables and artifacts. Plain, storable.

A parameter belongs to its frame; every other `$variable` belongs to the agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.dialects.program.evaluate import ERROR_MARK, NotComputable, evaluate
from cuebook.dialects.program.expressions import Expression, refs_of
from cuebook.dialects.program.expressions import Literal as Known
from cuebook.dialects.program.items import Call
from cuebook.dialects.program.listing import Position
from cuebook.kernel.outcomes import Failed

Kind: TypeAlias = Literal["listing", "react", "raw", "python"]
After: TypeAlias = Literal["", "user", "return", "exit", "agent"]

RESULT = "_"
"""`$_`: what the last call of a frame came to."""


class QueuedCall(msgspec.Struct, frozen=True):
    """A call that waits for its turn. Its arguments are computed already, but for those that another call sets."""

    id: str
    """As in `02#1`: the line, and the how-manieth call that waits."""
    call: Call
    target: str = ""
    """The variable that gets the result."""
    type: str = ""
    private: tuple[str, ...] = ()
    """Arguments that were made of private variables, by place or name: no model is shown them."""

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def reads(self) -> set[str]:
        """The variables that its arguments still wait for."""
        values = (*self.call.args, *(value for _, value in self.call.named))
        return {name for value in values for name in refs_of(value)}


class Frame(msgspec.Struct):
    """A playbook that is being executed."""

    id: int
    agent: str
    playbook: str
    kind: Kind
    arguments: dict[str, Any] = {}
    """Its parameters, by name."""
    position: Position = Position("")
    node: int | None = None
    """The node of the listing that comes next, where the machine knows it without a model."""
    queue: list[QueuedCall] = []
    running: list[QueuedCall] = []
    """Calls whose turn has come; where one has a frame of its own, that is the first of them."""
    after: After = ""
    """What follows when no call is left that runs."""
    awaits: str = ""
    """Which agent is waited for."""
    value: Any = None
    summary: str = ""
    open: str = ""
    """The label of the step that is open."""
    heard: bool = False
    """Whether something came that only a model can make sense of: it is asked next."""
    result: Any = None
    """`$_`."""
    entries: dict[str, int] = {}
    inbox: int = 0
    last: str = ""
    said: list[str] = []
    """To whom it has spoken."""
    question: str = ""
    """What it said last to the user."""
    log: list[str] = []
    """The lines it went through lately."""
    refused: int = 0
    """How many replies in a row were refused."""
    retry: str = ""
    """What the model is told about the reply that was refused."""
    loaded: list[str] = []
    """Artifacts whose content this frame has seen."""
    loops: dict[str, int] = {}
    """By the line of a `For each`: which item is under way."""
    marks: dict[str, int] = {}
    """By the line of a JMP: how much had changed when it was passed last."""
    changes: int = 0
    slots: dict[str, Any] = {}
    """What the calls in its description came to, by their text."""
    extra: list[Any] = []
    """Of a Python playbook: all its arguments in order, where there are more than it names."""
    replies: list[dict[str, Any]] = []
    """Of a Python playbook: the calls it has made, and what came of each."""
    moment: float = 0.0
    """Of a Python playbook: the time that its clock shows."""
    called: bool = False
    """Whether `$_` has a value: something was called, or said."""
    asked: int = 0
    """How often a model was asked to execute it."""
    idle: int = 0
    """How often a model was asked since something changed."""
    results: list[str] = []
    """What calls came to lately, each with its arguments, by digest: the same once more is nothing new."""
    visited: list[str] = []
    """The lines that were executed since something changed."""
    applied: list[str] = []
    """What has taken effect of the replies that were refused since the last one that was not."""

    def news(self) -> None:
        """Something new came in: what was done before may be done again."""
        self.inbox += 1
        self.changes += 1
        self.entries = {}

    def progress(self) -> None:
        """Something changed: what a model does now does not count as a repetition."""
        self.idle, self.visited = 0, []

    def visit(self, line: str) -> None:
        """A line is executed: one that was not since something changed is progress of its own."""
        if line not in self.visited:
            self.visited.append(line)
            self.idle = 0

    def gives(self, value: Any) -> None:
        """`$_` is what a call came to, or what was said."""
        self.result, self.called = value, True

    def pending(self) -> Position:
        """Where it stands, as a verifier is told."""
        return msgspec.structs.replace(self.position, pending=tuple(call.id for call in self.queue))


class Saved(msgspec.Struct):
    """An artifact: its content is the value of the variable of that name."""

    summary: str
    digest: str


class AgentState(msgspec.Struct):
    """What an agent knows."""

    variables: dict[str, Any] = {}
    types: dict[str, str] = {}
    artifacts: dict[str, Saved] = {}
    held: dict[str, bool] = {}
    """By id: whether the condition of each computable trigger holds."""
    due: list[str] = []
    """Triggers that fired, and whose playbook is still to be called."""
    mail: list[dict[str, str]] = []
    """Messages for it: from whom, and what."""
    taken: int = 0
    """How many messages it has taken so far."""
    fired: dict[str, str] = {}
    """By id of a trigger that only a model can judge: for what it fired since the last message, see `Machine.fires`."""

    def take(self, most: int | None = None) -> list[dict[str, str]]:
        """Its messages, or the first of them: they have come."""
        found = self.mail[:most]
        self.mail = self.mail[len(found) :]
        self.taken += len(found)
        return found


class Error(msgspec.Struct, frozen=True):
    """What a call that failed comes to. It is no text: nothing takes it for a result."""

    code: str
    message: str
    fix: str = ""

    @property
    def value(self) -> dict[str, str]:
        """As a variable holds it."""
        return {"error": self.code, "message": self.message, ERROR_MARK: "error"}

    @property
    def failed(self) -> Failed:
        return Failed(self.code, self.message, self.fix)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Error:
        """From what a variable holds."""
        return cls(str(value["error"]), str(value["message"]))


def is_private(name: str) -> bool:
    """`$_x`: no model is shown it. `$_` and `$__` are not."""
    return name.startswith("_") and name.strip("_") != ""


class Variables(Mapping[str, Any]):
    """What a frame sees: `$_`, its parameters, and the variables of its agent."""

    def __init__(self, frame: Frame, agent: AgentState) -> None:
        self._frame, self._agent = frame, agent

    def __getitem__(self, name: str) -> Any:
        if name == RESULT and self._frame.called:
            return self._frame.result
        arguments = self._frame.arguments
        return arguments[name] if name in arguments else self._agent.variables[name]

    def __contains__(self, name: object) -> bool:
        known = name in self._frame.arguments or name in self._agent.variables
        return known or (name == RESULT and self._frame.called)

    def __iter__(self) -> Iterator[str]:
        result = (RESULT,) if self._frame.called else ()
        yield from dict.fromkeys((*result, *self._agent.variables, *self._frame.arguments))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def all(self) -> dict[str, Any]:
        """As a table of its own, in the same order."""
        result = {RESULT: self._frame.result} if self._frame.called else {}
        return {**result, **self._agent.variables, **self._frame.arguments}

    def set(self, name: str, value: Any) -> None:
        known = self._frame.arguments if name in self._frame.arguments else self._agent.variables
        if name not in known or known[name] != value or known[name].__class__ is not value.__class__:
            self._frame.changes += 1
            self._frame.progress()
        known[name] = value

    def shown(self) -> dict[str, Any]:
        """Those that a model is shown: `$_x` is private, and artifacts are told apart."""
        hidden = self._agent.artifacts
        return {name: one for name, one in self.all().items() if not name.startswith("_") and name not in hidden}


def settled(call: Call, variables: Mapping[str, Any], awaited: set[str]) -> Call:
    """The call with its arguments computed, but for those that read a variable which another call will set."""

    def known(value: Expression) -> Expression:
        if awaited.intersection(refs_of(value)):
            return value
        try:
            return Known(evaluate(value, variables))
        except NotComputable:
            return value

    args = tuple(known(value) for value in call.args)
    return Call(call.name, args, tuple((name, known(value)) for name, value in call.named))
