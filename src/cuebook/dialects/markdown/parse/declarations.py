"""Reads the declarations of a playbook: its inputs and the type of its artifact."""

from __future__ import annotations

import re

from cuebook.dialects.markdown.model import ARTIFACT_TYPES, DeclaredInput
from cuebook.dialects.markdown.run.placeholders import placeholders

INPUT_TYPES = {
    "string": "string",
    "text": "text",
    "number": "number",
    "num": "number",
    "int": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "enum": "enum",
    "select": "enum",
    "choice": "enum",
}
OUTPUT_TYPES = INPUT_TYPES | {"json": "json"}

_INPUT = re.compile(r"-\s+`([a-zA-Z][a-zA-Z0-9_]*)`\s+\(([^)]+)\)(?::\s*(.+))?", re.ASCII)
_TYPE = re.compile(r"type:\s*(\S+)", re.ASCII | re.IGNORECASE)


def read_input(text: str, line: int) -> DeclaredInput | None:
    """The input that a bullet declares; None if the line is malformed."""
    found = _INPUT.fullmatch(text)
    if found is None:
        return None
    name, spec, description = found[1], found[2], (found[3] or "").strip()
    kind, _, rest = spec.partition(":")
    kind, sensitive = _marked(kind)
    type_ = INPUT_TYPES.get(kind, "string")
    more = {"description": description, "sensitive": sensitive, "line": line}
    if type_ == "enum":
        options = tuple(option for part in rest.split(",") if (option := part.strip()))
        return DeclaredInput(name, type_, options=options, **more)  # type: ignore[arg-type]
    default = rest.strip() or None
    return DeclaredInput(name, type_, default is None, default, **more)  # type: ignore[arg-type]


def _marked(kind: str) -> tuple[str, bool]:
    """The type, and whether the input is marked as sensitive, as in `string, sensitive`. Elsewhere, that is a string."""
    type_, comma, mark = (part.strip().lower() for part in kind.partition(","))
    return (type_, True) if comma and mark == "sensitive" else (kind.strip().lower(), False)


def written_type(text: str) -> str:
    """The type of an input as the author spelled it."""
    found = _INPUT.fullmatch(text)
    kind = found[2].partition(":")[0].strip() if found else ""
    return kind.partition(",")[0].strip() if _marked(kind)[1] else kind


def read_artifact_type(text: str) -> str | None:
    """The type in a line of the form `type: x`; None for any other line."""
    found = _TYPE.fullmatch(text)
    return found[1] if found else None


def artifact_type(said: str) -> str | None:
    """The type as it is stored: a known type, or a placeholder that is filled in at the end. None if it is unknown."""
    if said.lower() in ARTIFACT_TYPES:
        return said.lower()
    whole = next(placeholders(said), None)
    return said if whole is not None and (whole.start, whole.end) == (0, len(said)) else None
