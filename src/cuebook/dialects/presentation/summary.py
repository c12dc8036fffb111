"""The summary of a playbook before it runs: one value that every surface shows in its own way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.dialects.dialect import Input
from cuebook.formats.words import short


class Need(msgspec.Struct, frozen=True):
    """Something that a playbook needs in addition to its inputs."""

    kind: str
    """One of: model, tool, command, host, secret, skill, text, you."""
    name: str


class Row(msgspec.Struct, frozen=True):
    """One line of a summary, such as `step      1 Collect`."""

    name: str
    words: str
    details: tuple[str, ...] = ()
    """Indented lines below it."""


class Item(msgspec.Struct, frozen=True):
    """One entry of a part."""

    name: str
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    begins: bool = False
    """Whether a run begins here."""


class Part(msgspec.Struct, frozen=True):
    """A part of a playbook with its own name and description, such as an agent with its playbooks."""

    name: str
    tag: str = ""
    description: str = ""
    """The description, in Markdown."""
    items: tuple[Item, ...] = ()


class Alternative(msgspec.Struct, frozen=True):
    """Another way to start a playbook, which a form offers next to the inputs."""

    option: str
    """The name of the run option that is set."""
    title: str
    hint: str
    placeholder: str
    button: str
    suggestions: tuple[str, ...] = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    description: str = ""
    inputs: tuple[Input, ...] = ()
    rows: tuple[Row, ...] = ()
    """Everything else that is shown to people, in order."""
    data: dict[str, Any] = {}
    """The same information for other programs, in the dialect's terms."""
    needs: tuple[Need, ...] = ()
    parts_title: str = ""
    parts: tuple[Part, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    def lines(self) -> Iterable[str]:
        """The whole summary as text."""
        yield self.title
        if self.description:
            yield f"\n{self.description}\n"
        for declared in self.inputs:
            yield f"{'input':<10}{input_words(declared)}"
        for row in self.rows:
            yield f"{row.name:<10}{row.words}" if row.name else row.words
            yield from row.details

    def fields(self, dialect: str) -> dict[str, Any]:
        """The whole summary as JSON."""
        inputs = [{"name": one.name, "type": one.type, "required": one.required} for one in self.inputs]
        about = {"dialect": dialect, "title": self.title, "description": self.description, "inputs": inputs}
        return {**about, **self.data}


def listed(**values: Iterable[str]) -> tuple[Row, ...]:
    """A row for each list of names that is not empty."""
    rows = ((name, ", ".join(names)) for name, names in values.items())
    return tuple(Row(name, words) for name, words in rows if words)


def model_needs(names: Iterable[str], *, needs_model: bool) -> tuple[Need, ...]:
    """The models that a playbook names, or `any` if it needs a model and names none."""
    named = tuple(Need("model", name) for name in dict.fromkeys(names))
    return named or ((Need("model", "any"),) if needs_model else ())


def input_words(declared: Input) -> str:
    values = f": {', '.join(declared.options)}" if declared.options else ""
    need = "optional"
    if declared.required:
        need = "required"
    elif declared.default:
        need = f"default: {short(declared.default)}"
    need += "; sensitive" if declared.sensitive else ""
    about = f": {declared.description}" if declared.description else ""
    return f"{declared.name} ({declared.type}{values}; {need}){about}"
