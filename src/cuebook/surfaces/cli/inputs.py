"""Inputs on the command line: an option for each input that the playbook declares, a file of them, and `--input`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from cuebook.dialects.registry import Dialect, Document, Input, Typed
from cuebook.kernel.errors import BadInput, told
from cuebook.surfaces.cli.completion import one_of
from cuebook.surfaces.cli.options import read_text, value_of

PREFIX = "input_of_"
"""Keeps what an input is called apart from the names of other options."""

SECRET = "secret"
"""The type of an input that is the handle of a secret."""
_HANDLES = "env:NAME, keyring:NAME, file:PATH, or secret:NAME for one that `cuebook secrets` names"
_METAVARS = {SECRET: "HANDLE", "any": "VALUE"}


class InputOption(click.Option):
    """An option that stands for an input of the playbook."""


def _no_option(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An input that is true or false takes a value, always: the option that follows it is none."""
    if value is not None and value.startswith("-") and value != "-":
        raise click.BadParameter(f"true or false is wanted, not '{value}'.", ctx, param)
    return value


def input_options(document: Document, taken: set[str]) -> list[click.Option]:
    """One option for each input. An input with the name of another option has `input` before its own."""
    options: list[click.Option] = []
    for declared in document.inputs:
        spellings = [f"--{declared.name}"]
        if "_" in declared.name:
            spellings.append(f"--{declared.name.replace('_', '-')}")
        free = [spelling for spelling in spellings if spelling not in taken]
        if not free:
            free = [spelling for spelling in (f"--input-{declared.name}",) if spelling not in taken]
        if not free:
            continue
        taken.update(free)
        metavar = (
            "|".join(declared.options) if declared.options else _METAVARS.get(declared.type, declared.type.upper())
        )
        spelled = [*free, f"{PREFIX}{declared.name}"]
        complete = one_of(_values(declared))
        check = _no_option if declared.type == "boolean" else None
        option = InputOption(spelled, metavar=metavar, help=_help(declared), callback=check, shell_complete=complete)
        options.append(option)
    return options


def _values(declared: Input) -> Sequence[str]:
    """What a shell can offer."""
    return ("true", "false") if declared.type == "boolean" else declared.options


def _help(declared: Input) -> str:
    words = declared.description
    if declared.type == SECRET:
        words = told(words, f"The secret's handle, never its value: {_HANDLES}.")
    given = "optional" if declared.default is None else f"default: {declared.default}"
    return f"{words} [{'required' if declared.required else given}]".strip()


def gathered(given: dict[str, Any], document: Document, dialect: Dialect) -> dict[str, Any]:
    """All inputs: the file's, then `--input`, then the options, the later ones winning. `BadInput` for a name that the
    playbook does not know tells what else is wrong with them as well.
    """
    typed = dialect if isinstance(dialect, Typed) else None
    values: dict[str, Any] = {}
    if given.get("inputs"):
        values.update(read_table(given["inputs"], "--inputs", plain=typed is not None))

    def read(name: str, flag: str, written: str) -> Any:
        text = value_of(flag, written)
        return text if typed is None else typed.typed(document, name, text)

    names = [declared.name for declared in document.inputs]
    strays: list[str] = []
    for one in given.get("input") or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise BadInput(f"--input {one}: this is no NAME=VALUE.", fix="Write it as in --input topic=tea.")
        if name not in names and not (typed is not None and typed.takes(document, name)):
            strays.append(name)
            continue
        values[name] = read(name, f"--input {name}", value)
    for name, value in given.items():
        if name.startswith(PREFIX) and value is not None:
            real = name.removeprefix(PREFIX)
            values[real] = read(real, f"--{real}", value)
    if strays:
        raise _unknown(strays, names, document, dialect, values)
    return values


def _unknown(
    strays: Sequence[str], names: Sequence[str], document: Document, dialect: Dialect, values: dict[str, Any]
) -> BadInput:
    """Says of all inputs at once what is wrong with them."""
    said = [f"--input: the playbook declares no input '{name}'." for name in strays]
    fixes = list(dict.fromkeys(_did_you_mean(name, names) for name in strays))
    try:
        dialect.accept(document, values)
    except BadInput as error:
        said.append(error.message)
        fixes.append(error.fix)
    return BadInput(" ".join(said), fix=" ".join(fixes))


def _did_you_mean(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"It declares: {', '.join(names)}." if names else "It declares none."


def read_table(path: str, flag: str, *, plain: bool = False, lists: bool = False) -> dict[str, Any]:
    """A YAML or JSON file with one value for each name, or with `lists` several. Numbers and dates stay as they are
    written, unless plain values are wanted.
    """
    from cuebook.testing import reading

    read = reading.parse_json if path.endswith(".json") else reading.parse
    table = read(read_text(path, flag), f"{flag}: {path}")
    if table.kind not in ("map", "null"):
        raise BadInput(f"{flag}: {path} is no table of names and values.", fix="Write one 'name: value' a line.")

    def value(node: reading.Node) -> Any:
        if lists and node.kind == "seq":
            return [one.written for one in node.items]
        return node.plain if plain else node.written

    return {name: value(node) for name, node in table.fields.items()}
