"""Parses `rollback`: the command, request or tool call that undoes a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cuebook.dialects.pipeline.model import Step
from cuebook.dialects.pipeline.parse import commands
from cuebook.dialects.pipeline.parse.places import namespace_of
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.values import Value

NAMESPACES = ("cli", "http", "mcp", "node")
UNDO = "undo."
"""Begins the labels of the steps that undo others."""
CODE = "BAD_ROLLBACK"
_COMMON = ("stdin", "env", "cwd", "timeout_ms", "postcondition", "network", "credentials", "reads", "takes", "node")
_FIELDS = ("command", "with", *_COMMON)

Common = Callable[[Scope, Mapping[str, Value], str, str], dict[str, Any]]
"""Parses the fields that all actions share."""


def rollback(scope: Scope, value: Value, at: str, common: Common) -> Step | None:
    """Parses a command, or a table with a command and its fields. It can refer to the step that it undoes."""
    shape, undone = scope.shape, scope.here
    after = scope.after_itself()
    fields: Mapping[str, Value] = {}
    if value.kind == "str":
        text = shape.text(value, at).strip()
    else:
        fields = shape.closed(value, at, _FIELDS, ("command",))
        if "command" not in fields:
            return None
        text = shape.text(fields["command"], f"{at}.command").strip()
    line = fields["command"].line if fields else value.line
    namespace = namespace_of(text)
    if text and namespace not in NAMESPACES:
        fix = f"Begin with {', '.join(NAMESPACES)}, as in `cli git tag -d v1`."
        shape.wrong(line, f"{at}: '{namespace[:60]}' steps cannot undo anything.", fix, CODE)
        return None
    written = commands.written(after, text, line, at, fields.get("with")) if text else None
    read = common(after, {name: one for name, one in fields.items() if name in _COMMON}, namespace, at)
    action = None if written is None else commands.action(after, written)
    if action is None:
        return None
    name = f"Undo {undone}"
    return Step(f"{UNDO}{undone}", action, name=name, command=text, approval=True, line=value.line, **read)
