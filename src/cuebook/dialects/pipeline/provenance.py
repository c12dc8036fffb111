"""Which commands depend on what came from outside: on the words of a model, a server or a tool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Cli, Step
from cuebook.dialects.pipeline.resolve import refs

_INTERPRETERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish", "pwsh", "powershell"),
        *("python", "pypy", "node", "deno", "bun", "perl", "ruby", "php", "lua", "luajit", "tclsh", "rscript", "julia"),
        *(
            "awk",
            "gawk",
            "mawk",
            "ed",
            "make",
            "osascript",
            "xargs",
            "parallel",
            "env",
            "ssh",
            "at",
            "batch",
            "crontab",
        ),
        *("psql", "mysql", "mariadb", "sqlite", "duckdb", "redis-cli", "mongosh"),
    )
)
"""Programs that do what their input says, so that it is as much a command as their arguments are."""

_VERSION = re.compile(r"[-.0-9]*(?:\.exe)?$")
"""What a program's name may end with: `python3.11` is a python."""

_SAID = ("stdout", "json", "errorMessage")
"""Fields of a result that hold somebody's words."""


def marked(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, each command that depends on words from outside marked as one. Steps refer to earlier ones only."""
    outside: set[str] = set()
    for step in steps:
        if not isinstance(step.action, Cli):
            outside.add(step.id)
            yield step
            continue
        told = _from(outside, (step.action, step.env))
        fed = _from(outside, step.stdin)
        if told or fed:
            outside.add(step.id)
        obeys = told or (fed and _interprets(step.action))
        yield msgspec.structs.replace(step, from_outside=True) if obeys else step


def _from(outside: set[str], value: Any) -> bool:
    return any(ref.step in outside and ref.path[0] in _SAID for ref in refs(value))


def _interprets(action: Cli) -> bool:
    """Whether any of its words names an interpreter: others, such as `timeout` and `sudo`, start what they are told to."""
    first = action.argv[0].parts[0] if action.argv and action.argv[0].parts else ""
    if not isinstance(first, str):
        return True
    words = (word.parts[0] for word in action.argv if len(word.parts) == 1)
    return any(_VERSION.sub("", basename(word).lower()) in _INTERPRETERS for word in words if isinstance(word, str))
