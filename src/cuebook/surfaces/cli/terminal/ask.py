"""Asks the user at the terminal for the answers and decisions that a run is waiting for.

The question stays a durable wait in the store, so nothing is lost if this process exits, and someone else may answer it
first.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import click

from cuebook.formats.forms import Field, example, fields_of
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.engine.waits import WHOLE
from cuebook.kernel.errors import BadInput, Refused
from cuebook.kernel.events import STATUS_OF_WAIT
from cuebook.kernel.run import WaitRow
from cuebook.kernel.votes import rule_of
from cuebook.service.service import Principal, Service
from cuebook.service.waits.lasting_approvals import Lasts, offered
from cuebook.surfaces import display
from cuebook.surfaces.cli import next_steps
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.terminal.output import fitted, harmless, has_keys
from cuebook.surfaces.cli.terminal.views import ASKED

if TYPE_CHECKING:
    from cuebook.surfaces.cli.terminal.line_editor import LineEditor

Decision = Literal["approve", "deny", "changes", "repeat", "stop"]

LATER = "later"
_MEANT = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}
"""Other words that people use for a decision."""
_LASTING: Mapping[str, tuple[Lasts, int]] = {
    "run": ("run", 1),
    "always": ("always", 1),
    "run+": ("run", 2),
    "always+": ("always", 2),
}
"""The words for an approval that lasts, each with how long, and the number of the offer."""
_HOW_LONG = {"run": "for the rest of this run", "always": "in all runs, until it is revoked"}
_BETWEEN_LOOKS = 0.3
"""Seconds between checks of whether the wait was decided elsewhere."""


def someone_is_there(given: Given) -> bool:
    """Whether there is a user at the terminal who can be asked."""
    if any(given.get(name) for name in ("as_json", "as_events", "no_ask", "unattended")):
        return False
    return _is_terminal(sys.stdin) and _screen() is not None and _has_keyboard()


def _screen() -> IO[str] | None:
    return next((stream for stream in (sys.stdout, sys.stderr) if _is_terminal(stream)), None)


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _has_keyboard() -> bool:
    """Whether this process is in the foreground; a background process is stopped when it reads from its terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


class Decided(Exception):
    """The wait was decided elsewhere while the user was being asked."""

    def __init__(self, wait: WaitRow) -> None:
        super().__init__(wait.id)
        self.wait = wait


class Later(Exception):
    """The user left the question for later."""


