"""A program at a terminal: a chat with the person who sits there, who can also look at the listing, the stack and the variables.

What the program says is shown as soon as it is verified; where nobody sits, the same goes out as plain lines.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from rich.text import Text

from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.observe import Projection, Refusal, Said
from cuebook.dialects.program.speaking import Conversation
from cuebook.kernel.events import (
    ModelAsked,
    Noted,
    Performed,
    Performing,
    PlannedStep,
    Rewound,
    StepFinished,
    StepSkipped,
    StepStarted,
    TextReset,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, StepRow, WaitRow
from cuebook.service import Principal, RunView, Service
from cuebook.surfaces import wording
from cuebook.surfaces.cli import talking
from cuebook.surfaces.cli.answers import Source
from cuebook.surfaces.cli.asking import Asker, Decided, Later, asker_for
from cuebook.surfaces.cli.keyboard import Keyboard
from cuebook.surfaces.cli.live import Plain, Seen, View
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import harmless
from cuebook.surfaces.cli.terminal import Terminal

_REFUSED = ("refused",)
"""Warnings that are told in another way."""
_LATELY = 8
"""Messages among which the words of a question stand if they were said."""
_COMMAND = re.compile(r"/([a-z]+)\s*\Z")


def in_front(given: Given, service: Service, who: Principal) -> tuple[View, Asker | None]:
    """What shows a program's run, and what asks whoever sits there."""
    talk = Talk(with_lines=bool(given.get("as_lines")))

    def made(*parts: Any, **more: Any) -> ChatAsker:
        return ChatAsker(talk, *parts, **more)

    asker = asker_for(given, service, who, made)
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not given.get("as_json") and (given.get("as_live") or on_terminal):
        return Chat(talk, color=not given.get("no_color"), asking=asker is not None), asker
    return ChatLines(talk, as_json=bool(given.get("as_json")), asking=asker is not None), asker


class Talk:
    """What view and asker both know: the conversation so far, and what was typed right here."""

    def __init__(self, *, with_lines: bool = False) -> None:
        self.with_lines = with_lines
        self.conversation = Conversation()
        self._typed = 0
        """Answers that stand on the screen already."""

    @property
    def run(self) -> Projection:
        return self.conversation.run

    def remember(self, source: Source | None, entries: Sequence[Entry]) -> None:
        program = source.document if source is not None and isinstance(source.document, ProgramText) else None
        self.conversation = Conversation(program)
        for entry in entries:
            self.conversation.see(entry)

    def typed(self) -> None:
        self._typed += 1

    def heard(self, event: Seen) -> list[Said]:
        """What is to be shown of what was said: not what the person has typed here."""
        found: list[Said] = []
        for said in self.conversation.see(event):
            if said.by == "user" and self._typed:
                self._typed -= 1
            else:
                found.append(said)
        return found

    def asked_already(self, prompt: str) -> bool:
        """Whether a question says what was said lately: of several that are open at once, each was said."""
        return prompt in self.run.messages[-_LATELY:]

    def refusal(self, entry: Entry) -> Refusal | None:
        told = isinstance(entry.event, Noted) and entry.event.name == "refused" and self.run.refused
        return self.run.refused[-1] if told else None

    def changes(self, entry: Entry) -> list[str]:
        return talking.change_lines(self.run, entry) if self.with_lines else []


class Chat(Terminal):
    """The view of a terminal: who says what, a line that says how far the run is, and a box at the end."""

    def __init__(self, talk: Talk, **more: Any) -> None:
        super().__init__(**more)
        self._talk = talk

    def remember(self, source: Source | None, entries: Sequence[Entry]) -> None:
        self._talk.remember(source, entries)

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        super().begin(title, row, steps)
        if self._unshown:
            self._note("/help lists what you can look at; Ctrl-D leaves, and the run waits.", "dim")
        before = self._talk.run.said[-talking.RECALLED :]
        if len(before) < len(self._talk.run.said):
            left = len(self._talk.run.said) - len(before)
            self._note(f"({wording.counted(left, 'message')} before)", "dim")
        for one in before:
            self._show(one)

    def see(self, event: Seen) -> None:
        with self.console:
            if self._progress is not None:
                self._progress.see(event)
            for one in self._talk.heard(event):
                self._show(one)
            if isinstance(event, TextReset):
                self._note("the reply begins again", "dim")
            if isinstance(event, Entry):
                for line in self._talk.changes(event):
                    self._note(line, "dim")
                self._entry(event)
            if isinstance(event, Entry) or not self._status.shown:
                self.tick()

    def _show(self, said: Said) -> None:
        self._break()
        style = "bold green" if said.by == "user" else "bold cyan"
        words = Text.assemble((f"{harmless(talking.speaker(said))}: ", style), harmless(said.text))
        self.console.print(words, width=self._width)

    def _entry(self, entry: Entry) -> None:
        """What is no conversation: little of it, and only what a person must know."""
        refusal = self._talk.refusal(entry)
        if refusal is not None:
            self._note(talking.refusal_line(refusal), "dim")
        match entry.event:
            case StepStarted() | StepSkipped() | StepFinished() | ModelAsked():
                pass
            case Warned(code=code) if code in _REFUSED:
                pass
            case WaitOpened(kind="question", prompt=prompt) if self._talk.asked_already(prompt):
                pass
            case Warned() | WaitOpened() | Performing() | Performed() | Noted():
                super()._entry(entry)
            case Rewound():
                self._note("what failed is tried again", "dim")
            case _:
                pass

    def _head(self, label: str, title: str) -> None:
        """Lines of a program have no headings."""

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        return talking.summary_of(view, self._talk.run, sits=bool(self._unshown))


