"""The input and output of a verifier: the state before a reply, the rules, verdicts and repairs. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.dialects.program.listing import Position
from cuebook.dialects.program.model import ListingLine, Param, Playbook
from cuebook.dialects.program.reply.items import ReplyItem, Return, Yield

Policy: TypeAlias = Literal["R", "F", "W"]
"""Reject, repair (fix), warn."""

RULES: Mapping[str, tuple[str, str]] = {
    "S1": ("F", "A reply begins with its recap and its plan."),
    "S2": ("R", "Everything in back-ticks that looks like a directive can be parsed."),
    "S3": ("RF", "A reply has exactly one end, and nothing after it."),
    "C1": ("R", "A step belongs to the playbook that is being executed."),
    "C2": ("R", "The line exists in the listing."),
    "C3": ("F", "The code of a step matches the listing."),
    "C4": ("R", "The first step continues where the last reply stopped."),
    "C5": ("R", "Each step is the same line or one that may follow it."),
    "C6": ("RF", "Nothing is executed after a YLD line, and the yield has the line's target."),
    "C7": ("R", "No QUE, EXE, RET or YLD line is skipped."),
    "C8": (
        "R",
        "A JMP goes to its target, one of If and Otherwise is taken, and a condition that can be computed decides.",
    ),
    "C9": ("RF", "A return is at a RET line or at the end of the listing."),
    "C10": ("R", "The program exits only where the listing says so, or at its end."),
    "C11": ("W", "Before a reply waits for a person, it says something, unless the line says to wait."),
    "C12": ("R", "A QUE line that names a call makes that call, and no other line does."),
    "C13": ("R", "A reply makes progress."),
    "V1": ("RW", "A variable that is set belongs to the playbook, its parameters or the state."),
    "V2": ("RF", "A value has the type of its variable."),
    "V3": ("R", "Every variable that is used, or was asked for, has a value that is not an error."),
    "V4": ("R", "A called playbook exists, may be called, and takes these arguments; an awaited agent exists."),
    "V5": ("F", "An artifact exists, and its content is loaded when it is needed."),
    "V6": ("RF", "A value, an argument, a target or a number of calls matches the computed one."),
    "T1": ("F", "The triggers are checked after each step and each variable."),
    "T2": ("R", "A trigger belongs to this agent, and is not one for the program's start."),
    "T3": ("F", "After a trigger its playbook is called, with 'yld call'."),
    "T4": ("F", "A trigger that can be computed agrees with the state."),
    "Q1": ("F", "A return has a summary of one to five lines."),
    "Q2": ("RF", "The returned value has the declared type."),
    "WHAT": ("W", "Something happened that the listing does not provide for."),
}
"""The possible policies of a rule and what it requires, by id."""


class Signature(msgspec.Struct, frozen=True):
    """How a playbook is called."""

    params: tuple[Param, ...] = ()
    open: bool = False
    """Whether it accepts further arguments."""


class KnownTrigger(msgspec.Struct, frozen=True):
    kind: Literal["BGN", "CND", "EVT"]
    text: str = ""


class State(msgspec.Struct, frozen=True):
    """The state before a reply. Fields that are None are unknown, and not used to judge it."""

    variables: dict[str, Any] | None = None
    types: dict[str, str] = {}
    """The types of variables that were declared outside the listing."""
    artifacts: dict[str, bool] | None = None
    """Whether the content is loaded, by name."""
    agent: str = ""
    """The agent whose playbook is executed."""
    agents: tuple[str, ...] | None = None
    """The agents that may be waited for."""
    playbooks: dict[str, Signature] | None = None
    """The playbooks that may be called: the agent's own by name, public playbooks of others as `Agent.Name`."""
    triggers: dict[str, KnownTrigger] | None = None
    """By id, as in `Refund:T1`; triggers of another agent as `Desk.Refund:T1`."""
    held: dict[str, bool] | None = None
    """Whether a computable trigger held before, and so has fired, by id."""
    said: tuple[str, ...] = ()
    """The recipients this frame has spoken to."""
    root: bool = True
    """Whether the frame is the first on the stack."""
    inbox: int = 0
    """The number of the last message that came in."""
    entries: dict[str, int] = {}
    """How often each line was entered since the last new input."""
    last: str = ""
    """`Verdicts.progress` of the previous reply."""
    private: tuple[str, ...] = ()
    """Playbooks of other agents that may not be called, as `Agent.Name`."""
    spent: tuple[str, ...] = ()
    """Ids of triggers that have fired for the last input. They do not fire for it again."""
    loops: dict[str, int] = {}
    """The index of the current item, by the line of a `For each`."""
    awaited: tuple[str, ...] = ()
    """Variables that receive the result of a queued call."""
    heard: bool | None = None
    """Whether there is input that the listing did not compute, such as a message from the user. None if unknown."""


def signature_of(playbook: Playbook) -> Signature:
    return Signature(playbook.params, playbook.open)


class Verdict(msgspec.Struct, frozen=True):
    rule: str
    policy: Policy
    words: str
    """What is wrong, for the model and for people."""
    start: int = 0
    end: int = 0
    line: str = ""
    """The line of the listing that was being executed."""
    because: str = ""
    """The narrower rule that was broken: C7 or C8 for a step that C5 refuses."""
    legal: tuple[ListingLine, ...] = ()
    """For a refusal: the lines that the next reply may begin with."""


# --- repairs that the machine has to make ------------------------------------------------------------------


class CheckTriggers(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The reply did not check the triggers here: check the computable triggers, and ask a model about the rest."""


class LoadContent(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The content of an artifact is needed: load it, and ask again."""

    name: str


class Summarise(msgspec.Struct, frozen=True, tag=True, tag_field="item"):
    """The return has no summary: make one from the executed steps."""


Action: TypeAlias = ReplyItem | CheckTriggers | LoadContent | Summarise


class Verdicts(msgspec.Struct, frozen=True):
    """The result of verifying a reply."""

    verdicts: tuple[Verdict, ...]
    actions: tuple[Action, ...]
    """The actions that take effect, in order and repaired, up to the first refusal."""
    position: Position
    """The position of the frame after them."""
    terminator: Yield | Return | None = None
    """How the reply ends, repaired; None if it was refused."""
    values: dict[str, Any] = {}
    """The variables that the actions set, by name, converted to their types."""
    returns: Any = None
    """The value of a return."""
    summary: str = ""
    """`$__`, if the reply sets it."""
    progress: str = ""
    """A digest that the next reply must change."""
    loops: dict[str, int] = {}
    """The index of the current item of each `For each` around the last line, by line."""

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    @property
    def ok(self) -> bool:
        """Whether the reply is accepted, possibly repaired."""
        return self.rejected is None

    @property
    def rejected(self) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.policy == "R"), None)

    @property
    def rules(self) -> tuple[str, ...]:
        """As in `("C3:F", "C5:R")`."""
        return tuple(f"{verdict.rule}:{verdict.policy}" for verdict in self.verdicts)
