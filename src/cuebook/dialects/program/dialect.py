"""The program dialect as the registry has it. What reads and runs programs is loaded when one comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cuebook.dialects.options import Option
from cuebook.dialects.program.detect import recognises
from cuebook.dialects.registry import OutlinedStep, Problem, Question
from cuebook.kernel.effects import Program as Generator
from cuebook.kernel.effects import SecretNeed
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry

if TYPE_CHECKING:
    from cuebook.dialects.program.imports import Read
    from cuebook.dialects.program.model import ProgramText
    from cuebook.dialects.program.observe import Said
    from cuebook.dialects.program.told import ProgramRun

CALL = Option("call", "Call this playbook, as in Rate(x=3), instead of what begins with the program.", "text")
ALWAYS_ASK = Option("always_ask", "Ask a model for every line, also where none is needed.")
MAX_LINES = Option("max_lines", "The most lines that are executed before something comes in from outside.", "number")
MAX_TURNS = Option("max_turns", "How often a model is asked before something comes in from outside.", "number")


class Program:
    """Implements `registry.Dialect`, and of what a dialect may have besides: typed inputs, an outline, a trace and imports."""

    name = "program"
    interpreter = 1
    options: tuple[Option, ...] = (CALL, ALWAYS_ASK, MAX_LINES, MAX_TURNS)

    def recognises(self, text: str, name: str) -> bool:
        return recognises(text, name)

    def parse(self, text: str, name: str) -> ProgramText:
        from cuebook.dialects.program.parse import parse

        return parse(text, name)

    def accept(self, document: ProgramText, given: Mapping[str, Any]) -> dict[str, Any]:
        from cuebook.dialects.program.inputs import accept

        return accept(document, given)

    def start(
        self, document: ProgramText, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Generator[Any]]:
        from cuebook.dialects.program.interpret import interpret

        if interpreter != self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the program interpreter, which is not known here.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state)

    def outline(self, document: ProgramText) -> tuple[OutlinedStep, ...]:
        from cuebook.dialects.program.shape import may_ask

        asking = may_ask(document)
        return tuple(
            OutlinedStep(step.label, step.title, question=Question("input") if step.label in asking else None)
            for step in document.walk()
        )

    def unfit(self, document: ProgramText, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        if options.get(CALL.name):
            from cuebook.dialects.program.wanted import check

            check(document, str(options[CALL.name]))
        from cuebook.dialects.program.check import unfit

        return unfit(document)

    def adapted(self, document: ProgramText, options: Mapping[str, Any]) -> ProgramText:
        from cuebook.dialects.program.wanted import adapted

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
    ) -> None:
        from cuebook.dialects.program.inputs import check_changes

        check_changes(document, (*inputs, *results), changes)

    def secrets(self, document: ProgramText) -> Iterator[SecretNeed]:
        for agent in document.agents.values():
            if agent.remote is not None and agent.remote.auth is not None:
                yield SecretNeed(agent.remote.auth.handle)

    def told(self, entries: Iterable[Entry]) -> ProgramRun:
        from cuebook.dialects.program.told import told_of

        return told_of(entries)

    def saying(self, document: ProgramText) -> Callable[[Entry | TextChunk | TextReset], list[Said]]:
        from cuebook.dialects.program.speaking import Conversation

        return Conversation(document).see

    def trace(self, document: ProgramText, entries: Iterable[Entry]) -> dict[str, Any]:
        from cuebook.dialects.program.observe import seen

        told = seen(entries, document).plain()
        return {"trace": told, "results": told["variables"]}

    def values(self, document: ProgramText, entries: Iterable[Entry]) -> dict[str, Any]:
        """Its variables, by name."""
        from cuebook.dialects.program.observe import seen

        return {one.name: one.value for several in seen(entries, document).typed().values() for one in several}

    def whole(self, text: str, name: str, read: Read) -> str:
        from cuebook.dialects.program.check import whole

        return whole(text, name, read)


PROGRAM = Program()
