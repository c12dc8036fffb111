"""Which dialect a playbook is written in, and how to get from its text to its program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from cuebook.dialects.options import Option
from cuebook.kernel.effects import Program, QuestionType
from cuebook.kernel.errors import BadInput, told
from cuebook.kernel.events import PlannedStep, TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, Settings, WaitRow


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a playbook's text."""

    message: str
    line: int | None = None
    fix: str = ""
    code: str = ""


class InvalidPlaybook(BadInput):
    """The playbook cannot be run as it is written."""

    code = "invalid_playbook"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(_line(name, problem) for problem in problems))


def _line(name: str, problem: Problem) -> str:
    where = f"{name}:{problem.line}" if problem.line else name
    return f"{where}: {told(problem.message, problem.fix)}"


class Finding(Protocol):
    """Something in a playbook's text that is wrong or odd, whether or not it can be run."""

    @property
    def code(self) -> str: ...

    @property
    def severity(self) -> Literal["error", "warning", "note"]: ...

    @property
    def message(self) -> str: ...

    @property
    def line(self) -> int | None: ...

    @property
    def column(self) -> int | None: ...

    @property
    def fix(self) -> str: ...


class Input(msgspec.Struct, frozen=True):
    """An input that a playbook declares."""

    name: str
    type: str = "string"
    required: bool = True
    default: str | None = None
    options: tuple[str, ...] = ()
    description: str = ""


class Document(Protocol):
    """A parsed playbook: what every surface may want to know of it."""

    @property
    def title(self) -> str: ...

    @property
    def inputs(self) -> tuple[Input, ...]: ...

    @property
    def plan(self) -> tuple[PlannedStep, ...]: ...


class Dialect(Protocol):
    """One way of writing playbooks."""

    name: str
    interpreter: int
    """Raised when a release would replay old journals differently; old numbers keep their behaviour."""
    options: tuple[Option, ...]
    """What a caller may choose besides the common options."""

    def recognises(self, text: str, name: str) -> bool: ...

    def parse(self, text: str, name: str) -> Any:
        """The document; `InvalidPlaybook` with every problem and its line."""

    def accept(self, document: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as a run keeps them; `BadInput` that names all that are missing or wrong."""

    def start(
        self, document: Any, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        """The function that starts the program at a state, or at its beginning."""


# --- what a dialect may have besides ------------------------------------------------------------------


class Question(msgspec.Struct, frozen=True):
    """What a step asks a person, as far as the playbook tells."""

    type: QuestionType
    options: tuple[str, ...] = ()


class OutlinedStep(msgspec.Struct, frozen=True):
    """A step or sub-step that stands in a playbook, whether or not a run comes to it."""

    label: str
    title: str = ""
    within: str = ""
    """The label of the step around it."""
    question: Question | None = None


@runtime_checkable
class Outlining(Protocol):
    """A dialect whose playbooks tell their steps and questions before they run."""

    def outline(self, document: Any) -> tuple[OutlinedStep, ...]: ...


@runtime_checkable
class Exporting(Protocol):
    """A dialect whose format says what the state of a run looks like outside of Cuebook."""

    def state(
        self,
        row: RunRow,
        document: Any,
        entries: Iterable[Entry],
        waits: Iterable[WaitRow],
        text: str,
        settings: Settings,
    ) -> dict[str, Any]: ...


@runtime_checkable
class Publishing(Protocol):
    """A dialect whose format has names of its own for what happens in a run."""

    def published(self, event: Entry | TextChunk | TextReset) -> dict[str, Any]:
        """The event as the format has it, with its name as `type`; empty where it has none for it."""


# --- which dialects there are -------------------------------------------------------------------------

LARGEST = 1_000_000
"""Bytes of a file that are enough to tell that it is too large, whatever its dialect: no more need be read."""


def text_of(data: bytes) -> str:
    """What was read of a playbook's file. `UnicodeDecodeError` if it is no text; of one too large, nobody needs it."""
    return data.decode(errors="strict" if len(data) <= LARGEST else "replace")


def dialects() -> tuple[Dialect, ...]:
    from cuebook.dialects.markdown import MARKDOWN

    return (MARKDOWN,)


def named(name: str) -> Dialect:
    for dialect in dialects():
        if dialect.name == name:
            return dialect
    raise BadInput(f"There is no dialect named '{name}'.", fix="Upgrade Cuebook.")


def detect(text: str, name: str) -> Dialect:
    for dialect in dialects():
        if dialect.recognises(text, name):
            return dialect
    raise BadInput(
        f"{name}: this is no playbook that Cuebook knows.",
        fix="A Markdown playbook ends in .md and has a '# Title' and '## STEP 1: ...' headings.",
    )
