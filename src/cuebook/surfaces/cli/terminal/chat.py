"""Chat at a terminal: a conversation in which the user can also look at the listing, the stack and the variables.

The program's messages are shown as soon as they are verified. Without a terminal, the conversation is printed as plain lines.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from rich.text import Text

from cuebook.dialects.dialect import Dialect
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.projection import Conversation, Refusal, Said
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
from cuebook.service.service import Principal, RunView, Service
from cuebook.surfaces import display
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.terminal import conversation
from cuebook.surfaces.cli.terminal.ask import Asker, Decided, Later, asker_for
from cuebook.surfaces.cli.terminal.line_editor import LineEditor
from cuebook.surfaces.cli.terminal.output import harmless
from cuebook.surfaces.cli.terminal.rich_view import Terminal
from cuebook.surfaces.cli.terminal.views import Plain, Seen, View

_REFUSED = ("refused",)
"""Warnings that are displayed separately."""
_LATELY = 8
"""The number of recent messages to search for the text of a question."""
_COMMAND = re.compile(r"/([a-z]+)\s*\Z")


def view_and_asker(given: Given, service: Service, who: Principal, dialect: Dialect) -> tuple[View, Asker | None]:
    """The view that shows a run, and the asker for the user at the terminal."""
    talk = Talk(dialect, with_lines=bool(given.get("as_lines")))

    def made(*parts: Any, **more: Any) -> ChatAsker:
        return ChatAsker(talk, *parts, **more)

    asker = asker_for(given, service, who, made)
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not given.get("as_json") and (given.get("as_live") or on_terminal):
        return Chat(talk, color=not given.get("no_color"), asking=asker is not None), asker
    return ChatLines(talk, as_json=bool(given.get("as_json")), asking=asker is not None), asker


class Talk:
    """State that the view and the asker share: the conversation so far, and the answers typed here."""

    def __init__(self, dialect: Dialect, *, with_lines: bool = False) -> None:
        self.with_lines = with_lines
        self._dialect = dialect
        self._projection = dialect.observe(None)
        self._typed = 0
        """The number of typed answers that the conversation has not repeated yet."""
        self._refusals = 0
        """The number of refusals that were shown."""

    @property
    def run(self) -> Conversation:
        assert self._projection.conversation is not None
        return self._projection.conversation

    def remember(self, source: Playbook | None, entries: Sequence[Entry]) -> None:
        self._projection = self._dialect.observe(source.document if source is not None else None)
        for entry in entries:
            self._projection.see(entry)
        self._refusals = len(self.run.refused)

    def typed(self) -> None:
        self._typed += 1

    def see(self, event: Seen) -> list[Said]:
        """The new messages to show, except for answers that were typed here, which are already on the screen."""
        found: list[Said] = []
        for said in self._projection.see(event).said:
            if said.by == "user" and self._typed:
                self._typed -= 1
            else:
                found.append(said)
        return found

    def asked_already(self, prompt: str) -> bool:
        """Whether the text of a question is among the recent messages, as when several questions are open."""
        return prompt in self.run.messages[-_LATELY:]

    def refusal(self) -> Refusal | None:
        """The last refusal, if it has not been shown yet."""
        before, self._refusals = self._refusals, len(self.run.refused)
        return self.run.refused[-1] if self._refusals > before else None

    def changes(self, entry: Entry) -> Sequence[str]:
        return self.run.changes(entry) if self.with_lines else ()


class Chat(Terminal):
    """The terminal view of a chat: messages with their speakers, a status line, and a box at the end."""

    def __init__(self, talk: Talk, **more: Any) -> None:
        super().__init__(**more)
        self._talk = talk

    def remember(self, source: Playbook | None, entries: Sequence[Entry]) -> None:
        self._talk.remember(source, entries)

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        super().begin(title, row, steps)
        if self._unshown:
            self._note("/help lists the commands; Ctrl-D leaves the chat, and the run waits.", "dim")
        before = self._talk.run.said[-conversation.RECALLED :]
        if len(before) < len(self._talk.run.said):
            left = len(self._talk.run.said) - len(before)
            self._note(f"({display.counted(left, 'earlier message')})", "dim")
        for one in before:
            self._show(one)

    def see(self, event: Seen) -> None:
        with self.console:
            if self._progress is not None:
                self._progress.see(event)
            for one in self._talk.see(event):
                self._show(one)
            if isinstance(event, TextReset):
                self._note("the reply starts again", "dim")
            if isinstance(event, Entry):
                for line in self._talk.changes(event):
                    self._note(line, "dim")
                self._entry(event)
            if isinstance(event, Entry) or not self._status.shown:
                self.tick()

    def _show(self, said: Said) -> None:
        self._break()
        style = "bold green" if said.by == "user" else "bold cyan"
        words = Text.assemble((f"{harmless(conversation.speaker(said))}: ", style), harmless(said.text))
        self.console.print(words, width=self._width)

    def _entry(self, entry: Entry) -> None:
        """Shows the few events outside the conversation that the user must know about."""
        refusal = self._talk.refusal()
        if refusal is not None:
            self._note(conversation.refusal_line(refusal), "dim")
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
                self._note("retrying what failed", "dim")
            case _:
                pass

    def _head(self, label: str, title: str) -> None:
        """Does nothing: the steps of a conversation have no headings."""

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        return conversation.summary_of(view, self._talk.run, sits=bool(self._unshown))


class ChatLines(Plain):
    """The chat as plain lines on stderr, with the program's result on stdout."""

    def __init__(self, talk: Talk, *, as_json: bool, asking: bool) -> None:
        super().__init__(sys.stderr, sys.stdout, as_json=as_json, asking=asking)
        self._talk = talk

    def remember(self, source: Playbook | None, entries: Sequence[Entry]) -> None:
        self._talk.remember(source, entries)

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        super().begin(title, row, ())

    def see(self, event: Seen) -> None:
        for one in self._talk.see(event):
            first, *others = one.text.split("\n")
            self._say(f"{conversation.speaker(one)}: {first}")
            for line in others:
                self._say(f"  {line}")
        if not isinstance(event, Entry):
            return
        for line in self._talk.changes(event):
            self._say(line)
        refusal = self._talk.refusal()
        if refusal is not None:
            self._say(f"  {conversation.refusal_line(refusal)}")
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
        return conversation.summary_of(view, self._talk.run, sits=bool(self._unshown))

    def _object(self, view: RunView) -> dict[str, Any]:
        return {**super()._object(view), "program": self._talk.run.as_object()}