class Asker:
    """Asks the user at the terminal, and answers and decides on their behalf."""

    def __init__(self, service: Service, who: Principal, editor: LineEditor, screen: IO[str], *, color: bool) -> None:
        self._service = service
        self._who = who
        self._editor = editor
        self._screen = screen
        self._color = color

    async def ask_for(self, waits: Sequence[WaitRow]) -> bool:
        """Asks about the most urgent of these waits. Returns False if the user cannot be asked here or leaves it for later."""
        urgency = list(STATUS_OF_WAIT)
        wait = min((w for w in waits if w.kind in ASKED), key=lambda w: urgency.index(w.kind), default=None)
        if wait is None:
            return False
        self._editor.forget()
        try:
            await _WAYS[wait.kind](self, wait)
        except Decided as decided:
            self._editor.forget()
            self._say(f"\n{_by_whom(decided.wait)}")
        except Later:
            return False
        except Refused as refused:  # it was decided in the meantime
            self._say(str(refused), "red")
        except (BadInput, NotAllowed) as refused:
            self._say(str(refused), "red")
            return False
        return True

    def silent(self) -> AbstractContextManager[None]:
        """Suppresses the echo of keys that are typed before a question."""
        return self._editor.silent()

    def close(self) -> None:
        """Drops typed text that was not read, because the shell would run it as a command."""
        self._editor.forget()

    # --- one method for each kind of wait ---

    async def _form(self, wait: WaitRow) -> None:
        """Asks for one field after another; a schema that fields cannot show is answered as JSON on one line."""
        self._pose(wait)
        schema = wait.details.get("schema", True)
        while True:
            fields = fields_of(schema)
            said = {one.name: value for one in fields if (value := await self._filled(wait, one)) is not None}
            answer: Any = said
            if not fields:
                answer = await self._line(wait, f"JSON like {example(schema)} (Ctrl-D to answer later): ")
            elif not fields[0].name:
                answer = said.get("")
            try:
                await self._service.answer(wait.id, answer, self._who)
                return
            except BadInput as unfit:
                self._say(str(unfit), "red")

    async def _filled(self, wait: WaitRow, field: Field) -> Any:
        """What the user typed into a field, with the field's type; None if it was left out."""
        hint = "/".join(field.options) if field.options else "yes/no" if field.kind == "boolean" else field.kind
        default = "" if field.default is None else f" [{field.default}]"
        about = f" ({field.about})" if field.about else ""
        said = (await self._line(wait, f"{field.title or 'Your answer'}{about}, {hint}{default}: ")).strip()
        if not said:
            return field.default
        if field.kind == "boolean":
            return {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(
                said.lower(), said
            )
        if field.kind in ("number", "integer"):
            try:
                return int(said) if field.kind == "integer" else float(said)
            except ValueError:
                return said  # the check says what is wrong with it
        return said

    async def _question(self, wait: WaitRow) -> None:
        if wait.type == "form":
            return await self._form(wait)
        self._pose(wait)
        numbered = wait.type == "select" and not any(option.strip().isdigit() for option in wait.options)
        if wait.type == "select":
            for number, option in enumerate(wait.options, start=1):
                self._say(f"  {number:>2}  {option}" if numbered else f"  {option}")
        empty_is_meant = False
        while True:
            said = await self._line(wait, self._invitation(wait, numbered))
            if wait.type != "input" and said.strip().lower() == LATER and LATER not in map(str.lower, wait.options):
                raise Later
            if not said and wait.default is not None:
                said = wait.default
            elif not said and wait.type == "input" and not empty_is_meant:
                empty_is_meant = True
                self._say("This answer is empty. Press Enter again to send it.", "red")
                continue
            try:
                return await self._answer(wait, said, numbered)
            except BadInput as unfit:
                self._say(str(unfit), "red")

    def _pose(self, wait: WaitRow) -> None:
        self._say(wait.prompt, "yellow")

    def _invitation(self, wait: WaitRow, numbered: bool) -> str:
        """The prompt before the typed text."""
        return _how_to_answer(wait, numbered)

    async def _answer(self, wait: WaitRow, said: str, numbered: bool) -> None:
        place = int(said) if numbered and said.strip().isdecimal() else 0
        value = wait.options[place - 1] if 0 < place <= len(wait.options) else said
        await self._service.answer(wait.id, value, self._who)

    async def _approval(self, wait: WaitRow) -> None:
        for line in next_steps.approval_lines(wait):
            self._say(line)
        choices = [display.patterns_words(one) for one in offered(wait)]
        if choices:
            self._say(f"\n{'approve':<10}this action only, once")
            for word, (lasts, number) in _LASTING.items():
                if number <= len(choices):
                    self._say(f"{word:<10}and {_HOW_LONG[lasts]}: {choices[number - 1]}")
        steps = rule_of(wait.details).changes
        if steps:
            self._say(f"{'changes':<10}back to step {steps[0]}, with what follows as feedback")
        await self._decide(wait, ("approve", *(("changes",) if steps else ()), "deny"), len(choices))

    async def _in_doubt(self, wait: WaitRow) -> None:
        self._say(wait.prompt, "yellow")
        for line in display.preview_lines(wait.details.get("preview", {})):
            self._say(line)
        if WHOLE in wait.details:
            self._say(f"`{display.command_line(f'inbox {wait.id}')}` shows all of it.")
        self._say(f"If it did happen, `cuebook decide {wait.id} done --outcome JSON` records its result.")
        await self._decide(wait, ("repeat", "stop"))

    async def _decide(self, wait: WaitRow, decisions: tuple[Decision, ...], offers: int = 0) -> None:
        """Asks for one of these decisions, optionally followed by a reason. An empty line decides nothing.

        With offers, an approval can also last. Only the full word is accepted for that.
        """
        lasting = [word for word, (_, number) in _LASTING.items() if number <= offers]
        listed = ", ".join((decisions[0], *lasting, *decisions[1:]))
        while True:
            said = await self._line(wait, f'{listed}, or "later" (a reason may follow): ')
            word, _, rest = said.strip().partition(" ")
            word = word.lower()
            if word and LATER.startswith(word):
                raise Later
            if word in lasting:
                lasts, offer = _LASTING[word]
                await self._service.decide(wait.id, "approve", self._who, reason=rest.strip(), lasts=lasts, offer=offer)
                return
            if lasting and word == decisions[0] and rest.strip().lower() in lasting:
                self._say(f'Type only "{rest.strip().lower()}" to allow that; "{word}" approves this once.', "red")
                continue
            meant = _MEANT.get(word, word) if decisions[0] == "approve" else word
            decision = next((one for one in decisions if meant and one.startswith(meant)), None)
            if decision is None:
                names = ", ".join(f'"{one}"' for one in (decisions[0], *lasting, *decisions[1:]))
                self._say(f'Expected {names} or "later".', "red")
                continue
            await self._service.decide(wait.id, decision, self._who, reason=said.strip()[len(word) :].strip())
            return

    async def _pause(self, wait: WaitRow) -> None:
        self._say(wait.prompt, "yellow")
        while True:
            said = await self._line(wait, 'Press Enter to continue, or type "later" to leave it paused: ')
            if said.strip().lower() == LATER:
                raise Later
            if not said.strip():
                await self._service.resume(wait.run, self._who)
                return
            self._say(f"`cuebook resume {wait.run} --set NAME=VALUE` changes a value and continues.", "red")

    # --- the terminal ---

    async def _line(self, wait: WaitRow, prompt: str) -> str:
        """Returns the typed line. Raises `Decided` if the wait is decided elsewhere in the meantime."""
        while True:
            typing = asyncio.create_task(self._editor.line(prompt, wait.type or wait.kind, self._earlier(wait)))
            try:
                while not typing.done():
                    await asyncio.wait([typing], timeout=_BETWEEN_LOOKS)
                    await self._check_open(wait)
            finally:
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)
            said = typing.result()
            if said is None:
                self._say("")
                raise Later
            if not has_keys(said):
                return said
            self._say("An answer must not contain control characters. Please type it again.", "red")

    def _earlier(self, wait: WaitRow) -> Sequence[str]:
        """The initial history for this kind of question."""
        return ()

    async def _check_open(self, wait: WaitRow) -> None:
        await self._service.expire()
        now = await self._service.wait_row(wait.id)
        if now.state != "open":
            raise Decided(now)

    def _say(self, words: str, style: str | None = None) -> None:
        words = fitted(harmless(words), self._screen)
        self._screen.write(f"{click.style(words, fg=style) if style and self._color else words}\n")
        self._screen.flush()


