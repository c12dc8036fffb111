"""What a verifier is given and what it says: the state a reply starts from, the rules, verdicts and repairs. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.dialects.program.items import ReplyItem, Return, Yield
from cuebook.dialects.program.listing import Position
from cuebook.dialects.program.model import ListingLine, Param, Playbook

Policy: TypeAlias = Literal["R", "F", "W"]
"""Reject, repair (fix), warn."""

RULES: Mapping[str, tuple[str, str]] = {
    "S1": ("F", "A reply begins with its recap and its plan."),
    "S2": ("R", "Everything in back-ticks that looks like a directive can be read."),
    "S3": ("RF", "A reply has exactly one end, and nothing behind it."),
    "C1": ("R", "A step is one of the playbook that is being executed."),
    "C2": ("R", "The line exists in the listing."),
    "C3": ("F", "The code of a step is the one in the listing."),
    "C4": ("R", "The first step goes on where the last reply stopped."),
    "C5": ("R", "Each step is the same line or one that may follow it."),
    "C6": ("RF", "Nothing is executed behind a YLD line, and its target is the listing's."),
    "C7": ("R", "No QUE, EXE, RET or YLD line is passed over."),
    "C8": ("R", "A JMP goes to its target, of If and Otherwise one is taken, and what can be computed decides which."),
    "C9": ("RF", "A return stands at a RET line or at the end of the listing."),
    "C10": ("R", "The program exits only where the listing says so, or at its end."),
    "C11": ("W", "Whoever is waited for has been told something, or the line says to wait."),
    "C12": ("R", "A QUE line that names a call makes that call, and no other line does."),
    "C13": ("R", "A reply makes progress."),
    "V1": ("RW", "A variable that is set is one of the playbook, its parameters or the state."),
    "V2": ("RF", "A value fits the type of its variable."),
    "V3": ("R", "Every variable that is used, or was asked for, has a value, and not an error."),
    "V4": ("R", "What is called exists, may be called, and takes these arguments; who is waited for exists."),
    "V5": ("F", "An artifact exists, and its content is there where it is needed."),
    "V6": ("RF", "A value, an argument, a target or a number of calls that can be computed is the computed one."),
    "T1": ("F", "The triggers are looked at after each step and each variable."),
    "T2": ("R", "A trigger is one of this agent, and not one of the program's start."),
    "T3": ("F", "Behind a trigger its playbook is called, with 'yld call'."),
    "T4": ("F", "A trigger that can be computed agrees with the state."),
    "Q1": ("F", "A return has a summary of one to five lines."),
    "Q2": ("RF", "What is returned fits the declared type."),
    "WHAT": ("W", "Something happened that the listing does not provide for."),
}
"""By id: the policies a rule can have, and what it asks for."""


class Signature(msgspec.Struct, frozen=True):
    """How a playbook is called."""

    params: tuple[Param, ...] = ()
    open: bool = False
    """Whether it takes arguments besides."""


class KnownTrigger(msgspec.Struct, frozen=True):
    kind: Literal["BGN", "CND", "EVT"]
    text: str = ""


class State(msgspec.Struct, frozen=True):
    """What holds when a reply begins. Of what is None nothing is known, and nothing is judged by it."""

    variables: dict[str, Any] | None = None
    types: dict[str, str] = {}
    """Of variables that were declared outside of the listing."""
    artifacts: dict[str, bool] | None = None
    """By name, whether the content is loaded."""
    agent: str = ""
    """Whose playbook is executed."""
    agents: tuple[str, ...] | None = None
    """Who may be waited for."""
    playbooks: dict[str, Signature] | None = None
    """What may be called: the agent's own by name, public ones of others as `Agent.Name`."""
    triggers: dict[str, KnownTrigger] | None = None
    """By id, as in `Refund:T1`; those of another agent as `Desk.Refund:T1`."""
    held: dict[str, bool] | None = None
    """By id of a trigger that can be computed, whether it held before: it has fired then."""
    said: tuple[str, ...] = ()
    """To whom this frame has spoken before."""
    root: bool = True
    """Whether the frame is the first on the stack."""
    inbox: int = 0
    """The number of the last message that came in."""
    entries: dict[str, int] = {}
    """How often each line was entered since something new came in."""
    last: str = ""
    """`Verdicts.progress` of the reply before."""
    private: tuple[str, ...] = ()
    """Playbooks of other agents that may not be called, as `Agent.Name`."""
    spent: tuple[str, ...] = ()
    """Ids of triggers that have fired for what came in last: they do not fire for it again."""
    loops: dict[str, int] = {}
    """By the line of a `For each`: the index of the item that is under way."""
    awaited: tuple[str, ...] = ()
    """Variables that get the result of a call which is queued and has not run."""
    heard: bool | None = None
    """Whether something came in that the listing did not compute, such as what the user said. None if unknown."""


def signature_of(playbook: Playbook) -> Signature:
    return Signature(playbook.params, playbook.open)


class Verdict(msgspec.Struct, frozen=True):
    rule: str
    policy: Policy
    words: str
    """What is wrong, as the model and a person are told."""
    start: int = 0
    end: int = 0
    line: str = ""
    """The line of the listing that was being executed."""
    because: str = ""
    """The narrower rule that was broken: C7 or C8 for a step that C5 refuses."""
    legal: tuple[ListingLine, ...] = ()
    """Of what was refused: the lines that the next reply may begin with, where it stands then."""


# --- what a repair asks of the machine ---------------------------------------------------------------------


class CheckTriggers(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The reply did not look at the triggers here: those that can be computed are, and a model is asked for the rest."""


class LoadContent(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The content of an artifact is needed: load it, and ask again."""

    name: str


class Summarise(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The return has no summary: make one of the steps that were done."""


Action: TypeAlias = ReplyItem | CheckTriggers | LoadContent | Summarise


class Verdicts(msgspec.Struct, frozen=True):
    """What came of a reply."""

    verdicts: tuple[Verdict, ...]
    actions: tuple[Action, ...]
    """What takes effect, in order, repaired; up to the first thing that was refused."""
    position: Position
    """Where the frame stands after those."""
    terminator: Yield | Return | None = None
    """How the reply ends, repaired; None if it was refused."""
    values: dict[str, Any] = {}
    """The variables that the actions set, by name, as their types want them."""
    returns: Any = None
    """The value of a return."""
    summary: str = ""
    """`$__`, where the reply gave one."""
    progress: str = ""
    """What the next reply must differ in."""
    loops: dict[str, int] = {}
    """By the line of each `For each` around the reply's last line: the index of its item."""

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    @property
    def ok(self) -> bool:
        """Whether the reply is accepted, repaired where that was needed."""
        return self.rejected is None

    @property
    def rejected(self) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.policy == "R"), None)

    @property
    def rules(self) -> tuple[str, ...]:
        """As in `("C3:F", "C5:R")`."""
        return tuple(f"{verdict.rule}:{verdict.policy}" for verdict in self.verdicts)
