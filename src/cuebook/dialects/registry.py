"""Which dialect a playbook is written in, and how to get from its text to its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from cuebook.dialects.options import Option
from cuebook.kernel.effects import Program
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import PlannedStep


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
    stop = "." if problem.fix and problem.message[-1:].isalnum() else ""
    code = f" [{problem.code}]" if codes else ""
    return f"{where}: {problem.message}{stop} {problem.fix}".rstrip() + code


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


def dialects() -> tuple[Dialect, ...]:
    from cuebook.dialects.graph import GRAPH
    from cuebook.dialects.markdown import MARKDOWN

    return (GRAPH, MARKDOWN)


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
        fix="A Markdown playbook ends in .md and has a '# Title' and '## STEP 1: ...' headings; a workflow graph ends in"
        " .yml, .yaml or .json and has id, name, entry, nodes and edges.",
    )
