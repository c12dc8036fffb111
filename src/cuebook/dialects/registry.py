"""Which dialect a playbook is written in, and how to get from its text to its program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import splitext
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from cuebook.dialects.options import Option
from cuebook.kernel.effects import Program, QuestionType, SecretNeed
from cuebook.kernel.errors import BadInput, told
from cuebook.kernel.events import Performed, PlannedStep, TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import AnyOutcome
from cuebook.kernel.run import RunRow, Settings, WaitRow

if TYPE_CHECKING:
    from cuebook.dialects.program.observe import Said
    from cuebook.dialects.program.told import ProgramRun
    from cuebook.kernel.engine import WatchFunction


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a playbook's text."""

    message: str
    line: int | None = None
    fix: str = ""
    code: str = ""


class InvalidPlaybook(BadInput):
    """The playbook cannot be run as it is written."""

    code = "invalid_playbook"

    def __init__(self, name: str, problems: Sequence[Problem], *, codes: bool = False) -> None:
        """With `codes`, the message names them: a format may have given them a meaning."""
        self.problems = tuple(problems)
        super().__init__("\n".join(_line(name, problem, codes) for problem in problems))


def _line(name: str, problem: Problem, codes: bool) -> str:
    where = f"{name}:{problem.line}" if problem.line else name
    code = f" [{problem.code}]" if codes else ""
    return f"{where}: {told(problem.message, problem.fix)}{code}"


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


Publisher = Callable[[Entry | TextChunk | TextReset], list[dict[str, Any]]]
"""Gives what the format has for an event of ours, in order, each with its name as `type`: often nothing, or several."""


@runtime_checkable
class Publishing(Protocol):
    """A dialect whose format has names of its own for what happens in a run."""

    def publisher(self, document: Any, run: str) -> Publisher:
        """What names the events of one run. It must see all of them, in their order."""


@runtime_checkable
class Tracing(Protocol):
    """A dialect whose format says what a run has left behind: its trace, and the result of each step."""

    def trace(self, document: Any, entries: Iterable[Entry]) -> dict[str, Any]:
        """The fields `trace` and `results`, as the format has them."""

    def values(self, document: Any, entries: Iterable[Entry]) -> dict[str, Any]:
        """What each step came to, by its label."""


@runtime_checkable
class Conversing(Protocol):
    """A dialect whose runs speak with people."""

    def told(self, entries: Iterable[Entry]) -> ProgramRun:
        """What was said, and how it came about. `entries` are those that count."""

    def saying(self, document: Any) -> Callable[[Entry | TextChunk | TextReset], list[Said]]:
        """Gives what is said, each thing once, as soon as it is sure. It must see all events of a run, in their order."""


@runtime_checkable
class Typed(Protocol):
    """A dialect whose inputs have types. To others an input is the text that was written."""

    def takes(self, document: Any, name: str) -> bool:
        """Whether a run may be given an input of this name, declared or not."""

    def typed(self, document: Any, name: str, text: str) -> Any:
        """An input's value, from the text that somebody wrote; the text itself where it says nothing of that type."""

    def changed(self, document: Any, results: Mapping[str, Any], name: str, text: str) -> Any:
        """A value that a person gives an input or the result of a step, from the text that was written."""


class Named(Protocol):
    """A model that a playbook names."""

    @property
    def name(self) -> str: ...

    @property
    def at(self) -> str:
        """Where it does so."""


@runtime_checkable
class NamingModels(Protocol):
    """A dialect whose playbooks may name models besides that of the run."""

    def models(self, document: Any) -> Iterable[Named]:
        """Those that a run may ask."""


@runtime_checkable
class NamingSecrets(Protocol):
    """A dialect whose playbooks may use secrets."""

    def secrets(self, document: Any) -> Iterable[SecretNeed]:
        """Those that a run may use, whether or not it comes to them."""


@runtime_checkable
class ReadingSecrets(Protocol):
    """A dialect whose runs may read elsewhere which secrets they use."""

    def secrets_in(self, performed: Performed) -> Iterable[SecretNeed]:
        """Those that what was read mentions."""


@runtime_checkable
class Filling(Protocol):
    """A dialect whose texts have places for values."""

    def places(self, document: Any, text: str) -> frozenset[str]:
        """The names of values that a playbook's steps give or have places for, declared or not."""


