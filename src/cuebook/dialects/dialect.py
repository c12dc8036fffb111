"""The base classes of dialects and their documents. To add a dialect, subclass both and register it.

Every method except `recognises`, `parse` and `start` has a default for dialects without that feature, so every command,
page and tool works with any dialect.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import msgspec

from cuebook.dialects.findings import Codes, Finding, InvalidPlaybook, Problem
from cuebook.dialects.options import Option
from cuebook.dialects.presentation.notes import Note, kernel_note
from cuebook.dialects.presentation.projection import Projection, seen
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import AskModel, Program, QuestionType, SecretNeed
from cuebook.kernel.errors import BadInput, CuebookError, NotFound
from cuebook.kernel.events import Performed, PlannedStep, ValueSet
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import AnyOutcome
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.children import ChildUse
    from cuebook.dialects.playbook import Playbook
    from cuebook.dialects.presentation.drawing import Drawing, Progress
    from cuebook.dialects.presentation.panels import Panel
    from cuebook.dialects.presentation.preview import Preview
    from cuebook.dialects.presentation.summary import Summary
    from cuebook.kernel.engine.engine import WatchFunction

# --- values -------------------------------------------------------------------------------------------------


class Input(msgspec.Struct, frozen=True):
    """An input that a playbook declares."""

    name: str
    type: str = "string"
    required: bool = True
    default: str | None = None
    options: tuple[str, ...] = ()
    description: str = ""
    sensitive: bool = False
    """Whether its values are shown nowhere: see `gate.sensitive`."""


def input_object(one: Input) -> dict[str, Any]:
    """An input as JSON."""
    found: dict[str, Any] = msgspec.to_builtins(one)
    if not one.sensitive:
        del found["sensitive"]
    return found


class Question(msgspec.Struct, frozen=True):
    """The question that a step asks, with the options that the playbook lists."""

    type: QuestionType
    options: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    """The schema of a form."""


class OutlinedStep(msgspec.Struct, frozen=True):
    """A step or sub-step of a playbook, whether or not a run reaches it."""

    label: str
    title: str = ""
    within: str = ""
    """The label of the enclosing step."""
    question: Question | None = None


class Demand(msgspec.Struct, frozen=True):
    """A limit that a step sets for itself: seconds, or bytes of its output."""

    step: str
    field: str
    """The name of the field, such as `timeout_ms`."""
    seconds: float | None = None
    output: int | None = None
    line: int | None = None


World = Literal["none", "reads", "writes"]
"""Whether a step depends on its inputs alone, also reads something that other steps may change, or may change it."""


class EditableSteps(msgspec.Struct, frozen=True):
    """The steps of a playbook, for comparing two versions of it."""

    digests: dict[str, str] = {}
    """What each step says, by label: two versions with the same digest do the same there."""
    order: tuple[str, ...] = ()
    """The labels in the order in which they run, if the text fixes it; otherwise the first one, if that is fixed."""
    uses: dict[str, frozenset[str]] = {}
    """The steps whose results a step uses. A step without an entry may depend on everything before it."""
    world: dict[str, World] = {}
    """What a step has to do with the world around the run. A step without an entry may change it."""


def said_by(*parts: Any) -> str:
    """A digest of parts of a document, without their positions in the text."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items() if name not in ("line", "lines", "python_lines")}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    return digest_of(msgspec.json.encode(plain(msgspec.to_builtins(parts, enc_hook=str)), order="sorted").decode())


class Named(Protocol):
    """A model that a playbook names."""

    @property
    def name(self) -> str: ...

    @property
    def at(self) -> str:
        """The field that names it."""


class Surroundings:
    """What a check may look up about the machine and the playbook's folder.

    Nothing is fetched and no model is called. This class finds nothing; the real implementation is in `cuebook.wiring`.
    """

    has_files: ClassVar[bool] = False
    """Whether the files next to the playbook can be read. Without them, imports are not checked."""

    def read(self, path: str) -> str:
        """The text of a file, by its path relative to the playbook's folder. Raises `BadInput` if it cannot be read."""
        raise NotFound(f"There is no file {path!a} next to the playbook.", fix="Check the path.")

    def file_problem(self, path: str) -> BadInput | None:
        """The reason a file next to the playbook cannot be used, if any."""
        return None

    @property
    def folder(self) -> str:
        """The playbook's folder."""
        return ""

    def playbook(self, name: str, folder: str) -> Playbook:
        """A playbook that another one in this folder starts as a child. Raises `BadInput` if there is none."""
        raise NotFound(f"There is no playbook '{name}'.")

    def skills(self) -> frozenset[str] | None:
        """The ids of the installed skills; None if unknown."""
        return None

    def skill_problem(self, skill: str) -> BadInput | None:
        """The reason an installed skill cannot be used, if any."""
        return None

    def model_problem(self, model: str) -> BadInput | None:
        """The reason no model can have this name, if any."""
        return None

    def browser_problem(self) -> CuebookError | None:
        """The reason web pages cannot be opened in a browser here, if any."""
        return None

    def nodes(self) -> frozenset[str] | None:
        """The names of the paired nodes; None if unknown."""
        return None

    def postconditions(self) -> str:
        """A sentence naming the policy that requires postconditions; empty if no policy does."""
        return ""