# --- the user -------------------------------------------------------------------------------------------


class ChatAsker(Asker):
    """Asks as in a chat. Instead of an answer, the user can type a command that shows the state of the run."""

    def __init__(
        self, talk: Talk, service: Service, who: Principal, editor: LineEditor, screen: IO[str], *, color: bool
    ) -> None:
        super().__init__(service, who, editor, screen, color=color)
        self._talk = talk

    def _pose(self, wait: WaitRow) -> None:
        if not self._talk.asked_already(wait.prompt):
            super()._pose(wait)

    def _invitation(self, wait: WaitRow, numbered: bool) -> str:
        return f"{conversation.YOU}: " if wait.type == "input" else super()._invitation(wait, numbered)

    async def _answer(self, wait: WaitRow, said: str, numbered: bool) -> None:
        await super()._answer(wait, said, numbered)
        self._talk.typed()

    async def _check_open(self, wait: WaitRow) -> None:
        try:
            await super()._check_open(wait)
        except Decided:
            if wait.kind == "question":
                self._talk.typed()  # the message about the decision already shows the answer
            raise

    def _earlier(self, wait: WaitRow) -> Sequence[str]:
        if wait.type != "input":
            return ()
        return [said.text for said in self._talk.run.said if said.by == "user"]

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
            self._say(f"Unknown command /{name}; /help lists them. Type // for an answer that begins with /.", "red")
            return
        for line in lines(self._talk):
            self._say(line)


_HELP: Mapping[str, str] = {
    "help": "this list",
    "listing": "the listing of the playbook that is running, with its current line",
    "line": "the current line",
    "stack": "the frames: playbook, line, and the calls that have not run yet",
    "vars": "the variables with their types",
    "why": "the last replies that were refused, and why",
    "quit": "leave the chat; the run waits, and `cuebook resume` continues it",
}


def _help(talk: Talk) -> Iterable[str]:
    yield from (f"/{name:<9}{words}" for name, words in _HELP.items())
    yield "Anything else is your answer; type // for an answer that begins with /."


_LOOKS: Mapping[str, Callable[[Talk], Iterable[str]]] = {
    "help": _help,
    "listing": lambda talk: conversation.listing_lines(talk.run),
    "line": lambda talk: [conversation.line_words(talk.run)],
    "stack": lambda talk: conversation.stack_lines(talk.run),
    "vars": lambda talk: conversation.variable_lines(talk.run),
    "why": lambda talk: conversation.why_lines(talk.run),
}
