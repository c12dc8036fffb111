"""Parses the arguments that a pipeline declares, and validates all given values at once.

A value keeps its type. A secret argument accepts the handle of a secret, never its value. Independent of the surfaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from cuebook.dialects import inputs
from cuebook.dialects.pipeline.model import Arg, ArgType, Pipeline
from cuebook.dialects.pipeline.parse.references import is_handle
from cuebook.formats.json import read_json
from cuebook.formats.shape import Shape
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Malformed, Value
from cuebook.kernel.errors import BadInput

ARGUMENT = "CUEBOOK_ARG_"
"""Prefix of the environment variables that contain a run's arguments."""
TYPES: tuple[str, ...] = get_args(ArgType)
_OF_THE_FORMAT = ("default",)
_FIELDS = ("type", "description", "required", *_OF_THE_FORMAT, "enum", "secret", "sensitive")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_PREFIX = "secret:"
_HOW_TO_NAME_ONE = "Use secret:NAME, env:NAME, keyring:NAME or file:PATH, never the value itself."


# --- declarations ------------------------------------------------------------------------------------------


def declared(shape: Shape, value: Value) -> dict[str, Arg]:
    found = {name: _declared(shape, name, one, line) for name, one, line in shape.named(value, "args")}
    variables: dict[str, Arg] = {}
    for arg in found.values():
        if arg.secret:  # never passed as a variable
            continue
        variable = variable_of(arg.name)
        other = variables.setdefault(variable, arg)
        if other is not arg:
            message = f"The arguments '{other.name}' and '{arg.name}' would both be passed as the variable {variable}."
            shape.wrong(arg.line, message, "Rename one of them.", "BAD_ARG")
    return found


def variable_of(name: str) -> str:
    """The environment variable that passes an argument to commands."""
    return ARGUMENT + re.sub(r"[^A-Z0-9]", "_", name.upper(), flags=re.ASCII)


def _declared(shape: Shape, name: str, value: Value, line: int) -> Arg:
    at = f"args.{name}"
    if not _NAME.fullmatch(name):
        fix = "Use letters, digits, - and _, and begin with a letter or _."
        shape.wrong(line, f"'{name[:60]}' is not a valid argument name.", fix, "BAD_ARG")
    if value.kind == "null":
        return Arg(name, required=True, line=line)
    if value.kind != "map":
        return Arg(name, default=shape.plain(value, at), has_default=True, line=line)
    fields = shape.closed(value, at, _FIELDS)
    secret = shape.flag(fields["secret"], f"{at}.secret") if "secret" in fields else False
    sensitive = shape.flag(fields["sensitive"], f"{at}.sensitive") if "sensitive" in fields else False
    type_ = shape.choice(fields["type"], f"{at}.type", TYPES) if "type" in fields else None
    if "type" in fields and (secret or fields["type"].text not in TYPES):
        type_ = None  # its type is unknown or was already reported
    has_default = "default" in fields and fields["default"].kind != "null"
    required = shape.flag(fields["required"], f"{at}.required") if "required" in fields else not has_default
    if required and has_default:
        shape.wrong(value.lines["default"], f"{at} is required and has a default.", "Remove one of them.", "BAD_ARG")
    default = _checked(shape, type_, fields["default"], f"{at}.default") if has_default else None
    options = shape.items(fields["enum"], f"{at}.enum", at_least=1) if "enum" in fields else ()
    enum = tuple(_checked(shape, type_, one, f"{at}.enum[{number}]") for number, one in enumerate(options))
    if enum and has_default and not inputs.among(default, enum):
        fix = "Add it to the enum, or choose another default."
        shape.wrong(value.lines["default"], f"{at}.default is not in its enum.", fix, "BAD_ARG")
    description = shape.text(fields["description"], f"{at}.description", empty=True) if "description" in fields else ""
    if secret:
        _check_secret(shape, value, at, default if has_default else None)
    if sensitive and (secret or type_ not in (None, "string")):
        fix = "Remove `sensitive`: a secret is never shown." if secret else "Make it a string, or remove `sensitive`."
        shape.wrong(value.lines["sensitive"], f"{at} is sensitive, but only texts can be.", fix, "BAD_ARG")
    beyond = tuple(one for one in fields if one in _FIELDS and one not in _OF_THE_FORMAT)
    return Arg(
        name, cast(ArgType, type_), default, has_default, required, secret, sensitive, enum, description, line, beyond
    )


