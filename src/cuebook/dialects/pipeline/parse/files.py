"""Parses the files of a step: those that it produces, and those of earlier steps that it takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cuebook.dialects.pipeline.model import FormField, StepRef, Words
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
MOST = 50
"""The maximum number of files that a step produces or takes, and of parts of a form."""
DOWNLOAD = "download"
"""The name of a file that the browser downloads, unless the step gives it another."""
PARTS = ("name", "size", "digest")
"""The parts of a file that text can refer to."""
CODE = "BAD_FILE"
_HOW = "Write a reference to a file of an earlier step, as in $build.files.archive."
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:;[ -~]*)?", re.ASCII)


def named(value: Value) -> tuple[str, ...]:
    """The names of the files that an unparsed step produces."""
    files, more = value.fields.get("files"), value.fields.get("with")
    found = list(files.fields) if files is not None else []
    download = more.fields.get("download") if more is not None else None
    if download is not None and download.kind == "str":
        return (*found, download.text.strip())
    words = value.fields["command"].text.lower().split()[:2] if "command" in value.fields else []
    return (*found, DOWNLOAD) if words == ["web", "download"] else tuple(found)


def produced(scope: Any, value: Value, at: str) -> dict[str, Words]:
    """The paths of the files that a command produces, by name."""
    found: dict[str, Words] = {}
    for name, one, line in scope.shape.named(value, at):
        _check_name(scope.shape, name, line, at)
        text = scope.shape.text(one, f"{at}.{name}").strip()
        _check_path(scope.shape, text, one.line, f"{at}.{name}")
        found[name] = scope.words(text, one.line, f"{at}.{name}")
    _bounded(scope.shape, value, at, len(found))
    return found


def taken(scope: Any, value: Value, at: str) -> dict[str, StepRef]:
    """The files of earlier steps that are put into the folder of a command, by path."""
    found: dict[str, StepRef] = {}
    for path, one, line in scope.shape.named(value, at):
        if scope.fixed(path, line, at):
            _check_path(scope.shape, path, line, at)
        ref = reference(scope, one, f"{at}.{path}")
        if ref is not None:
            found[path] = ref
    _bounded(scope.shape, value, at, len(found))
    return found


def reference(scope: Any, value: Value, at: str) -> StepRef | None:
    """A file of an earlier step; None, with a problem, if it is anything else."""
    text = scope.shape.text(value, at).strip()
    ref = scope.file(text, value.line, at) if text else None
    if text and ref is None:
        scope.shape.wrong(value.line, f"{at}: '{text[:60]}' is not a file.", _HOW, CODE)
    found: StepRef | None = ref
    return found


def upload(scope: Any, value: Value, at: str) -> StepRef | None:
    """The body of a request, as in `body: {file: $build.files.archive}`."""
    fields = scope.shape.closed(value, at, ("file",), ("file",))
    return reference(scope, fields["file"], f"{at}.file") if "file" in fields else None


def form(scope: Any, value: Value, at: str) -> tuple[FormField, ...]:
    """The parts of a form, each a text or a file."""
    shape: Shape = scope.shape
    found: list[FormField] = []
    for name, one, line in shape.named(value, at):
        scope.name(name, line, at)
        where = f"{at}.{name}"
        if one.kind != "map":
            text = one.text if one.kind in ("int", "float", "bool") else shape.text(one, where, empty=True)
            found.append(FormField(name, scope.words(text, one.line, where)))
            continue
        fields = shape.closed(one, where, ("file", "filename", "type"), ("file",))
        file = reference(scope, fields["file"], f"{where}.file") if "file" in fields else None
        more: dict[str, Any] = {key: _plain(scope, fields, key, where) for key in ("filename", "type") if key in fields}
        if more.get("type") and not _TYPE.fullmatch(more["type"]):
            fix = "Write a type such as application/gzip."
            shape.wrong(fields["type"].line, f"{where}.type '{more['type'][:60]}' is not a media type.", fix, CODE)
        found.append(FormField(name, file=file, **more))
    _bounded(shape, value, at, len(found))
    return tuple(found)


def download(scope: Any, value: Value, at: str) -> str:
    """The name of the file that a response is stored in."""
    name = scope.shape.text(value, at).strip()
    if name:
        _check_name(scope.shape, name, value.line, at)
    return str(name)


def _plain(scope: Any, fields: Mapping[str, Value], key: str, at: str) -> str:
    text = str(scope.shape.text(fields[key], f"{at}.{key}"))
    scope.fixed(text, fields[key].line, f"{at}.{key}")
    return text


def _check_name(shape: Shape, name: str, line: int, at: str) -> None:
    if not NAME.fullmatch(name):
        fix = "Use up to 64 letters, digits, - and _."
        shape.wrong(line, f"{at}: '{name[:60]}' is not a valid name for a file.", fix, CODE)


def _check_path(shape: Shape, path: str, line: int, at: str) -> None:
    if path.startswith(("/", "~")) or ".." in path.split("/") or "\0" in path or path.endswith("/"):
        shape.wrong(line, f"{at}: '{path[:60]}' is not the path of a file below the workspace.", "Correct it.", CODE)


def _bounded(shape: Shape, value: Value, at: str, count: int) -> None:
    if count > MOST:
        shape.wrong(value.line, f"{at} has more than {MOST} entries.", "List fewer.", CODE)
