"""Checks the inputs of a run against the declarations of the playbook. Values are stored as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from cuebook.dialects.inputs import input_errors
from cuebook.dialects.markdown.model import Book, DeclaredInput
from cuebook.kernel.errors import BadInput

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": "true", "yes": "true", "on": "true", "1": "true"} | {
    "false": "false",
    "no": "false",
    "off": "false",
    "0": "false",
}


class Unfit(BadInput):
    """A value that does not match the declared type."""


def accept(book: Book, given: Mapping[str, Any]) -> dict[str, Any]:
    """All inputs as text, with defaults. Undeclared inputs are kept, with a warning during the run."""
    accepted: dict[str, Any] = {}
    missing: list[DeclaredInput] = []
    wrong: list[str] = []
    for declared in book.inputs:
        value = given.get(declared.name)
        if value is None or (value == "" and declared.required):
            value = declared.default
        if value is None:
            missing.append(declared)
            continue
        try:
            accepted[declared.name] = fitting(declared, value)
        except Unfit as why:
            own = f" (its default on line {declared.line})" if given.get(declared.name) is None else ""
            wrong.append(f"{declared.name} {why}{own}")
    for name, value in given.items():
        if name not in accepted and value is not None and not any(name == one.name for one in book.inputs):
            try:
                accepted[name] = as_text(value)
            except Unfit as why:
                wrong.append(f"{name} {why}")
    if missing or wrong:
        raise BadInput(
            input_errors([_described(declared) for declared in missing], wrong), fix=_fix(missing, len(wrong))
        )
    return accepted


def unknown(book: Book, inputs: Mapping[str, Any]) -> list[str]:
    """A warning for each input that the playbook does not declare."""
    names = [declared.name for declared in book.inputs]
    warnings = []
    for name in inputs:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            warnings.append(f"The playbook has no input '{name}'.{hint}")
    return warnings


def as_text(value: Any) -> str:
    """A plain value as the text that replaces its placeholders."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("is not valid text (it cannot be encoded as UTF-8)") from None
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), allow_nan=False)
    except (TypeError, ValueError):
        raise Unfit(f"is of type {type(value).__name__}, which has no text form") from None


def fitting(declared: DeclaredInput, value: Any) -> str:
    """The value as text. Raises `Unfit` if it does not match the declared type."""
    text = as_text(value)
    match declared.type:
        case "number":
            if isinstance(value, bool) or not _NUMBER.fullmatch(text.strip()):
                raise Unfit(f"must be a number, not {_shown(text)}")
            return text.strip()
        case "boolean":
            said = _BOOLEANS.get(text.strip().lower())
            if said is None:
                raise Unfit(f"must be true or false, not {_shown(text)}")
            return said
        case "enum":
            if text not in declared.options:
                raise Unfit(f"must be one of {', '.join(declared.options) or '(nothing)'}, not {_shown(text)}")
    return text


def _shown(text: str) -> str:
    short = text if len(text) <= 40 else text[:40] + "…"
    return json.dumps(short, ensure_ascii=False)


def _described(declared: DeclaredInput) -> str:
    if declared.options:
        return f"{declared.name} (one of {', '.join(declared.options)})"
    return f"{declared.name} ({declared.type})"


def _fix(missing: list[DeclaredInput], wrong: int) -> str:
    if not missing:
        return f"Correct {'it' if wrong == 1 else 'them'} and try again."
    return f"Pass {' '.join(f'--{declared.name} VALUE' for declared in missing)}."
