"""Converts playbooks to JSON and back, for the dialects that support it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.kernel.errors import BadInput


class Converted(NamedTuple):
    """A playbook as JSON; `text` converts it back."""

    dialect: Dialect
    name: str
    definition: dict[str, Any]

    @property
    def text(self) -> str:
        return self.dialect.from_json(self.definition, self.name)


def convert(text: str, name: str, *, is_json: bool | None = None) -> Converted:
    """Reads a playbook or its JSON; detects which one by default. Raises `BadInput` if the dialect has no JSON form."""
    converting = [one for one in registry.dialects() if one.converts]
    found = registry.recognised(text, name)
    if found is not None and found not in converting and not is_json:
        raise unsupported("convert", found, name, converting)
    if is_json is None:
        is_json = text.lstrip("\ufeff \t\r\n").startswith("{") and not _is_playbook(found, text, name)
    dialect = found if found in converting else converting[0]
    assert dialect is not None
    if is_json:
        text = dialect.from_json(_decoded(text, name), name)
    return Converted(dialect, name, dialect.to_json(dialect.parse(text, name)))


def unsupported(command: str, dialect: Dialect, name: str, supporting: Iterable[Dialect]) -> BadInput:
    """The error for a command that does not support this dialect."""
    nouns = " and ".join(f"{one.noun}s" for one in supporting)
    data = ", which is already YAML or JSON" if dialect.is_data else ""
    return BadInput(
        f"{name}: `cuebook {command}` supports only {nouns}; this is a {dialect.noun}{data}.",
        fix="`cuebook summary`, `cuebook validate` and `cuebook graph` accept it.",
    )


def _is_playbook(dialect: Dialect | None, text: str, name: str) -> bool:
    """Whether the text is a playbook. A leading brace does not rule that out."""
    try:
        return dialect is not None and dialect.parse(text, name) is not None
    except InvalidPlaybook:
        return False


def _decoded(text: str, name: str) -> Any:
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: invalid JSON: {error.msg}.", fix="Correct the JSON.") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{name}: this is not valid JSON.", fix="Correct the JSON.") from None
