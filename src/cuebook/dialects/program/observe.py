"""What a run of a program shows: the conversation, the lines it went through, its stack, and its variables.

All of it is read off the journal, entry by entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cuebook.kernel.effects import Answer, Send
from cuebook.kernel.events import (
    ModelAsked,
    Noted,
    Performed,
    Performing,
    RunFinished,
    StepFinished,
    StepStarted,
    ValueSet,
    Warned,
)
from cuebook.kernel.journal import Entry, Key


class Said(msgspec.Struct, frozen=True):
    """Something that was said, by the program or to it."""

    by: str
    """`program`, or `user`."""
    text: str
    to: str = "user"


class Standing(msgspec.Struct):
    """A frame on the stack."""

    agent: str
    playbook: str
    arguments: dict[str, Any]
    line: str = ""
    """The line it stands at; empty for a playbook without a listing."""


class Projection:
    """A run as far as it has been seen."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.trace: list[str] = []
        """The lines that were gone through, as in `Main:02`."""
        self.variables: dict[str, dict[str, Any]] = {}
        """By agent, and by name."""
        self.warnings: list[str] = []
        self.verdicts: list[str] = []
        """As in `C5:R`."""
        self.triggers: list[str] = []
        self.calls: list[str] = []
        self.model_calls = 0
        self.result: Any = None
        self._stacks: dict[str, list[Standing]] = {}
        self._sent: set[Key] = set()

    @property
    def stack(self) -> list[Standing]:
        """From the bottom to the top; calls that run beside each other come one after the other."""
        return [frame for path in sorted(self._stacks) for frame in self._stacks[path]]

    @property
    def messages(self) -> list[str]:
        """What the program said to the user."""
        return [one.text for one in self.said if one.by == "program" and one.to == "user"]

    def see(self, entry: Entry) -> None:
        event = entry.event
        stack = self._stacks.setdefault(entry.place.path, [])
        match event:
            case Performing(Send(text=text, to=to)) if entry.place.key not in self._sent:
                self._sent.add(entry.place.key)
                self.said.append(Said("program", text, to))
            case Performed(Answer(value)):
                self.said.append(Said("user", value, "program"))
            case StepStarted(label):
                self.trace.append(label)
                if stack and ":" in label:
                    stack[-1].line = label.rpartition(":")[2]
            case ValueSet(name, value):
                self.variables.setdefault(self._agent(entry.place.path), {})[name] = value
            case Noted("called", data):
                stack.append(Standing(data["agent"], data["playbook"], data["arguments"]))
                self.calls.append(data["playbook"])
            case Noted("returned"):
                if stack:
                    stack.pop()
            case Noted("verdicts", data):
                self.verdicts += [f"{one['rule']}:{one['policy']}" for one in data["verdicts"]]
            case Noted("trigger", data):
                self.triggers.append(data["id"])
            case Warned(_, message):
                self.warnings.append(message)
            case ModelAsked():
                self.model_calls += 1
            case RunFinished(_, result):
                self.result = result
                self._stacks.clear()
            case StepFinished() | _:
                pass

    def _agent(self, path: str) -> str:
        """Whose variable is set on a branch: that of the frame on its top, or of the one that began it."""
        while path and not self._stacks.get(path):
            path = path[:-1].rpartition("/")[0]
            path = f"{path}/" if path else ""
        stack: Sequence[Standing] = self._stacks.get(path, ())
        return stack[-1].agent if stack else ""


def seen(entries: Iterable[Entry]) -> Projection:
    made = Projection()
    for entry in entries:
        made.see(entry)
    return made
