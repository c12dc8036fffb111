"""The view of a terminal: a heading for each step, the text as it streams, and a box at the end. Needs rich."""

from __future__ import annotations

import re

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cuebook.kernel.effects import Failed
from cuebook.kernel.events import (
    Performed,
    Planned,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
    WaitOpened,
    Warned,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, StepRow
from cuebook.service import RunView
from cuebook.surfaces.cli import live
from cuebook.surfaces.cli.live import Seen

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

# What a model writes is text: control characters could move the cursor or change the window's title.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    return _CONTROL.sub("", text)


class Flow:
    """Writes streamed text so that lines break between words."""

    def __init__(self, console: Console, width: int) -> None:
        self._console = console
        self._width = width
        self._column = 0
        self._word = ""

    def write(self, text: str) -> None:
        pieces: list[str] = []
        for part in re.split(r"(\s)", harmless(text)):
            if not part.isspace():
                self._word += part
            else:
                pieces += (self._placed(), self._blank(part))
        # A word longer than a line is shown as it comes.
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
        if text:
            self._console.out(text, end="", highlight=False)


class Terminal:
    """Implements `live.View` on a terminal."""

    def __init__(self, *, color: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, no_color=None if color else True)
        self._width = min(self.console.width, WIDEST)
        self._flow = Flow(self.console, self._width)
        self._steps: list[str] = []
        self._streamed = ""
        """The step whose text is on the screen."""

    def begin(self, title: str, row: RunRow, steps: list[StepRow]) -> None:
        self._steps = list(dict.fromkeys(step.label for step in steps))
        self.console.print(Text.assemble((harmless(title), "bold"), (f"  {row.model}, run {row.id}", "dim")))

    def see(self, event: Seen) -> None:
        match event:
            case TextChunk(text=text, step=step):
                self._streamed = step
                self._flow.write(text)
            case TextReset(step=step) if step == self._streamed:
                self._flow.close()
                self._note("the reply begins again", "yellow")
            case Entry():
                self._entry(event)

    def _entry(self, entry: Entry) -> None:
        match entry.event:
            case Planned(steps=steps):
                self._steps = [step.label for step in steps]
            case StepStarted(label=label, title=title):
                self._heading(label, title)
            case StepFinished(status="completed") as finished:
                if finished.output is not None and not self._streamed:  # another process drives the run
                    self._flow.write(str(finished.output))
                self._flow.close()
                self._note(live.stats(finished), "dim")
            case StepFinished(status=status, reason=reason):
                self._flow.close()
                self._note(f"{status}: {reason}", "yellow")
            case Warned(message=message):
                self._flow.close()
                self._note(f"warning: {message}", "yellow")
            case WaitOpened(prompt=prompt):
                self._flow.close()
                self._note(prompt, "yellow")
            case Performed(outcome=Failed() as failed) if failed.code != "cancelled":
                self._flow.close()
                self._note(str(failed), "red")
            case _:
                pass

    def end(self, view: RunView) -> None:
        self._flow.close()
        style = STYLES.get(view.run.status, "")
        lines = live.summary(view)
        table = Table.grid(padding=(0, 2))
        for name, words in lines[1:]:
            table.add_row(Text(name, "dim"), Text(harmless(words), "bold" if name in ("next", "again") else ""))
        title = Text(lines[0][1], f"bold {style}")
        panel = Panel(table, title=title, title_align="left", border_style=style, width=self._width, box=box.ROUNDED)
        self.console.print()
        self.console.print(panel)

    def _heading(self, label: str, title: str) -> None:
        self._flow.close()
        self._streamed = ""
        number = f"{label} of {len(self._steps)}" if self._steps and self._steps[-1] == str(len(self._steps)) else label
        self.console.print()
        words = Text.assemble((f"Step {number}  ", "cyan"), (harmless(title), "bold"))
        self.console.print(Rule(words, align="left", style="cyan"), width=self._width)

    def _note(self, words: str, style: str) -> None:
        self.console.print(Text(harmless(words), style), width=self._width)
