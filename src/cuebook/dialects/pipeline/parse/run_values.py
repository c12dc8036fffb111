"""References to what is known of the run itself and of the runs before it: `$run`, `$previous`, `$state` and `$changes`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, cast

from cuebook.dialects.pipeline.model import RunRef
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

SOURCES = ("run", "previous", "state", "changes")
"""The names that a reference begins with, unless a step has this id."""
RUN_FIELDS = ("id", "date")
CHANGES_FIELDS = ("feedback", "by", "count")
_OUTPUTS = ("stdout", "json")
"""The fields of a step in an earlier run."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
MOST = 50
"""The maximum number of values that a step keeps."""


def reference(
    shape: Shape,
    source: str,
    path: tuple[str | int, ...],
    steps: Collection[str],
    kept: Collection[str],
    line: int,
    at: str,
) -> RunRef:
    """Checks the path of a reference. In an earlier run, a step may follow this one, or be this one.

    An earlier text may have had other `steps` and `kept` values, so an unknown one is only a warning.
    """
    written = f"${source}.{'.'.join(map(str, path))}"

    def wrong(why: str, fix: str) -> None:
        shape.wrong(line, f"{at}: '{written[:60]}' {why}.", fix, "UNKNOWN_REFERENCE")

    def odd(why: str, fix: str) -> None:
        shape.odd(line, f"{at}: '{written[:60]}' may always be null: {why}.", fix, "ALWAYS_NULL")

    first = str(path[0])
    if source == "run" and (first not in RUN_FIELDS or len(path) > 1):
        wrong(f"is unknown: a run has {' and '.join(RUN_FIELDS)}", shape.meant(first, RUN_FIELDS))
    elif source == "changes" and (first not in CHANGES_FIELDS or len(path) > 1):
        fields = ", ".join(CHANGES_FIELDS)
        wrong(f"is unknown: a request for changes has {fields}", shape.meant(first, CHANGES_FIELDS))
    elif source == "previous" and (len(path) < 2 or path[1] not in _OUTPUTS):
        wrong("is not the output of a step", f"Write $previous.{first}.stdout or $previous.{first}.json.")
    elif source == "previous" and len(path) > 2 and path[1] != "json":
        wrong("has no parts", f"Write $previous.{first}.json and the path.")
    elif source == "state" and not NAME.fullmatch(first):
        wrong("is not the name of a value", "Begin with a letter; use letters, digits, - and _.")
    elif source == "previous" and first not in steps:
        odd(f"there is no step '{first[:60]}'", shape.meant(first, steps))
    elif source == "state" and first not in kept:
        odd(f"no step keeps a value '{first[:60]}'", shape.meant(first, kept) if kept else "Keep it under `state`.")
    return RunRef(cast(Any, source), path)


def kept(scope: Any, value: Value, at: str) -> dict[str, Any]:
    """The values that a step keeps for later runs. They may refer to the step itself."""
    after = scope.after_itself()
    found: dict[str, Any] = {}
    for name, one, line in scope.shape.named(value, at):
        if not NAME.fullmatch(name):
            fix = "Begin with a letter; use letters, digits, - and _, up to 64 of them."
            scope.shape.wrong(line, f"{at}: '{name[:60]}' is not a valid name.", fix)
        found[name] = after.field(one, f"{at}.{name}", secrets=False)
    if len(found) > MOST:
        scope.shape.wrong(
            value.line, f"{at} has more than {MOST} values.", "Keep fewer, or one object with all of them."
        )
    return found