def _checked(shape: Shape, type_: str | None, value: Value, at: str) -> Any:
    plain = shape.plain(value, at)
    if type_ is not None and not inputs.is_of(type_, plain):
        shape.wrong(
            value.line, f"{at} must be {inputs.WORDS[type_]}, not {inputs.shown(plain)}.", "Correct it.", "BAD_ARG"
        )
    return plain


def _check_secret(shape: Shape, value: Value, at: str, default: Any) -> None:
    for name in ("type", "enum"):
        if name in value.fields and value.fields[name].text != "string":
            fix = "Remove it: a secret argument accepts only a handle."
            shape.wrong(value.lines[name], f"{at} is secret and has '{name}'.", fix, "BAD_ARG")
    if default is not None and handle_of(default) is None:
        # The text may be the secret itself, so the message does not repeat it.
        shape.wrong(
            value.lines["default"], f"{at}.default is not the handle of a secret.", _HOW_TO_NAME_ONE, "BAD_SECRET"
        )


# --- values of a run ----------------------------------------------------------------------------------------


def accept(pipeline: Pipeline, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a run in document order, with defaults, and null for missing optional arguments.

    Raises `BadInput` with everything that is missing or invalid.
    """
    wrong = [f"'{str(name)[:60]}' is not declared" for name in values if name not in pipeline.args]
    missing: list[Arg] = []
    accepted: dict[str, Any] = {}
    for name, arg in pipeline.args.items():
        value = values.get(name)
        value = list(value) if isinstance(value, tuple) else value
        if value is None:
            if arg.required:
                missing.append(arg)
            accepted[name] = arg.default
            continue
        problem = flaw(arg, value)
        if problem:
            wrong.append(f"{name} {problem}")
        accepted[name] = value
    if missing or wrong:
        message = inputs.input_errors(
            [f"{one.name} ({'secret' if one.secret else one.type or 'any'})" for one in missing], wrong
        )
        stray = next((str(name) for name in values if name not in pipeline.args), None)
        secrets = [one.name for one in missing if one.secret]
        fix = inputs.input_fix([one.name for one in missing], len(wrong), secrets)
        raise BadInput(message, fix=fix if stray is None else meant(stray, pipeline.args))
    return accepted


def handle_of(value: Any) -> str | None:
    """Returns the handle given for a secret argument, or None if the value is not a handle. A bare name needs the prefix `secret:`,
    because it could be the secret itself.
    """
    if not isinstance(value, str):
        return None
    handle = value.removeprefix(_PREFIX)
    named = value.startswith(_PREFIX) or ":" in handle
    return handle if named and is_handle(handle) else None


def flaw(arg: Arg, value: Any) -> str:
    """What is wrong with a value, as a clause; empty if it is valid."""
    if arg.secret:
        return "" if handle_of(value) is not None else f"must be the handle of a secret. {_HOW_TO_NAME_ONE}".rstrip(".")
    return inputs.flaw(value, arg.type, arg.enum)


# --- values as text -----------------------------------------------------------------------------------------


def typed(pipeline: Pipeline, name: str, text: str) -> Any:
    """Converts text to an argument's type. If undeclared, that is the type of the default, or else string."""
    arg = pipeline.args.get(name)
    type_ = _type_of(arg) if arg is not None and not arg.secret else "string"
    if type_ == "string":
        return text
    try:
        value = read_json(text).plain
    except Malformed:
        return text
    return value if inputs.is_of(type_, value) else text


def _type_of(arg: Arg) -> str:
    if arg.type is not None:
        return arg.type
    kinds = {bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return kinds.get(type(arg.default), "string")
