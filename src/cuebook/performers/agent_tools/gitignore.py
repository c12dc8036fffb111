"""Determines which files git ignores, according to the `.gitignore` files in a folder and above it.

Patterns become regular expressions that match in linear time. This module receives the text of these files, and does
not read any itself.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import msgspec

NAME = ".gitignore"
LARGEST = 1 << 16
"""The maximum number of bytes that are read from a `.gitignore` file."""
_MOST = 1_000
"""The maximum number of rules that are used from one file."""


class _Rule(msgspec.Struct, frozen=True):
    expression: str
    keeps: bool
    """Whether it includes files that an earlier rule excludes."""
    folders: bool
    """Whether it applies only to folders."""


class _Group(msgspec.Struct, frozen=True):
    """Consecutive rules of the same kind."""

    matches: Any
    keeps: bool
    folders: bool


class Rules(msgspec.Struct, frozen=True):
    """The rules that apply in a folder: its own rules take precedence over the rules of the folders above it."""

    folder: str = ""
    """The folder of the file, below the workspace, with a trailing slash; empty for the workspace itself."""
    groups: tuple[_Group, ...] = ()
    above: Rules | None = None

    def within(self, folder: str, text: str) -> Rules:
        """The rules that apply in a subfolder that has its own `.gitignore` file."""
        return Rules(folder, _groups(text), self)

    def leaves_out(self, name: str, *, is_folder: bool) -> bool:
        """`name` is relative to the workspace. The content of an ignored folder is ignored too."""
        rules: Rules | None = self
        while rules is not None:
            below = name[len(rules.folder) :]
            for group in reversed(rules.groups):
                if (is_folder or not group.folders) and group.matches.fullmatch(below):
                    return not group.keeps
            rules = rules.above
        return False


def _groups(text: str) -> tuple[_Group, ...]:
    import re2

    options = re2.Options()
    options.log_errors = False
    rules = list(itertools.islice(filter(None, map(_rule, text.splitlines())), _MOST))
    groups: list[_Group] = []
    for (keeps, folders), alike in itertools.groupby(rules, key=lambda rule: (rule.keeps, rule.folders)):
        expressions = [f"(?:{rule.expression})" for rule in alike]
        try:
            groups.append(_Group(re2.compile("|".join(expressions), options), keeps, folders))
        except re2.error:  # git skips a rule with a class such as [z-a], and uses its neighbours
            for expression in expressions:
                with suppress(re2.error):
                    groups.append(_Group(re2.compile(expression, options), keeps, folders))
    return tuple(groups)


def _rule(line: str) -> _Rule | None:
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    pattern = line[1:] if keeps else line
    folders = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    if not pattern:
        return None
    anywhere = "/" not in pattern
    return _Rule(("(?:.*/)?" if anywhere else "") + _expression(pattern.removeprefix("/")), keeps, folders)


def _expression(pattern: str) -> str:
    import re2

    made, at = ["(?s)"], 0
    while at < len(pattern):
        rest = pattern[at:]
        sign, step = rest[0], 1
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] == "/"):
            made.append("(?:.*/)?")
            step = 3
        elif rest == "**" and at and pattern[at - 1] == "/":
            made.append(".+")
            step = 2
        elif wildcard := wildcard_at(rest):
            part, step = wildcard
            made.append(part)
        elif sign == "\\" and len(rest) > 1:
            made.append(re2.escape(rest[1]))
            step = 2
        else:
            made.append(re2.escape(sign))
        at += step
    return "".join(made)


def wildcard_at(rest: str) -> tuple[str, int] | None:
    """The regular expression for a `*`, `?` or `[...]` at the start of a pattern, and its length; None otherwise."""
    if rest[0] in "*?":
        return ("[^/]*" if rest[0] == "*" else "[^/]"), 1
    if rest[0] != "[" or "]" not in rest[2:]:
        return None
    end = rest.index("]", 2)
    inner = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
    return (f"[^/{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"), end + 1
