"""Parses the commands of `web`: what is done in the browser of the run, and with which element. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from cuebook.dialects.pipeline.model import Parallel, Pipeline, Secret, Step, Web, WebCommand, Words
from cuebook.dialects.pipeline.parse import commands, files
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

KNOWN: tuple[str, ...] = get_args(WebCommand)
STATES = ("visible", "hidden", "attached", "detached")

_WORDS: dict[str, tuple[str, ...]] = {
    "navigate": ("url",),
    "click": ("selector",),
    "fill": ("selector", "value"),
    "select": ("selector", "value"),
    "wait": ("selector",),
    "extract": ("selector", "attribute"),
    "snapshot": (),
    "download": ("url", "to"),
}
"""What the words after each command are, in order."""
_MORE: dict[str, tuple[str, ...]] = {
    "wait": ("state", "text"),
    "extract": ("all", "fields"),
    "download": ("selector", "download"),
}
"""What else `with` can contain."""
_OPTIONAL = ("attribute", "state", "text", "all", "fields", "to")
_EXAMPLES = {
    "navigate": "web navigate https://example.com",
    "click": "web click '#save'",
    "fill": "web fill '#name' Ada",
    "select": "web select '#country' CH",
    "wait": "web wait '.done'",
    "extract": "web extract h1",
    "download": "web download https://example.com/report.csv",
}


def web(scope: Scope, command: commands.Written) -> Web | None:
    """The command, or None if it is invalid. Problems are reported."""
    shape, at, line = scope.shape, command.at, command.line
    first = command.tokens[0].lower() if command.tokens else ""
    if first not in KNOWN:
        message = f"{at}: there is no browser command '{first[:40]}'." if first else f"{at} has no browser command."
        fix = f"{shape.meant(first, KNOWN)} Write one of {', '.join(KNOWN)}, as in `{_EXAMPLES['navigate']}`."
        shape.wrong(line, message, fix.strip(), commands.CODE)
        return None
    names, tokens = _WORDS[first], command.tokens[1:]
    fields = dict(commands.fields_of(scope, command, (*names, *_MORE.get(first, ()))))
    if len(tokens) > len(names):
        fix = f"Quote words with spaces, as in `{_EXAMPLES.get(first, 'web snapshot')}`."
        shape.wrong(line, f"{at}: unexpected '{tokens[len(names)][:60]}'.", fix, commands.CODE)
        return None
    arguments: dict[str, Any] = {}
    for name, token in zip(names, tokens, strict=False):
        if name in fields:
            commands.given_twice(scope, fields.pop(name), at, f"the {name}")
        _take(scope, arguments, name, token, line, at)
    for name, value in fields.items():
        _take_field(scope, arguments, name, value, f"{at.removesuffix('.command')}.with.{name}")
    _check_complete(scope, first, arguments, fields, command)
    if first == "download":
        arguments.setdefault("download", files.DOWNLOAD)
    return Web(first, arguments)  # type: ignore[arg-type]


def _take(scope: Scope, arguments: dict[str, Any], name: str, text: str, line: int, at: str) -> None:
    if name == "url":
        arguments[name] = commands.url_of(scope, text, line, at)
    elif name == "value":
        arguments[name] = scope.words_or_secret(text, line, at)
    elif name in ("attribute", "state"):
        arguments[name] = text if scope.fixed(text, line, at) else ""
    else:
        arguments[name] = scope.words(text, line, at)


def _take_field(scope: Scope, arguments: dict[str, Any], name: str, value: Value, at: str) -> None:
    shape = scope.shape
    match name:
        case "all":
            if value.kind != "bool":
                shape.wrong(value.line, f"{at} must be true or false.", "Write true, or remove it.")
            arguments[name] = value.plain is True
        case "download":
            arguments[name] = files.download(scope, value, at)
        case "state":
            arguments[name] = shape.choice(value, at, STATES)
        case "fields":
            arguments[name] = {}
            for field, one, line in shape.named(value, at):
                scope.name(field, line, at)
                arguments[name][field] = scope.words(shape.text(one, f"{at}.{field}"), one.line, f"{at}.{field}")
        case _:
            _take(scope, arguments, name, shape.text(value, at, empty=name == "value"), value.line, at)


def _check_complete(
    scope: Scope, command: str, arguments: Mapping[str, Any], fields: Mapping[str, Value], written: commands.Written
) -> None:
    shape, at, line = scope.shape, written.at, written.line
    if command == "download" and "selector" in arguments:
        if "url" in arguments:
            fix = "Remove one of them: a URL is opened, a selector is clicked."
            shape.wrong(line, f"{at} has a URL and a selector.", fix, commands.CODE)
        missing = []
    else:
        missing = [name for name in _WORDS[command] if name not in _OPTIONAL and name not in arguments]
    if missing:
        fix = f"Add it, as in `{_EXAMPLES[command]}`."
        shape.wrong(line, f"{at} has no {missing[0]}.", fix, commands.CODE)
    if "fields" in arguments and ("all" in arguments or "attribute" in arguments):
        message = f"{at}: with.fields already extracts every match, by the text of its fields."
        shape.wrong(fields["fields"].line, message, "Remove `all` and `attribute`.", commands.CODE)
    value = arguments.get("value")
    if isinstance(value, Secret) and command == "select":
        fix = "Fill a field with it, or choose an option that is not secret."
        shape.wrong(value.line, f"{at}: an option cannot be a secret.", fix, "SECRET_MISPLACED")
    to = arguments.get("to")
    if isinstance(to, Words) and len(to.parts) == 1 and isinstance(to.parts[0], str):
        flaw = _file_flaw(to.parts[0])
        if flaw:
            fix = "Write the path of a file below the workspace."
            shape.wrong(to.line or line, f"{at}: the file {flaw}.", fix, "BAD_FOLDER")


def _file_flaw(path: str) -> str:
    if path.startswith(("/", "\\", "~")) or ".." in re.split(r"[/\\]", path):
        return f"'{path[:60]}' is not below the workspace"
    return f"'{path[:60]}' is a folder" if path.endswith("/") else ""


def check_one_at_a_time(shape: Shape, pipeline: Pipeline) -> None:
    """Reports steps that would use the one page of the run at the same time."""
    fix = "Do it one after the other, or run a playbook there (`playbook:`): each child run has a page of its own."
    for step in pipeline.every:
        if isinstance(step.action, Parallel):
            users = [one for lane in step.action.lanes if (one := _first(lane.steps)) is not None]
            if len(users) > 1:
                message = (
                    f"The steps '{users[0].id}' and '{users[1].id}' would use the browser at the same time,"
                    " but a run has one page."
                )
                shape.wrong(users[1].line, message, fix, "BAD_STRUCTURE")
        if step.each is not None and step.each.concurrency > 1:
            user = _first((step,))
            if user is not None:
                message = (
                    f"The step '{user.id}' would use the browser for {step.each.concurrency} items at the same time,"
                    " but a run has one page."
                )
                shape.wrong(user.line, message, f"Remove concurrency. {fix}", "BAD_STRUCTURE")


def _first(steps: Iterable[Step]) -> Step | None:
    """The first step that uses the browser, among these and those inside them."""
    for step in steps:
        found = step if isinstance(step.action, Web) else _first(step.inner)
        if found is not None:
            return found
    return None