class ChatLines(Plain):
    """The same as plain lines on stderr, and the program's result on stdout."""

    def __init__(self, talk: Talk, *, as_json: bool, asking: bool) -> None:
        super().__init__(sys.stderr, sys.stdout, as_json=as_json, asking=asking)
        self._talk = talk

    def remember(self, source: Source | None, entries: Sequence[Entry]) -> None:
        self._talk.remember(source, entries)

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        super().begin(title, row, ())

    def see(self, event: Seen) -> None:
        for one in self._talk.heard(event):
            first, *others = one.text.split("\n")
            self._say(f"{talking.speaker(one)}: {first}")
            for line in others:
                self._say(f"  {line}")
        if not isinstance(event, Entry):
            return
        for line in self._talk.changes(event):
            self._say(line)
        refusal = self._talk.refusal(event)
        if refusal is not None:
            self._say(f"  {talking.refusal_line(refusal)}")
        match event.event:
            case StepStarted() | StepSkipped() | StepFinished():
                pass
            case Warned(code=code) if code in _REFUSED:
                pass
            case WaitOpened(kind="question", prompt=prompt) if self._talk.asked_already(prompt):
                pass
            case _:
                super().see(event)

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        return talking.summary_of(view, self._talk.run, sits=bool(self._unshown))

    def _object(self, view: RunView) -> dict[str, Any]:
        return {**super()._object(view), "program": self._talk.run.plain()}


# --- the person -----------------------------------------------------------------------------------------


class ChatAsker(Asker):
    """Asks as one does in a chat. Wherever something is typed, a command shows how the run stands."""

    def __init__(
        self, talk: Talk, service: Service, who: Principal, keyboard: Keyboard, screen: IO[str], *, color: bool
    ) -> None:
        super().__init__(service, who, keyboard, screen, color=color)
        self._talk = talk

    def _pose(self, wait: WaitRow) -> None:
        if not self._talk.asked_already(wait.prompt):
            super()._pose(wait)

    def _invitation(self, wait: WaitRow, numbered: bool) -> str:
        return f"{talking.YOU}: " if wait.type == "input" else super()._invitation(wait, numbered)

    async def _answer(self, wait: WaitRow, said: str, numbered: bool) -> None:
        await super()._answer(wait, said, numbered)
        self._talk.typed()

    async def _check_open(self, wait: WaitRow) -> None:
        try:
            await super()._check_open(wait)
        except Decided:
            if wait.kind == "question":
                self._talk.typed()  # what was answered elsewhere is said by whoever asked
            raise

    async def _line(self, wait: WaitRow, prompt: str) -> str:
        while True:
            said = await super()._line(wait, prompt)
            command = _COMMAND.match(said)
            if command is None:
                return said[1:] if said.startswith("//") else said
            self._obey(command[1])

    def _obey(self, name: str) -> None:
        if name == "quit":
            raise Later
        lines = _LOOKS.get(name)
        if lines is None:
            self._say(
                f"There is no command /{name}; /help lists them. An answer that begins with / is typed as //.", "red"
            )
            return
        for line in lines(self._talk):
            for part in _wrapped(line):
                self._say(part)


def _wrapped(line: str) -> Iterable[str]:
    """A line as the terminal has room for it: what goes on stands further in."""
    width = max(20, shutil.get_terminal_size().columns - 1)
    if len(line) <= width:
        return [line]
    inside = " " * (len(line) - len(line.lstrip(" ->")) + 4)
    return textwrap.wrap(line, width, subsequent_indent=inside, drop_whitespace=True, break_on_hyphens=False)


_HELP: Mapping[str, str] = {
    "help": "this list",
    "listing": "the listing of the playbook that is being executed, with its line",
    "line": "the line where it stands",
    "stack": "the frames: playbook, line, and the calls that have not run yet",
    "vars": "the variables with their types",
    "why": "the replies that were refused last, and why",
    "quit": "leave; the run waits, and `cuebook resume` goes on with it",
}


def _help(talk: Talk) -> Iterable[str]:
    yield from (f"/{name:<9}{words}" for name, words in _HELP.items())
    yield "Anything else is what you say; // stands for one / at the beginning."


_LOOKS: Mapping[str, Callable[[Talk], Iterable[str]]] = {
    "help": _help,
    "listing": lambda talk: talking.listing_lines(talk.run),
    "line": lambda talk: [talking.line_words(talk.run)],
    "stack": lambda talk: talking.stack_lines(talk.run),
    "vars": lambda talk: talking.variable_lines(talk.run),
    "why": lambda talk: talking.why_lines(talk.run),
}
