"""The items of a reply: one frozen type for each thing a model can write, with its position in the text."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from cuebook.dialects.program.values import expressions
from cuebook.dialects.program.values.expressions import Expression

Target: TypeAlias = Literal["user", "call", "return", "exit", "meeting", "agent"]


class Item(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="item"):
    start: int = 0
    """Offsets in the text of the reply."""
    end: int = 0


class Recap(Item, frozen=True):
    text: str


class Plan(Item, frozen=True):
    text: str


class Step(Item, frozen=True):
    playbook: str
    """As written: `Welcome` or `Desk.Welcome`."""
    line: str
    """As in `02.01`; `T1` for a trigger, `N1` for a note."""
    code: str = ""

    @property
    def is_line(self) -> bool:
        return self.line[0] not in "TN"


class Var(Item, frozen=True):
    name: str
    value: Expression
    type: str = ""


class Artifact(Item, frozen=True):
    name: str
    summary: Expression
    content: Expression


class SaveArtifact(Item, frozen=True):
    name: Expression
    summary: Expression
    content: Expression


class Call(Item, frozen=True):
    name: str
    args: tuple[Expression, ...] = ()
    named: tuple[tuple[str, Expression], ...] = ()

    @property
    def said_to(self) -> Expression | None:
        """The target of a `Say`; the user, if it has only a message. None for any other call."""
        if self.name.rpartition(".")[2] not in ("Say", "SendMessage"):
            return None
        named = dict(self.named)
        if "target" in named:
            return named["target"]
        return self.args[0] if len(self.args) + ("message" in named) > 1 else expressions.Literal("user")

    @property
    def message(self) -> Expression | None:
        """The message of a `Say`."""
        named = dict(self.named)
        return named["message"] if "message" in named else self.args[-1] if self.args else None


class Assign(Item, frozen=True):
    """`$name = Call(...)`: the variable gets the result when the call has run."""

    name: str
    call: Call
    type: str = ""


class Return(Item, frozen=True):
    value: Expression | None = None
    """None for `Return[]`."""


class Trigger(Item, frozen=True):
    playbook: str
    id: str
    """As in `T1`."""
    kind: str
    """`CND`, `EVT` or `BGN`."""


class Check(Item, frozen=True):
    """`trig? no`: the triggers were checked, and none applies."""

    text: str = ""


class YieldCheck(Item, frozen=True):
    """`yld? no, ...`: a thought about yielding, without effect."""

    text: str = ""


class What(Item, frozen=True):
    """`what? ...`: the model encountered something that the listing does not provide for."""

    text: str = ""


class Prose(Item, frozen=True):
    text: str


class Yield(Item, frozen=True):
    target: Target
    name: str = ""
    """The name of the meeting or the agent."""


class Defect(Item, frozen=True):
    """A part that cannot be parsed. Nothing after it is parsed."""

    rule: Literal["S2", "S3"]
    message: str
    fix: str = ""


ReplyItem: TypeAlias = (
    Recap
    | Plan
    | Step
    | Var
    | Artifact
    | SaveArtifact
    | Call
    | Assign
    | Return
    | Trigger
    | Check
    | YieldCheck
    | What
    | Prose
    | Yield
    | Defect
)
