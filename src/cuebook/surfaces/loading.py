"""Playbooks from Python: a file or a text, read and parsed, with what it says. It knows no dialect."""

from __future__ import annotations

import asyncio
import importlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect, Finding, Input, Problem
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import PlannedStep
from cuebook.performers.beside import instead_of, reader

Source: TypeAlias = "str | os.PathLike[str] | Playbook"
"""A path, the text itself (which has a line break), or what `load` gave."""

_NAMES = {"graph": "workflow.yml", "pipeline": "pipeline.yml", "program": "program.pbasm"}
"""What a text without a name is called, by its dialect."""


@dataclass(frozen=True)
class Playbook:
    """A playbook that can be run: its text, and what it says."""

    text: str
    name: str
    document: Any = field(repr=False)
    """The parsed form, as its dialect has it."""
    dialect: Dialect = field(repr=False)
    path: Path | None = None

    @classmethod
    def from_text(cls, text: str, name: str = "", *, path: Path | None = None) -> Playbook:
        """Parses a text. `InvalidPlaybook` names every problem and its line."""
        name = name or _name_of(text)
        dialect = registry.detect(text, name)
        return cls(text, name, dialect.parse(text, str(path or name)), dialect, path)

    @property
    def title(self) -> str:
        return str(self.document.title)

    @property
    def description(self) -> str:
        return str(getattr(self.document, "description", ""))

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(self.document.inputs)

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """Label and title of each step."""
        return tuple(self.document.plan)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all steps and sub-steps."""
        walk = getattr(self.document, "walk", None)
        return tuple(dict.fromkeys(step.label for step in (walk() if walk is not None else self.steps)))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What the parser found odd; `check` finds more."""
        return tuple(getattr(self.document, "warnings", ()))

    def check(self) -> list[Finding]:
        """Everything that looks like a mistake: findings with code, severity, message, line, column and fix."""
        checker = importlib.import_module(f"cuebook.dialects.{self.dialect.name}.check")
        return list(checker.check(self.text, self.name))


def load(path: str | os.PathLike[str]) -> Playbook:
    """A playbook from its file. `BadInput` if it cannot be read, `InvalidPlaybook` with every problem in it."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            text = registry.text_of(file.read(registry.LARGEST + 1))
    except UnicodeDecodeError:
        raise BadInput(f"{place} is no UTF-8 text.", fix="Save it as UTF-8.") from None
    except FileNotFoundError:
        raise BadInput(f"There is no file {place}.", fix=instead_of(place)) from None
    except (OSError, ValueError) as error:  # a path may hold what no path can
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{place} cannot be read: {why}.", fix="Check the path.") from None
    return Playbook.from_text(registry.whole(text, str(place), reader(place)), place.name, path=place)


async def aload(path: str | os.PathLike[str]) -> Playbook:
    """As `load`, from a coroutine."""
    return await asyncio.to_thread(load, path)


def playbook_of(source: Source) -> Playbook:
    if isinstance(source, Playbook):
        return source
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return Playbook.from_text(source)
    return load(source)


def _name_of(text: str) -> str:
    known = (name for dialect, name in _NAMES.items() if registry.named(dialect).recognises(text, ""))
    return next(known, "playbook.md")
