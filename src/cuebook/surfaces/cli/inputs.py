"""Values for a run on the command line.

Inputs come from an option for each declared input, from `--inputs FILE` and from `--input NAME=VALUE`; answers from
`--answers FILE` and `--answer STEP=VALUE`. Both are checked before the run starts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from cuebook.dialects.dialect import Dialect, Document, Input
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput, with_fix
from cuebook.service.start import check_answers
from cuebook.surfaces.cli.completion import one_of
from cuebook.surfaces.cli.options import Given, read_text, value_of

PREFIX = "input_of_"
"""Separates the names of inputs from the names of other options."""

SECRET = "secret"
"""The type of an input whose value is the handle of a secret."""
_HANDLES = "env:NAME, keyring:NAME, file:PATH, or secret:NAME for a name from `cuebook secrets`"
_METAVARS = {SECRET: "HANDLE", "any": "VALUE"}


class InputOption(click.Option):
    """The option for an input of the playbook."""


def _check_boolean(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuses an option as the value: a boolean input always takes a value."""
    if value is not None and value.startswith("-") and value != "-":
        raise click.BadParameter(f"Expected true or false, got '{value}'.", ctx, param)
    return value


def input_options(document: Document, taken: set[str]) -> list[click.Option]:
    """One option for each input. If the name is taken by another option, the input gets `--input-NAME`."""
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
        check = _check_boolean if declared.type == "boolean" else None
        option = InputOption(spelled, metavar=metavar, help=_help(declared), callback=check, shell_complete=complete)
        options.append(option)
    return options


def _values(declared: Input) -> Sequence[str]:
    """The values that a shell can complete."""
    return ("true", "false") if declared.type == "boolean" else declared.options


def _help(declared: Input) -> str:
    words = declared.description
    if declared.type == SECRET:
        words = with_fix(words, f"The handle of the secret, never its value: {_HANDLES}.")
    given = "optional" if declared.default is None else f"default: {declared.default}"
    sensitive = "; sensitive" if declared.sensitive else ""
    return f"{words} [{'required' if declared.required else given}{sensitive}]".strip()


def gather_inputs(given: dict[str, Any], document: Document, dialect: Dialect) -> dict[str, Any]:
    """All inputs. Options override `--input`, which overrides the file. The `BadInput` for an unknown name also lists
    what else is wrong with the inputs.
    """
    values: dict[str, Any] = {}
    if given.get("inputs"):
        values.update(read_table(given["inputs"], "--inputs", plain=dialect.typed_inputs))

    def read(name: str, flag: str, written: str) -> Any:
        return dialect.typed(document, name, value_of(flag, written))

    names = [declared.name for declared in document.inputs]
    unknown: list[str] = []
    for one in given.get("input") or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise BadInput(f"--input {one}: expected NAME=VALUE.", fix="For example: --input topic=tea.")
        if name not in names and not dialect.takes(document, name):
            unknown.append(name)
            continue
        values[name] = read(name, f"--input {name}", value)
    for name, value in given.items():
        if name.startswith(PREFIX) and value is not None:
            real = name.removeprefix(PREFIX)
            values[real] = read(real, f"--{real}", value)
    if unknown:
        raise _unknown_inputs(unknown, names, document, dialect, values)
    return values


def _unknown_inputs(
    unknown: Sequence[str], names: Sequence[str], document: Document, dialect: Dialect, values: dict[str, Any]
) -> BadInput:
    """One error for everything that is wrong with the inputs."""
    problems = [f"--input: the playbook declares no input '{name}'." for name in unknown]
    fixes = list(dict.fromkeys(_did_you_mean(name, names) for name in unknown))
    try:
        dialect.accept(document, values)
    except BadInput as error:
        problems.append(error.message)
        fixes.append(error.fix)
    return BadInput(" ".join(problems), fix=" ".join(fixes))


def _did_you_mean(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"It declares: {', '.join(names)}." if names else "It declares no inputs."


def read_table(path: str, flag: str, *, plain: bool = False, lists: bool = False) -> dict[str, Any]:
    """Reads a YAML or JSON file with one value per name, or several with `lists`. Numbers and dates are strings, as written
    in the file; with `plain` they are converted.
    """
    from cuebook.formats.builder import SMALL, UNCONVERTED
    from cuebook.formats.json import read_json
    from cuebook.formats.values import BadFile, Malformed, Value
    from cuebook.formats.yaml import read_yaml

    try:
        read = read_json if path.endswith(".json") else read_yaml
        table = read(read_text(path, flag), SMALL if plain else UNCONVERTED)
    except Malformed as error:
        raise error.in_file(f"{flag}: {path}", BadFile) from None
    if table.kind not in ("map", "null"):
        raise BadInput(f"{flag}: {path} is not a table of names and values.", fix="Write one 'name: value' per line.")

    def value_of(given: Value) -> Any:
        if lists and given.kind == "seq":
            return [one.written for one in given.items]
        return given.plain if plain else given.written

    return {name: value_of(given) for name, given in table.fields.items()}


# --- answers --------------------------------------------------------------------------------------------

Answers = dict[str, str | tuple[str, ...]]
"""Answers by step label. Several answers for one step are used in turn, one each time the step asks."""


def gather_answers(given: Given, playbook: Playbook | None) -> Answers:
    """All answers by step label. `--answer` overrides the file."""
    answers: Answers = {}
    if given["answers"]:
        table = read_table(given["answers"], "--answers", lists=True)
        answers.update((label, _answers_of(label, value)) for label, value in table.items())
    for one in given["answer"]:
        label, equals, value = one.partition("=")
        if not equals or not label:
            raise BadInput(f"--answer {one}: expected STEP=VALUE.", fix="For example: --answer 2=yes.")
        answers[label] = value_of(f"--answer {label}", value)
    if playbook is not None and playbook.outline:
        check_answers(answers, playbook.outline)
    return answers


def _answers_of(label: str, value: Any) -> str | tuple[str, ...]:
    return tuple(_answer(label, one) for one in value) if isinstance(value, list) else _answer(label, value)


def _answer(label: str, value: Any) -> str:
    """The text of one answer; a value of another type is converted to JSON."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"--answers: the answer for step {label} is not valid Unicode text.", fix="Correct it in the file."
        ) from None
    return text