_WAYS: Mapping[str, Callable[[Asker, WaitRow], Awaitable[None]]] = {
    "question": Asker._question,
    "approval": Asker._approval,
    "in_doubt": Asker._in_doubt,
    "breakpoint": Asker._pause,
}


Made = TypeVar("Made", bound=Asker)


def asker_for(given: Given, service: Service, who: Principal, made: Callable[..., Made]) -> Made | None:
    """An asker made by `made`, if there is a user at the terminal."""
    screen = _screen()
    if screen is None or not someone_is_there(given):
        return None
    color = not given.get("no_color") and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    from cuebook.surfaces.cli.terminal.line_editor import LineEditor

    return made(service, who, LineEditor(sys.stdin.fileno(), screen), screen, color=color)


def _how_to_answer(wait: WaitRow, numbered: bool) -> str:
    what = {"confirm": "yes or no", "select": "By number or name" if numbered else "One of these"}
    default = "" if wait.default is None else f" [{display.short(wait.default)}]"
    later = "Ctrl-D to answer later" if wait.type == "input" else 'or type "later"'
    return f"{what.get(wait.type, 'Your answer')}{default} ({later}): "


def _by_whom(wait: WaitRow) -> str:
    """A message that says how the wait was decided elsewhere."""
    if wait.state == "expired":
        return "The wait has expired."
    who = f" by {wait.by}" if wait.by else ""
    if "decision" in wait.answer:
        return f"It was decided elsewhere{who}: {wait.answer['decision']}."
    if "value" in wait.answer:
        return f"It was answered elsewhere{who}: {wait.answer['value']}"
    return f"It was closed elsewhere{who}."