# --- documents ----------------------------------------------------------------------------------------------


class Document:
    """A parsed playbook as surfaces see it. It is frozen. A dialect may add fields.

    A subclass, usually a frozen `msgspec.Struct`, defines these as fields or properties. Only the title has no default.
    """

    __slots__ = ()

    @property
    def id(self) -> str:
        """The id that the playbook declares; empty if its file name is its id."""
        return ""

    @property
    def title(self) -> str:
        raise NotImplementedError

    @property
    def description(self) -> str:
        """Shown to people; not sent to models."""
        return ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return ()

    @property
    def sensitive(self) -> frozenset[str]:
        """The inputs whose values are shown nowhere."""
        return frozenset(one.name for one in self.inputs if one.sensitive)

    @property
    def plan(self) -> tuple[PlannedStep, ...]:
        """The steps that are known before a run starts."""
        return ()

    @property
    def every_step(self) -> tuple[PlannedStep, ...]:
        """Every step and sub-step that a run may reach, without duplicate labels."""
        return self.plan

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all steps and sub-steps."""
        return tuple(dict.fromkeys(step.label for step in self.every_step))

    @property
    def own_worktree(self) -> bool:
        """Whether its runs work in a git worktree of their own."""
        return False

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings from the parser."""
        return ()

    @property
    def faults(self) -> tuple[Problem, ...]:
        """Errors that do not stop a run, although the run will not do what the playbook says."""
        return ()

    @property
    def needs_model(self) -> bool:
        """Whether a run needs the model that it is started with."""
        return True

    @property
    def asks_model(self) -> bool:
        """Whether a run may call any model, including models that the playbook names."""
        return True

    @property
    def starts_playbooks(self) -> bool:
        """Whether a run may start other playbooks, which may need the model that it is started with."""
        return False

    @property
    def admits_agents(self) -> bool:
        """Whether coding agents, which act on their own, may answer instead of models."""
        return False

    @property
    def stays_open(self) -> bool:
        """Whether questions wait indefinitely unless a time limit is configured."""
        return False

    @property
    def artifact_type(self) -> str:
        """The type of the artifact; empty if it is known only during a run."""
        return "text"

    @property
    def policy(self) -> dict[str, Any] | None:
        """Policy rules in the playbook. They can only make the policy stricter."""
        return None


# --- dialects -----------------------------------------------------------------------------------------------


