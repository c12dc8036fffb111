"""The inputs of a workflow: their declarations, and the check of the values that are passed to a run.

A value keeps its type. Null counts as absent. Undeclared inputs pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast, get_args

from cuebook.dialects.graph.model import Declared, InputType, Workflow
from cuebook.dialects.inputs import WORDS, among, flaw, input_errors, input_fix, is_of, shown
from cuebook.formats.json import read_json
from cuebook.formats.shape import Shape
from cuebook.formats.values import Malformed, Value
from cuebook.kernel.errors import BadInput

TYPES: tuple[str, ...] = get_args(InputType)
_DRY_RUN = "dryRun"
_FIELDS = ("type", "description", "required", "default", "enum")


# --- declarations -------------------------------------------------------------------------------------------


def declared(shape: Shape, value: Value) -> tuple[Declared, ...]:
    return tuple(_declared(shape, name, one, line) for name, one, line in shape.named(value, "inputs"))


def _declared(shape: Shape, name: str, value: Value, line: int) -> Declared:
    at = f"inputs.{name}"
    fields = shape.closed(value, at, _FIELDS, ("type",))
    given = fields.get("type")
    type_ = shape.choice(given, f"{at}.type", TYPES) if given is not None else ""
    if given is None or given.text not in TYPES:
        type_ = ""  # without a valid type, values cannot be checked
    description = shape.text(fields["description"], f"{at}.description", empty=True) if "description" in fields else ""
    required = shape.flag(fields["required"], f"{at}.required") if "required" in fields else False
    if required and "default" in fields:
        shape.wrong(value.lines["default"], f"{at} is required and has a default.", "Remove one of them.")
    default = _checked(shape, type_, fields["default"], f"{at}.default") if "default" in fields else None
    options = shape.items(fields["enum"], f"{at}.enum", at_least=1) if "enum" in fields else ()
    enum = tuple(_checked(shape, type_, one, f"{at}.enum[{number}]") for number, one in enumerate(options))
    if enum and default is not None and not among(default, enum):
        fix = "Add it to the enum, or choose another default."
        shape.odd(value.lines["default"], f"{at}.default is not one of its enum values.", fix, "DEFAULT_NOT_IN_ENUM")
    return Declared(name, cast(InputType, type_ or "string"), description, required, default, enum, line)


def _checked(shape: Shape, type_: str, value: Value, at: str) -> Any:
    plain = value.plain
    if type_ and not is_of(type_, plain):
        shape.wrong(value.line, f"{at} must be {WORDS[type_]}, not {shown(plain)}.", "Correct it.")
        return None
    return shape.plain(value, at)


# --- values -------------------------------------------------------------------------------------------------


def accept(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run, with defaults. Raises `BadInput`, which names all missing and invalid inputs."""
    declared = {one.name: one for one in workflow.declared or ()}
    accepted: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in given.items():
        one = declared.get(name)
        if one is not None and value is None:
            continue
        value = list(value) if isinstance(value, tuple) else value
        problem = flaw(value, one.type, one.enum) if one is not None else flaw(value, None, ())
        if problem:
            wrong.append(f"{name} {problem}")
        accepted[name] = value
    missing = []
    for one in declared.values():
        if one.name not in accepted:
            if one.default is not None:
                accepted[one.name] = one.default
            elif one.required:
                missing.append(one)
    if missing or wrong:
        raise BadInput(
            input_errors([f"{one.name} ({one.type})" for one in missing], wrong),
            fix=_fix(missing, len(wrong), given, declared),
        )
    return accepted


def typed(declared: Declared, text: str) -> Any:
    """Parses a value, as on a command line. Text that does not match the declared type is returned unchanged."""
    if declared.type == "string":
        return text
    if declared.type == "string[]" and not text.lstrip().startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()]
    try:
        value = read_json(text).plain
    except Malformed:
        return text
    return value if is_of(declared.type, value) else text


WITHOUT_DECLARING = ("rules", "context", _DRY_RUN)
"""Inputs that every workflow accepts."""


def taken(workflow: Workflow, name: str) -> bool:
    """Whether a run accepts an input with this name. Undeclared names are accepted unless they resemble a declared
    name."""
    names = [one.name for one in workflow.declared or ()]
    return name in names or name in WITHOUT_DECLARING or not get_close_matches(name, names, n=1)


def check_plain(name: str, value: Any) -> None:
    """Raises `BadInput` for a value that a journal cannot store."""
    problem = flaw(value, None, ())
    if problem:
        raise BadInput(f"{name} {problem}.", fix="Use a plain value.")


def typed_value(workflow: Workflow, name: str, text: str) -> Any:
    """Like `typed`. An undeclared input is parsed as JSON, or else kept as text. `dryRun` must be true or false, because
    a misspelt value would start a full run.
    """
    for one in workflow.declared or ():
        if one.name == name:
            return typed(one, text)
    if name == _DRY_RUN:
        if text.strip().lower() not in ("true", "false"):
            raise BadInput(f"{name} must be true or false, not {shown(text)}.", fix=f"Write {name}=true.")
        return text.strip().lower() == "true"
    try:
        return read_json(text).plain
    except Malformed:
        return text


def _fix(missing: list[Declared], wrong: int, given: Mapping[str, Any], declared: Mapping[str, Declared]) -> str:
    names = [one.name for one in missing]
    for stray in given:
        close = get_close_matches(str(stray), names, n=1) if stray not in declared else []
        if close:
            return f"'{stray}' is not declared. Did you mean '{close[0]}'?"
    return input_fix(names, wrong)
