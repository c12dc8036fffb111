"""The state of a running program: frames on a stack, and each agent's variables and artifacts. Plain, storable values.

A parameter belongs to its frame; every other `$variable` belongs to the agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.dialects.program.listing import Position
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import ERROR_MARK, NotComputable, evaluate
from cuebook.dialects.program.values.expressions import Expression, refs_of
from cuebook.dialects.program.values.expressions import Literal as Known
from cuebook.kernel.outcomes import Failed

Kind: TypeAlias = Literal["listing", "react", "raw", "python"]
After: TypeAlias = Literal["", "user", "return", "exit", "agent"]

RESULT = "_"
"""`$_`: the result of a frame's last call."""


class QueuedCall(msgspec.Struct, frozen=True):
    """A queued call. Its arguments are already computed, except those that depend on another call."""

    id: str
    """As in `02#1`: the line, and the position in the queue."""
    call: Call
    target: str = ""
    """The variable that receives the result."""
    type: str = ""
    private: tuple[str, ...] = ()
    """Arguments computed from private variables, by position or name. Models do not see them."""

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def reads(self) -> set[str]:
        """The variables that its arguments still depend on."""
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
    """The next node of the listing, if the machine can determine it without a model."""
    queue: list[QueuedCall] = []
    running: list[QueuedCall] = []
    """Calls that are due. A call with its own frame comes first."""
    after: After = ""
    """The action to take when no due call is left."""
    awaits: str = ""
    """The agent whose message it waits for."""
    value: Any = None
    summary: str = ""
    open: str = ""
    """The label of the open step."""
    heard: bool = False
    """Whether something arrived that only a model can interpret: the model is called next."""
    result: Any = None
    """`$_`."""
    entries: dict[str, int] = {}
    inbox: int = 0
    last: str = ""
    said: list[str] = []
    """The recipients it has spoken to."""
    question: str = ""
    """Its last message to the user."""
    log: list[str] = []
    """The lines it executed last."""
    refused: int = 0
    """How many replies in a row were refused."""
    retry: str = ""
    """The correction that the model is sent after a refused reply."""
    loaded: list[str] = []
    """Artifacts whose content this frame has seen."""
    loops: dict[str, int] = {}
    """The index of the current item, by the line of a `For each`."""
    marks: dict[str, int] = {}
    """The number of changes when a JMP was last passed, by its line."""
    changes: int = 0
    slots: dict[str, Any] = {}
    """The results of the calls in its description, by their text."""
    extra: list[Any] = []
    """All arguments of a Python playbook in order, if there are more than it has parameters."""
    replies: list[dict[str, Any]] = []
    """The calls that a Python playbook has made, with their results."""
    moment: float = 0.0
    """The time that a Python playbook's clock shows."""
    called: bool = False
    """Whether `$_` has a value: something was called or said."""
    asked: int = 0
    """How often a model was called to execute it."""
    idle: int = 0
    """How often a model was called since something changed."""
    results: list[str] = []
    """Digests of recent calls with their arguments and results. A repetition is not progress."""
    visited: list[str] = []
    """The lines executed since something changed."""
    applied: list[str] = []
    """The parts of refused replies that took effect, since the last accepted reply."""

    def news(self) -> None:
        """Record new input: earlier actions may be repeated."""
        self.inbox += 1
        self.changes += 1
        self.entries = {}

    def progress(self) -> None:
        """Record a change: the model's next action does not count as a repetition."""
        self.idle, self.visited = 0, []

    def visit(self, line: str) -> None:
        """Record that a line is executed. It is progress if the line was not executed since the last change."""
        if line not in self.visited:
            self.visited.append(line)
            self.idle = 0

    def gives(self, value: Any) -> None:
        """Set `$_` to the result of a call, or to what was said."""
        self.result, self.called = value, True

    def pending(self) -> Position:
        """Its position for the verifier, with the queued calls."""
        return msgspec.structs.replace(self.position, pending=tuple(call.id for call in self.queue))


class Saved(msgspec.Struct):
    """An artifact. Its content is the value of the variable with that name."""

    summary: str
    digest: str


class AgentState(msgspec.Struct):
    """The memory of an agent."""

    variables: dict[str, Any] = {}
    types: dict[str, str] = {}
    artifacts: dict[str, Saved] = {}
    held: dict[str, bool] = {}
    """Whether the condition of each computable trigger holds, by id."""
    due: list[str] = []
    """Triggers that have fired and whose playbook has yet to be called."""
    mail: list[dict[str, str]] = []
    """Its messages: sender and text."""
    taken: int = 0
    """How many messages it has received so far."""
    fired: dict[str, str] = {}
    """The state for which a trigger that only a model can judge has fired since the last message, by id. See
    `Machine.fires`."""

    def take(self, most: int | None = None) -> list[dict[str, str]]:
        """Take its messages, or the first `most` of them."""
        found = self.mail[:most]
        self.mail = self.mail[len(found) :]
        self.taken += len(found)
        return found


class Error(msgspec.Struct, frozen=True):
    """The result of a failed call. It is not a string, so it cannot be mistaken for a normal result."""

    code: str
    message: str
    fix: str = ""

    @property
    def value(self) -> dict[str, str]:
        """The error as the value of a variable."""
        return {"error": self.code, "message": self.message, ERROR_MARK: "error"}

    @property
    def failed(self) -> Failed:
        return Failed(self.code, self.message, self.fix)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Error:
        """Create an error from the value of a variable."""
        return cls(str(value["error"]), str(value["message"]))


def is_private(name: str) -> bool:
    """Whether a model must not see a variable: `$_x` is private, `$_` and `$__` are not."""
    return name.startswith("_") and name.strip("_") != ""


class Variables(Mapping[str, Any]):
    """The variables that a frame sees: `$_`, its parameters, and its agent's variables."""

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
        """A copy as a dict, in the same order."""
        result = {RESULT: self._frame.result} if self._frame.called else {}
        return {**result, **self._agent.variables, **self._frame.arguments}

    def set(self, name: str, value: Any) -> None:
        known = self._frame.arguments if name in self._frame.arguments else self._agent.variables
        if name not in known or known[name] != value or known[name].__class__ is not value.__class__:
            self._frame.changes += 1
            self._frame.progress()
        known[name] = value

    def shown(self) -> dict[str, Any]:
        """The variables that a model sees, without private ones (`$_x`) and artifacts, which are listed separately."""
        hidden = self._agent.artifacts
        return {name: one for name, one in self.all().items() if not name.startswith("_") and name not in hidden}


def settled(call: Call, variables: Mapping[str, Any], awaited: set[str]) -> Call:
    """The call with its arguments computed, except those that read a variable another call will set."""

    def known(value: Expression) -> Expression:
        if awaited.intersection(refs_of(value)):
            return value
        try:
            return Known(evaluate(value, variables))
        except NotComputable:
            return value

    args = tuple(known(value) for value in call.args)
    return Call(call.name, args, tuple((name, known(value)) for name, value in call.named))
