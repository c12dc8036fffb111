"""The program dialect as the registry sees it. The modules that parse and run programs are loaded on first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os.path import splitext
from typing import TYPE_CHECKING, Any, ClassVar

from cuebook.dialects.dialect import Dialect, EditableSteps, OutlinedStep, Question, Surroundings, said_by
from cuebook.dialects.findings import Codes, Finding, Problem
from cuebook.dialects.options import Option
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.effects import Program as Generator
from cuebook.kernel.effects import SecretNeed
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.children import ChildUse
    from cuebook.dialects.presentation.drawing import Drawing, Progress
    from cuebook.dialects.presentation.panels import Panel
    from cuebook.dialects.presentation.preview import Preview
    from cuebook.dialects.presentation.summary import Summary
    from cuebook.dialects.program.model import ProgramText
    from cuebook.dialects.program.parse.imports import Read
    from cuebook.kernel.engine.engine import WatchFunction

CALL = Option("call", "Call this playbook, as in Rate(x=3), instead of the playbooks that run at the start.", "text")
ALWAYS_ASK = Option("always_ask", "Call a model for every line, even if none is needed.")
MAX_LINES = Option("max_lines", "The maximum number of lines to execute without outside input.", "number")
MAX_TURNS = Option("max_turns", "The maximum number of model turns without outside input.", "number")


def _watch(**arguments: Any) -> WatchFunction:
    from cuebook.dialects.program.verify.watch import ReplyWatch

    return ReplyWatch.of(**arguments)


_AGENT = re.compile(r"^#[ \t]++\S", re.MULTILINE)
_PLAYBOOK = re.compile(r"^##[ \t]++\S", re.MULTILINE)
_STEP = re.compile(r"^[ \t]*+-[ \t]++\d{1,4}(?:\.\d{1,4})*+:(?:EXE|TNK|QUE|CND|CHK|RET|JMP|YLD)\b", re.MULTILINE)
_DECORATED = re.compile(r"^@playbook\b", re.MULTILINE)
_LINE = re.compile(r"(?P<playbook>.+):\d+(?:\.\d+)*", re.DOTALL)
"""The label of a line, as in `Main:02`."""


class Program(Dialect):
    """Agents and playbooks in natural language, compiled to lines."""

    name = "program"
    title = "Programs: agents and playbooks in natural language, whose control flow is verified"
    suffixes = (".pbasm", ".pb")
    default_name = "program.pbasm"
    noun = "program"
    recognised_by = "a program ends in .pbasm and has '# Agent' and '## Playbook' headings"
    interpreter = 1
    templates: ClassVar[Mapping[str, str]] = {"questions": "a conversation that asks for amounts and returns their sum"}
    guides: ClassVar[Mapping[str, str]] = {
        "program": "Programs: playbooks in plain words that a model executes line by line"
    }
    talks = True
    continues_at_entries = True
    typed_inputs = True
    watches: ClassVar[Mapping[str, Callable[..., WatchFunction]]] = {"program": _watch}
    options = (CALL, ALWAYS_ASK, MAX_LINES, MAX_TURNS)

    def recognises(self, text: str, name: str) -> bool:
        """Recognise a program by its suffix or, without one, by its headings."""
        suffix = splitext(name)[1].lower()
        if suffix:
            return suffix in self.suffixes
        text = text.removeprefix("\ufeff").replace("\r", "\n")
        if not _AGENT.search(text):
            return False
        return bool((_PLAYBOOK.search(text) and _STEP.search(text)) or _DECORATED.search(text))

    def parse(self, text: str, name: str) -> ProgramText:
        from cuebook.dialects.program.parse import parse

        return parse(text, name)

    def check(self, text: str, name: str, around: Surroundings) -> list[Finding]:
        from cuebook.dialects.program.check.program import check

        findings = check(text, name, read=around.read if around.has_files else None)
        if not around.has_files or any(one.severity == "error" for one in findings):
            return findings
        problems = self.child_problems(self.parse(self.whole(text, name, around.read), name), text, name, around)
        return [*findings, *(Finding(one.code, "error", one.message, one.line, fix=one.fix) for one in problems)]

    def editable(self, document: ProgramText) -> EditableSteps:
        """A playbook is continued as a whole, so all its lines have the digest of the playbook."""
        digests = {
            planned.label: said_by(playbook, agent.python, agent.remote)
            for agent in document.agents.values()
            for playbook in agent.playbooks.values()
            for planned in playbook.planned()
        }
        return EditableSteps(digests)

    def entry_before(self, document: ProgramText, labels: Sequence[str], at: int) -> int:
        """The entry of the frame: the last visit to the first line of the same playbook."""
        playbook = self.step_group(labels[at])
        every = (one for agent in document.agents.values() for one in agent.playbooks.values())
        lines = [planned.label for one in every if one.name == playbook for planned in one.planned()]
        first = lines[0] if lines else labels[at]
        return next((number for number in range(at, -1, -1) if labels[number] == first), at)

    def children(self, document: ProgramText) -> tuple[ChildUse, ...]:
        from cuebook.dialects.children import ChildUse

        return tuple(
            ChildUse(name, agent.name, agent.line)
            for agent in document.agents.values()
            if agent.remote is not None
            for name in agent.remote.playbooks
        )

    @property
    def codes(self) -> Codes:
        from cuebook.dialects.program.check.program import CODES

        return CODES

    def accept(self, document: ProgramText, given: Mapping[str, Any]) -> dict[str, Any]:
        from cuebook.dialects.program.inputs import accept

        return accept(document, given)

    def start(
        self, document: ProgramText, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Generator[Any]]:
        from cuebook.dialects.program.machine.interpret import interpret

        if interpreter != self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the program interpreter, which this version does not support.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state)

    def summary(self, document: ProgramText) -> Summary:
        from cuebook.dialects.program.describe import summary

        return summary(document)

    def drawing(self, document: ProgramText, progress: Progress | None = None) -> Drawing:
        from cuebook.dialects.program.conversation import ProgramConversation
        from cuebook.dialects.program.drawing import drawing

        return drawing(document, None if progress is None else ProgramConversation.of(progress.entries, document))

    def preview(self, document: ProgramText, given: Mapping[str, Any], settings: Settings) -> Generator[Preview]:
        from cuebook.dialects.presentation.preview import ready
        from cuebook.dialects.program.preview import preview

        return ready(preview(document, given))

    def claims(self, text: str, name: str) -> bool:
        return name.lower().endswith(self.suffixes)

    def definition(self, document: ProgramText) -> dict[str, Any]:
        data = self.summary(document).data
        return {**super().definition(document), **{name: data[name] for name in ("agents", "playbooks")}}

    def syntax_tree(self, document: ProgramText) -> dict[str, Any]:
        from cuebook.dialects.program.describe import syntax_tree

        return syntax_tree(document)

    def parse_lines(self, document: ProgramText) -> Iterable[str]:
        from cuebook.dialects.program.describe import outline

        return outline(document)

    def outline(self, document: ProgramText) -> tuple[OutlinedStep, ...]:
        from cuebook.dialects.program.static_view import may_ask

        asking = may_ask(document)
        return tuple(
            OutlinedStep(step.label, step.title, question=Question("input") if step.label in asking else None)
            for step in document.every_step
        )

    def unfit(self, document: ProgramText, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        if options.get(CALL.name):
            from cuebook.dialects.program.inputs import check_call

            check_call(document, str(options[CALL.name]))
        from cuebook.dialects.program.check.program import unfit

        return unfit(document)

    def adapted(self, document: ProgramText, options: Mapping[str, Any]) -> ProgramText:
        from cuebook.dialects.program.inputs import adapted

        return adapted(document, options)

    def takes(self, document: ProgramText, name: str) -> bool:
        from cuebook.dialects.program.inputs import taken

        return taken(document, name)

    def typed(self, document: ProgramText, name: str, text: str) -> Any:
        from cuebook.dialects.program.inputs import typed_value

        return typed_value(document, name, text)

    def changed(self, document: ProgramText, results: Mapping[str, Any], name: str, text: str) -> Any:
        from cuebook.dialects.program.inputs import changed_value

        return changed_value(document, name, text)

    def check_changes(
        self, document: ProgramText, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        from cuebook.dialects.program.inputs import check_changes

        check_changes(document, (*inputs, *results), changes)
        return dict(changes)

    def step_group(self, label: str) -> str:
        line = _LINE.fullmatch(label)
        return line["playbook"] if line else ""

    def scripted_tools(self, document: ProgramText) -> tuple[str, ...]:
        agents = document.agents.values()
        own = [one.name for agent in agents for one in agent.playbooks.values() if one.kind == "python"]
        return (*own, *(f"{agent.name}." for agent in agents if agent.remote is not None))

    def refusal_rules(self) -> tuple[str, ...]:
        from cuebook.dialects.program.verify.verdicts import RULES

        return tuple(RULES)

    def secrets(self, document: ProgramText) -> Iterator[SecretNeed]:
        for agent in document.agents.values():
            if agent.remote is not None and agent.remote.auth is not None:
                yield SecretNeed(agent.remote.auth.handle)

    def whole(self, text: str, name: str, read: Read) -> str:
        from cuebook.dialects.program.check.program import whole

        return whole(text, name, read)

    def observe(self, document: ProgramText | None, run: str = "") -> Projection:
        from cuebook.dialects.program.observe import ProgramProjection

        return ProgramProjection(document)

    def panels(self, document: ProgramText) -> tuple[Panel, ...]:

        from cuebook.dialects.program.observe import PANELS

        return PANELS


PROGRAM = Program()