class Dialect(ABC):
    """A playbook format."""

    name: ClassVar[str]
    """The name that runs record. It never changes."""
    title: ClassVar[str] = ""
    """A one-line description for lists."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes of its files, the usual one first."""
    default_name: ClassVar[str] = ""
    """The name of a playbook that has no file."""
    recognised_by: ClassVar[str] = ""
    """A clause that describes its playbooks: 'a pipeline ends in .yml and has a name and a list of steps'."""
    noun: ClassVar[str] = "playbook"
    """The noun for one of its playbooks."""
    interpreter: ClassVar[int] = 1
    """Increased when a release would replay old journals differently. Old versions keep their behaviour."""
    options: ClassVar[tuple[Option, ...]] = ()
    """The options that it adds to the common ones."""
    watches: ClassVar[Mapping[str, Callable[..., WatchFunction]]] = {}
    """Functions that read replies while they stream, by the name that effects use."""
    templates: ClassVar[Mapping[str, str]] = {}
    """Descriptions of its templates, by name, the usual one first. See `template`."""
    guides: ClassVar[Mapping[str, str]] = {}
    """Titles of its guides for authors, by topic. See `guide`."""
    draft_prompt_file: ClassVar[str] = ""
    """The file with the system prompt for drafting; empty if the dialect does not support drafting."""
    typed_inputs: ClassVar[bool] = False
    """Whether inputs have types. Otherwise an input is text, exactly as written."""
    reads_secrets: ClassVar[bool] = False
    """Whether the sources that a run reads may name secrets. See `secrets_in`."""
    talks: ClassVar[bool] = False
    """Whether its runs are conversations with the user. Their steps are lines that may run any number of times."""
    writes_markdown: ClassVar[bool] = False
    """Whether the outputs of steps are Markdown even if no model wrote them."""
    is_data: ClassVar[bool] = False
    """Whether its playbooks are already YAML or JSON, so that `parse` and `convert` have nothing to add."""
    converts: ClassVar[bool] = False
    """Whether its playbooks can be converted to JSON and back. See `to_json` and `from_json`."""
    continues_at_entries: ClassVar[bool] = False
    """Whether a run continues with a changed text only where a frame begins. See `entry_before`."""
    debugging: ClassVar[bool] = False
    """Whether its runs can be stopped and inspected at any step. No dialect supports this yet."""

    # --- reading ---

    @abstractmethod
    def recognises(self, text: str, name: str) -> bool:
        """Whether the text is written in this dialect. `name` may be empty."""

    @abstractmethod
    def parse(self, text: str, name: str) -> Any:
        """Parses playbook text into a document. Raises `InvalidPlaybook` with every problem and its line."""

    def whole(self, text: str, name: str, read: Callable[[str], str]) -> str:
        """The text with its imports, as a run stores it. `read` returns a file by its path in the playbook's folder.

        Raises `InvalidPlaybook`, which names the files that cannot be read and the file of every other problem.
        """
        return text

    def near_miss(self, text: str, name: str) -> Problem | None:
        """The reason the text is not recognised, if it is probably meant for this dialect."""
        return None

    def check(self, text: str, name: str, around: Surroundings) -> list[Finding]:
        """All errors and likely mistakes in a playbook, whether or not it can be run."""
        try:
            whole = self.whole(text, name, around.read) if around.has_files else text
            document: Document = self.parse(whole, name)
        except InvalidPlaybook as error:
            return [_finding(one, "error") for one in error.problems]
        faults = [_finding(one, "error") for one in document.faults]
        return faults + [_finding(one, "warning") for one in document.warnings]

    def claims(self, text: str, name: str) -> bool:
        """Whether a file in a folder is meant to be a playbook of this dialect. Many other files look similar."""
        return self.recognises(text, name)

    def resembles(self, text: str, name: str) -> bool:
        """Whether an invalid file was meant to be a playbook of this dialect."""
        return name.lower().endswith(self.suffixes) and self.claims(text, name)

    def parse_result(self, text: str, name: str, around: Surroundings) -> dict[str, Any]:
        """The output of `cuebook parse --json`: the fields `valid`, `definition`, `warnings` and `errors`."""
        try:
            whole = self.whole(text, name, around.read) if around.has_files else text
            document: Document = self.parse(whole, name)
        except InvalidPlaybook as error:
            found = [one for one in self.check(text, name, around) if one.severity == "error"]
            errors = msgspec.to_builtins(found or error.problems)
            return {"valid": False, "definition": None, "warnings": [], "errors": errors}
        warnings = msgspec.to_builtins(document.warnings)
        return {"valid": True, "definition": self.syntax_tree(document), "warnings": warnings, "errors": []}

    @property
    def codes(self) -> Codes:
        """The severity and meaning of each finding code. A code never changes its meaning."""
        return PLAIN_CODES

    # --- templates and guides, which are files in the dialect's folder ---

    def template(self, name: str) -> str:
        """A template for a new playbook. %TITLE%, %QUOTED_TITLE% and %ID% are placeholders for its title and id."""
        return self._file("templates", f"{name}{self.suffixes[0]}")

    @property
    def topics(self) -> Mapping[str, str]:
        """The titles of its guides, by topic. There is always a guide to the dialect itself."""
        return self.guides or {self.name: self.title or self.name}

    def guide(self, topic: str) -> str:
        """The guide on a topic, in Markdown."""
        if topic in self.guides:
            return self._file("guides", f"{topic}.md")
        return f"# {self.title or self.name}\n\n{self.recognised_by[:1].upper()}{self.recognised_by[1:]}.\n"

    @property
    def draft_prompt(self) -> str:
        """The system prompt for a model that drafts a playbook; empty if the dialect does not support drafting."""
        return self._file("guides", self.draft_prompt_file).rstrip("\n") if self.draft_prompt_file else ""

    def _file(self, *path: str) -> str:
        package = sys.modules[type(self).__module__].__package__ or ""
        return files(package).joinpath(*path).read_text(encoding="utf-8")

    # --- descriptions of a document ---

    def definition(self, document: Any) -> dict[str, Any]:
        """The inputs and steps as JSON, for assistants and other programs."""
        return {
            "title": document.title,
            "description": document.description,
            "inputs": [input_object(one) for one in document.inputs],
            "steps": [{"label": step.label, "title": step.title} for step in document.plan],
        }

    def syntax_tree(self, document: Any) -> dict[str, Any]:
        """The whole document as JSON."""
        return self.definition(document)

    def parse_lines(self, document: Any) -> Iterable[str]:
        """The outline of the document that `cuebook parse` prints."""
        return self.summary(document).lines()

    def to_json(self, document: Any) -> dict[str, Any]:
        """The document as JSON, without losing anything that a run depends on."""
        raise NotImplementedError

    def from_json(self, data: Any, name: str) -> str:
        """Converts the result of `to_json` back to text. Raises `InvalidPlaybook` if a field cannot be written."""
        raise NotImplementedError

    def only_reads(self, document: Any, *, confined: bool) -> bool:
        """Whether a run is certain not to change anything. `confined` means that commands run in a sandbox."""
        return False

    def outline(self, document: Any) -> tuple[OutlinedStep, ...]:
        """The steps, with the questions that they ask."""
        return tuple(OutlinedStep(step.label, step.title) for step in document.every_step)

    def summary(self, document: Any) -> Summary:
        """The summary that is shown before a run."""
        from cuebook.dialects.presentation.summary import Row, Summary, model_needs

        steps = self.outline(document)
        return Summary(
            title=document.title,
            description=document.description,
            inputs=document.inputs,
            rows=tuple(Row("step", f"{step.label} {step.title}".strip()) for step in steps),
            data={"steps": [{"id": step.label, "name": step.title} for step in steps]},
            needs=model_needs((one.name for one in self.models(document)), needs_model=document.needs_model),
        )

    def drawing(self, document: Any, progress: Progress | None = None) -> Drawing:
        """The steps as boxes and arrows, with the state of a run."""
        from cuebook.dialects.presentation.drawing import sequence

        return sequence(document.title, document.plan, progress)

    def children(self, document: Any) -> tuple[ChildUse, ...]:
        """The playbooks that a run may start as children."""
        return ()

    def child_problems(self, document: Any, text: str, name: str, around: Surroundings) -> list[Problem]:
        """The problems with these playbooks. They are unknown without the files around the playbook."""
        from cuebook.dialects.children import problems_of

        if not around.has_files or not self.children(document):
            return []
        return list(problems_of(self, document, text, name, around.folder, around.playbook))

    def models(self, document: Any) -> Iterable[Named]:
        """The models that the playbook names, in addition to the run's model."""
        return ()

    def secrets(self, document: Any) -> Iterable[SecretNeed]:
        """All secrets that a run may use."""
        return ()

    def secrets_in(self, performed: Performed) -> Iterable[SecretNeed]:
        """The secrets named in a source that a run has read."""
        return ()

    def demands(self, document: Any) -> tuple[Demand, ...]:
        """The limits that its steps set for themselves. A run starts only if the configuration allows them."""
        return ()

    def unverified(self, document: Any) -> tuple[Problem, ...]:
        """The steps that may change something and have no postcondition."""
        return ()

    def places(self, document: Any, text: str) -> frozenset[str]:
        """The names of all values that its steps set or use in placeholders, declared or not."""
        return frozenset()

    def gives_data(self, document: Any, label: str) -> bool:
        """Whether output of this step that looks like data is treated as data instead of text."""
        return False

    # --- running ---

    def adapted(self, document: Any, options: Mapping[str, Any]) -> Any:
        """The document as a run with these options uses it."""
        return document

    def unfit(self, document: Any, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        """The problems that prevent a run with these options. Raises `BadInput` for options that never work."""
        return ()

    def needed_options(self, document: Any) -> tuple[Option, ...]:
        """The switches without which no run can start, although the document is valid."""
        return ()

    def takes(self, document: Any, name: str) -> bool:
        """Whether a run accepts an undeclared input of this name."""
        return False

    def typed(self, document: Any, name: str, text: str) -> Any:
        """Converts the text of an input to its type. Text that does not match the type is returned unchanged."""
        return text

    def accept(self, document: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as a run stores them, with defaults. Raises `BadInput`, naming all missing and invalid inputs."""
        missing = [
            one.name for one in document.inputs if one.required and one.default is None and one.name not in given
        ]
        if missing:
            raise BadInput(f"Missing input: {', '.join(missing)}.", fix="Set a value for each.")
        wrong = [
            f"{one.name} must be one of {', '.join(one.options)}"
            for one in document.inputs
            if one.options and one.name in given and given[one.name] not in one.options
        ]
        if wrong:
            raise BadInput(f"Invalid input: {'; '.join(wrong)}.", fix="Correct the values.")
        defaults = {one.name: one.default for one in document.inputs if one.default is not None}
        return {**defaults, **given}

    @abstractmethod
    def start(
        self, document: Any, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        """Returns the function that starts the program, from a saved state or from the beginning."""

    def preview(self, document: Any, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
        """A program that previews a run with these inputs. Its only effects are reading sources."""
        from cuebook.dialects.presentation.preview import plain_preview, ready

        return ready(plain_preview(self, document, given, settings))

    # --- observing a run ---

    def observe(self, document: Any, run: str = "") -> Projection:
        """A `Projection` that follows a run. `run` is the id in published events.

        If `talks` is true, the document may be None, for a run whose document is unknown.
        """
        return Projection()

    def panels(self, document: Any) -> tuple[Panel, ...]:
        """The panels on the page of a run, in addition to its steps."""
        return ()

    def note(self, name: str, data: Mapping[str, Any]) -> Note:
        """A journal note in readable form."""
        return kernel_note(name, data)

    # --- playbook tests ---

    def step_group(self, label: str) -> str:
        """The group of a step, which tests can refer to, such as the playbook that contains a line; empty if none."""
        return ""

    def choices(self, asked: AskModel) -> tuple[str, ...]:
        """The choices of a routing question; empty for any other question."""
        return ()

    def scripted_tools(self, document: Any) -> tuple[str, ...] | None:
        """The tools that a test may script; a name that ends in `.` is a prefix. None means any tool."""
        return None

    def refusal_rules(self) -> tuple[str, ...]:
        """The rules that model replies must follow."""
        return ()

    # --- changes by the user ---

    def results(self, document: Any, entries: Iterable[Entry]) -> dict[str, Any]:
        """The values that the user can change in a run, by name, in addition to its inputs."""
        values = seen(self.observe(document), entries).values()
        if values is not None:
            return values
        return {entry.event.name: entry.event.value for entry in entries if isinstance(entry.event, ValueSet)}

    def changed(self, document: Any, results: Mapping[str, Any], name: str, text: str) -> Any:
        """Converts the user's text to the value of an input or a result."""
        return text

    def check_changes(
        self, document: Any, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The changes as the run stores them. Raises `BadInput` for an unknown name or an invalid value."""
        declared = [one.name for one in document.inputs]
        known = dict.fromkeys((*declared, *inputs, *results))
        for name in changes:
            if name not in known:
                raise BadInput(
                    f"The playbook has no value named '{name}'.", fix=f"It has: {', '.join(known) or 'none'}."
                )
        kept = {name: value for name, value in changes.items() if name in declared}
        accepted = self.accept(document, {**inputs, **kept})
        return {name: accepted[name] if name in kept else value for name, value in changes.items()}

    def editable(self, document: Any) -> EditableSteps:
        """Its steps, for continuing a run with a changed text."""
        order = tuple(step.label for step in document.plan)
        return EditableSteps({step.label: said_by(step) for step in document.every_step}, order)

    def entry_before(self, document: Any, labels: Sequence[str], at: int) -> int:
        """Where a run can continue with a changed text, if `continues_at_entries`: the visit at which the frame of this visit
        began. `labels` are the visits.
        """
        return at

    def broken_promise(self, document: Any, label: str, outcome: AnyOutcome) -> str:
        """How an outcome violates its step's contract, as a clause; empty if it does not."""
        return ""


def _finding(problem: Problem, severity: Any) -> Finding:
    return Finding(problem.code or severity.upper(), severity, problem.message, problem.line, fix=problem.fix)


PLAIN_CODES: Codes = {
    "ERROR": ("error", "The playbook is invalid."),
    "WARNING": ("warning", "The playbook may contain a mistake."),
}
"""The default codes, for problems without a code of their own."""
