"""The terminal view of a run: the plan, a heading for each step, streamed text, a status line, and a box at the end.
It needs rich.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.panel import Panel
from rich.rule import Rule
from rich.segment import ControlType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cuebook.kernel.events import (
    ModelAsked,
    Performed,
    Performing,
    Planned,
    PlannedStep,
    StepFinished,
    StepSkipped,
    StepStarted,
    TextChunk,
    TextReset,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import CommandResult, HttpResponse, Page
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service.service import RunView
from cuebook.surfaces.cli.terminal import progress, views
from cuebook.surfaces.cli.terminal.output import harmless
from cuebook.surfaces.cli.terminal.progress import Progress
from cuebook.surfaces.cli.terminal.views import Seen
from cuebook.surfaces.display import action_line, asked_lines, outcome_lines

WIDEST = 100

STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "red",
    "expired": "red",
    "paused": "yellow",
    "awaiting_input": "yellow",
    "awaiting_approval": "yellow",
}

_MARKED = {"✓": "green", "✗": "red", "–": "yellow", "?": "yellow", "›": "cyan"}


class StatusLine:
    """A line below the streamed text; the cursor stays in the text.

    Code that is about to break a line hides it first, and shows it again afterwards.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        # It needs a movable cursor, which files, recordings and dumb terminals do not have.
        self.works = console.file.isatty() and not console.is_dumb_terminal
        self._words: str | None = None

    @property
    def shown(self) -> bool:
        return self._words is not None

    def show(self, words: str, column: int) -> None:
        """Draws the line if its text has changed; `column` is the position of the cursor in the streamed text."""
        # At the edge the terminal may have broken the line by itself, so the position would be wrong.
        if not self.works or not 0 <= column < self._console.width or words == self._words:
            return
        if self.shown:
            self._console.control(Control((ControlType.CURSOR_DOWN, 1), (ControlType.CURSOR_MOVE_TO_COLUMN, 0)))
        else:
            self._console.print()
        fitting = set_cell_size(words, self._console.width - 1)
        self._console.print(Text(fitting, Style(dim=True)), end="", no_wrap=True, crop=False, overflow="ignore")
        self._console.control(Control((ControlType.CURSOR_UP, 1), (ControlType.CURSOR_MOVE_TO_COLUMN, column)))
        self._words = words

    def hide(self) -> None:
        """Removes the line; the cursor stays where it is."""
        if not self.shown:
            return
        self._words = None
        self._console.control(
            Control((ControlType.CURSOR_DOWN, 1), (ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        )


class Flow:
    """Writes streamed text and breaks lines between words."""

    def __init__(self, console: Console, width: int, before_break: Callable[[], None] = lambda: None) -> None:
        """`before_break` is called before a line ends, at a line break or at the edge of the terminal."""
        self._console = console
        self._width = width
        self._before_break = before_break
        self._column = 0
        self._word = ""

    @property
    def column(self) -> int:
        """The column of the next character."""
        return self._column

    def write(self, text: str) -> None:
        pieces: list[str] = []
        for part in re.split(r"(\s)", harmless(text)):
            if not part.isspace():
                self._word += part
            else:
                pieces += (self._placed(), self._blank(part))
        # A word longer than a line is written before it is complete.
        if len(self._word) >= self._width:
            pieces.append(self._placed())
        self._out("".join(pieces))

    def close(self) -> None:
        self._out(self._placed())
        if self._column:
            self._out("\n")
        self._column = 0

    def _placed(self) -> str:
        word, self._word = self._word, ""
        if not word:
            return ""
        length = cell_len(word)
        start = "\n" if self._column and self._column + length > self._width else ""
        self._column = length if start else self._column + length
        return start + word

    def _blank(self, blank: str) -> str:
        if blank == "\n":
            self._column = 0
            return "\n"
        if self._column + 1 >= self._width:
            self._column = 0
            return "\n"
        self._column += 1
        return " "

    def _out(self, text: str) -> None:
        if not text:
            return
        if "\n" in text or self._column > self._width:
            self._before_break()
        self._console.out(text, end="", highlight=False)


class Terminal:
    """Implements `views.View` on a terminal."""

    def __init__(self, *, color: bool = True, console: Console | None = None, asking: bool = False) -> None:
        """With `asking`, the asker shows the questions."""
        self.console = console or Console(highlight=False, no_color=None if color else True)
        self._width = min(self.console.width, WIDEST)
        self._unshown = views.ASKED if asking else ()
        self._dialect = ""
        self._status = StatusLine(self.console)
        self._flow = Flow(self.console, self._width, self._status.hide)
        self._progress: Progress | None = None
        self._planned = False
        self._heading = ""
        """The step of the last heading."""
        self._streamed = ""
        """The step whose text is on the screen."""
        self._failure = ""
        """The last failure that was shown."""
        self._over = ""
        """The step that has ended. Text that a model writes for it afterwards is not shown."""

    # --- the life of a run ---

    def begin(self, title: str, row: RunRow, steps: Sequence[StepRow], plan: Sequence[PlannedStep] = ()) -> None:
        self._dialect = row.dialect
        self._progress = Progress(row, steps, plan)
        self.console.print(
            Text.assemble(
                (harmless(title), "bold"), (harmless(f"  {f'{row.model}, ' if row.model else ''}run {row.id}"), "dim")
            )
        )
        self._show_plan(plan, steps)

    def see(self, event: Seen) -> None:
        with self.console:  # all changes of one event appear at once
            if self._progress is not None:
                self._progress.see(event)
            match event:
                case TextChunk(step=step) if step and step == self._over:
                    pass  # the model chooses the next step; the choice is shown when it is made
                case TextChunk(text=text, step=step):
                    self._streamed = step
                    self._flow.write(text)
                case TextReset(step=step) if step == self._streamed:
                    self._note("the reply starts again", "yellow")
                case Entry():
                    self._entry(event)
            if isinstance(event, Entry) or not self._status.shown:
                self.tick()

    def tick(self) -> None:
        if self._progress is None or not self._progress.running:
            return self._status.hide()
        with self.console:
            self._status.show(harmless(self._progress.line()), self._flow.column)

    def rest(self) -> None:
        self._flow.close()
        self._status.hide()

    def end(self, view: RunView) -> None:
        self.rest()
        style = STYLES.get(view.run.status, "")
        lines = self._summary(view)
        table = Table.grid(padding=(0, 2))
        for name, words in lines[1:]:
            table.add_row(Text(name, "dim"), Text(harmless(words), "bold" if name in ("next", "more") else ""))
            if name == "steps":
                for line in progress.outcome_lines(view.steps):
                    table.add_row("", self._step_line(line))
        title = Text(lines[0][1], f"bold {style}")
        panel = Panel(table, title=title, title_align="left", border_style=style, width=self._width, box=box.ROUNDED)
        self.console.print()
        self.console.print(panel)

    def _summary(self, view: RunView) -> list[tuple[str, str]]:
        """The lines of the box as name and text, the status first."""
        return views.summary(view)

    # --- entries ---

    def _entry(self, entry: Entry) -> None:
        match entry.event:
            case StepStarted():
                self._over = self._failure = ""
            case StepFinished(label=label):
                self._over = label
            case _:
                pass
        match entry.event:
            case Planned(steps=steps):
                self._show_plan(steps, ())
            case StepStarted(label=label, title=title):
                self._head(label, f"{title}{views.again(entry)}")
            case ModelAsked():
                self._head_again(entry.place.step)
            case Performing(effect=effect):
                self._head_again(entry.place.step)
                if line := action_line(effect):
                    self._note(line, "cyan")
            case Performed(outcome=CommandResult() | HttpResponse() | Page() as outcome):
                self._streamed = entry.place.step  # its output may be long, so only these lines are shown
                for line in outcome_lines(outcome):
                    self._note(line, "dim")
            case StepFinished(status="completed") as finished:
                self._head_again(finished.label)
                if finished.output is not None and not self._streamed:  # none of it was streamed
                    self._streamed = finished.label
                    self._flow.write(str(finished.output))
                self._note(self._of(finished.label, views.stats(finished)), "dim")
            case StepFinished(label=label, status=status, reason=reason):
                if not views.says_again(reason, self._failure):
                    self._note(self._of(label, f"{status}: {reason}"), "yellow")
            case StepSkipped(label=label, title=title, reason=reason):
                self._head(label, title)
                self._note(f"skipped: {reason}", "yellow")
            case Warned(message=message):
                self._note(f"warning: {message}", "yellow")
            case WaitOpened(kind=kind) as wait if kind not in self._unshown:
                for line in asked_lines(wait):
                    self._note(line, "yellow")
            case Performed() as performed if (failed := views.failure_of(performed)) is not None:
                self._failure = str(failed)
                self._note(self._failure, "red")
            case other if words := views.noted(other, self._dialect):
                for line in words:
                    self._note(line, "cyan")
            case _:
                pass

    def _show_plan(self, plan: Sequence[PlannedStep], steps: Sequence[StepRow]) -> None:
        if self._planned or len(plan) < 2:
            return
        self._planned = True
        for line in progress.plan_lines(plan, steps):
            self.console.print(self._step_line(line), width=self._width, no_wrap=True, overflow="ellipsis")

    def _step_line(self, line: str) -> Text:
        mark, words = line[:1], line[1:]
        shown = mark if self.console.encoding.startswith("utf") else progress.in_ascii(mark)
        return Text.assemble((shown, _MARKED.get(mark, "dim")), harmless(words), no_wrap=True, overflow="ellipsis")

    def _head(self, label: str, title: str) -> None:
        self._break()
        self._heading, self._streamed = label, ""
        number = self._progress.number() if self._progress is not None else label
        self.console.print()
        words = Text.assemble((f"Step {number}  ", "cyan"), (harmless(title), "bold"))
        self.console.print(Rule(words, align="left", style="cyan"), width=self._width)

    def _head_again(self, label: str) -> None:
        """Shows the heading of the step in which the run was resumed, because no event starts that step again."""
        if label and not self._heading:
            self._head(label, self._progress.title_of(label) if self._progress is not None else "")

    def _of(self, label: str, words: str) -> str:
        """The text, with the name of the step if it is not below its own heading."""
        return words if label == self._heading else f"step {label}: {words}"

    def _note(self, words: str, style: str) -> None:
        self._break()
        self.console.print(Text(harmless(words), style), width=self._width)

    def _break(self) -> None:
        """Ends the line of streamed text before other output."""
        self._flow.close()
        self._status.hide()
