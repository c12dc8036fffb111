"""`@prompt`: text inserted before the step's own, from the library, a file, a tool server or a variable.

A missing prompt is left out with a warning; a path outside the playbook's folder fails the step. Effects read prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from cuebook.dialects.markdown.model import PromptUse
from cuebook.dialects.markdown.run.placeholders import render
from cuebook.kernel.effects import Program, ReadSource
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Source

_VARIABLE = re.compile(r"\{\{(\w+)\}\}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:", re.ASCII)

_SOURCES: dict[str, tuple[str, ...]] = {
    "library": ("prompt:{}",),
    "file": ("file:{}",),
    "mcp": ("mcp:{}",),
    "": ("prompt:{}", "file:{}"),
}
"""The sources to try for each scheme, in order. The empty scheme is a bare name."""

_ABSENT = ("not_found", "bad_source", "no_performer")
"""Failures that mean a missing prompt. Any other failure fails the step."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a prompt."""

    text: str
    verbatim: bool = False
    """Whether placeholders in it are kept. A variable's value may come from a model and must not read other values."""


def resolve(label: str, use: PromptUse, values: Mapping[str, str]) -> Program[Piece | None]:
    """The text that `@prompt` refers to; None if it is not found."""
    argument = use.argument.strip()
    variable = _VARIABLE.fullmatch(argument)
    if variable is not None:
        return (yield from _of_variable(label, variable[1], values))
    scheme, colon, identifier = argument.partition(":")
    if not colon:
        scheme, identifier = "", argument
    if scheme not in _SOURCES:
        schemes = ", ".join(name for name in _SOURCES if name)
        yield _missing(label, use, f"'{scheme}' is an unknown scheme (known: {schemes})")
        return None
    name, unresolved = render(identifier.strip(), values)
    for missing in unresolved:
        yield Warned("unresolved", f"Step {label}: unknown variable '{missing}' in @prompt({use.argument}).")
    _require_safe(label, use, name)
    if not name or (scheme == "mcp" and not all(name.partition("/"))):
        how = "write mcp:server/name" if name else "it is empty"
        yield _missing(label, use, f"{name or 'the name'} is not a valid prompt name: {how}")
        return None
    return (yield from _read(label, use, [source.format(name) for source in _SOURCES[scheme]]))


def _of_variable(label: str, name: str, values: Mapping[str, str]) -> Program[Piece | None]:
    value = values.get(name)
    if value is None:
        words = f"Step {label}: unknown variable '{name}', so @prompt({{{{{name}}}}}) was left out."
        yield Warned("prompt_not_found", words)
        return None
    return Piece(value.strip(), verbatim=True) if value.strip() else None


def _read(label: str, use: PromptUse, sources: list[str]) -> Program[Piece | None]:
    why = ""
    for source in sources:
        try:
            found: Source = yield ReadSource(source)
        except EffectFailed as error:
            if not _absent(error.failed):
                raise
            why = str(error.failed)
            continue
        text = str(found.content).strip()
        return Piece(text) if text else None
    yield _missing(label, use, why)
    return None


def _absent(failed: Failed) -> bool:
    return failed.code in _ABSENT or failed.code.startswith("no_such")


def _missing(label: str, use: PromptUse, why: str) -> Warned:
    stop = "" if why.endswith((".", "?")) else "."
    words = f"Step {label}: @prompt({use.argument}) was left out, and the step continues without it: {why}{stop}"
    return Warned("prompt_not_found", words)


_UNSAFE: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda name: "\0" in name, "contains a NUL character"),
    (lambda name: "\\" in name, "contains a backslash"),
    (lambda name: name.startswith("/"), "is absolute"),
    (lambda name: name.startswith("~"), "begins with '~'"),
    (_DRIVE.match, "begins with a drive letter"),
    (lambda name: ".." in name.split("/"), "contains '..'"),
)


def _require_safe(label: str, use: PromptUse, name: str) -> None:
    """Fails the step if the name, with placeholders replaced, leads outside the playbook's folder."""
    for unsafe, why in _UNSAFE:
        if unsafe(name):
            words = f"Step {label}: @prompt({use.argument}) names {name[:200]!a}, which {why}."
            fix = "Use a path below the playbook's folder."
            raise EffectFailed(Failed("outside_root", words, fix))