@runtime_checkable
class Changing(Protocol):
    """A dialect that names the results of steps, and knows what a person may change in them."""

    def check_changes(
        self, document: Any, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> None:
        """`BadInput` for a change of something that is not there, or by a value that does not fit."""


@runtime_checkable
class Verifying(Protocol):
    """A dialect whose steps can say what must hold once they are done."""

    def unverified(self, document: Any) -> tuple[Problem, ...]:
        """The steps that may change something and do not say how to tell that it worked."""


class Demand(msgspec.Struct, frozen=True):
    """A limit that a step sets for itself: seconds, or bytes of its output."""

    step: str
    field: str
    """As it is written, as in `timeout_ms`."""
    seconds: float | None = None
    output: int | None = None
    line: int | None = None


@runtime_checkable
class Demanding(Protocol):
    """A dialect whose steps can set limits of their own."""

    def demands(self, document: Any) -> tuple[Demand, ...]:
        """What its steps ask for. A run begins only where the configuration lets them have it."""


@runtime_checkable
class Contracting(Protocol):
    """A dialect whose steps say what must come of them."""

    def broken(self, document: Any, label: str, outcome: AnyOutcome) -> str:
        """How the outcome of a step's effect breaks what the step promises, as a clause; empty where it does not."""


@runtime_checkable
class GivingData(Protocol):
    """A dialect whose steps can give data. The steps of others give text."""

    def gives_data(self, document: Any, label: str) -> bool:
        """Whether what this step gives is data where it looks like it."""


@runtime_checkable
class Choosing(Protocol):
    """A dialect that does not run every document with every choice."""

    def unfit(self, document: Any, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        """What keeps the document from being run so; `BadInput` for a choice that no document could be run with."""


@runtime_checkable
class Adapting(Protocol):
    """A dialect whose inputs depend on how a document is run."""

    def adapted(self, document: Any, options: Mapping[str, Any]) -> Any:
        """The document as a run with these options takes it."""


def adapted(dialect: Dialect, document: Any, options: Mapping[str, Any]) -> Any:
    return dialect.adapted(document, options) if isinstance(dialect, Adapting) else document


@runtime_checkable
class Importing(Protocol):
    """A dialect whose playbooks may take in the texts of other files."""

    def whole(self, text: str, name: str, read: Callable[[str], str]) -> str:
        """The text with what it imports, as a run keeps it. `read` gives a file by its path from the playbook's folder.
        `InvalidPlaybook` names the files that cannot be read, and whatever else is wrong by the file it stands in.
        """


# --- which dialects there are -------------------------------------------------------------------------

LARGEST = 20_000_000
"""Bytes of a file that are enough to tell that it is too large, whatever its dialect: no more need be read."""


def text_of(data: bytes) -> str:
    """What was read of a playbook's file. `UnicodeDecodeError` if it is no text; of one too large, nobody needs it."""
    return data.decode(errors="strict" if len(data) <= LARGEST else "replace")


UNKNOWN = Problem(
    "this is no playbook that Cuebook knows.",
    fix="A Markdown playbook ends in .md and has a '# Title' and '## STEP 1: ...' headings; a workflow graph ends in"
    " .yml, .yaml or .json and has id, name, entry, nodes and edges; a pipeline ends likewise and has a name and a list"
    " of steps, each with an id and a command; a program ends in .pbasm and has '# Agent' and '## Playbook' headings.",
    code="UNKNOWN_PLAYBOOK",
)
"""What is said of a text that is written in no dialect."""
_STEPLESS = Problem(
    "this is no playbook: it has a name, and neither steps nor nodes.",
    fix="A pipeline has a name and a list of steps, each with an id and a command; a workflow graph has id, name, entry,"
    " nodes and edges.",
    code=UNKNOWN.code,
)
"""And of one that says too little to be in one."""
_MOST_READ = 50_000
"""Characters of such a text that are read to tell whether it is broken: a longer one is only called what it is not."""


def dialects() -> tuple[Dialect, ...]:
    from cuebook.dialects.graph import GRAPH
    from cuebook.dialects.markdown import MARKDOWN
    from cuebook.dialects.pipeline import PIPELINE
    from cuebook.dialects.program import PROGRAM

    return (GRAPH, PIPELINE, PROGRAM, MARKDOWN)


def named(name: str) -> Dialect:
    for dialect in dialects():
        if dialect.name == name:
            return dialect
    raise BadInput(f"There is no dialect named '{name}'.", fix="Upgrade Cuebook.")


def whole(text: str, name: str, read: Callable[[str], str]) -> str:
    """A playbook's text with what it imports; the text itself in a dialect without imports."""
    for dialect in dialects():
        if isinstance(dialect, Importing) and dialect.recognises(text, name):
            return dialect.whole(text, name, read)
    return text


def recognised(text: str, name: str) -> Dialect | None:
    """The dialect that a text is written in."""
    return next((dialect for dialect in dialects() if dialect.recognises(text, name)), None)


def detect(text: str, name: str) -> Dialect:
    """The same for a text that must be in one. Otherwise it is said why it is in none."""
    dialect = recognised(text, name)
    if dialect is not None:
        return dialect
    problem = unknown(text, name)
    if problem.line is not None:
        raise InvalidPlaybook(name, [problem], codes=True)
    raise BadInput(f"{name}: {problem.message}", fix=problem.fix)


def unknown(text: str, name: str) -> Problem:
    """Why a text is written in no dialect: nothing stands in it, it is broken, or it is something else."""
    from cuebook.dialects.values import Malformed
    from cuebook.dialects.yaml12 import read_either

    if not text.strip("\ufeff \t\r\n"):
        return msgspec.structs.replace(UNKNOWN, message="this is no playbook: the file is empty.")
    suffix = splitext(name)[1].lower()
    if suffix in (".yml", ".yaml", ".json") and len(text) <= _MOST_READ:
        try:
            read_either(text, suffix == ".json", _MOST_READ, "Give a shorter one.")
        except Malformed as error:
            return Problem(error.message, error.line, error.fix, "PARSE")
        if _lacks_steps(text):
            return _STEPLESS
    return UNKNOWN


def _lacks_steps(text: str) -> bool:
    """Whether it could be a pipeline if it had steps."""
    from cuebook.dialects.pipeline.parse import FIELDS
    from cuebook.dialects.top_level import names

    found = set(names(text))
    return "name" in found and found <= set(FIELDS)


# --- what reads replies as they stream -----------------------------------------------------------------


def _program_watch(**arguments: Any) -> WatchFunction:
    from cuebook.dialects.program.watch import ReplyWatch

    return ReplyWatch.of(**arguments)


WATCHES: Mapping[str, Callable[..., WatchFunction]] = {"program": _program_watch}
"""By the name under which a dialect asks for one; loaded when a model is asked, since most runs are of other dialects."""
