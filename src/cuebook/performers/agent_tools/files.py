"""Read, Write and Edit: tools for text files in the workspace.

`paths` decides where a path leads; the gate decides what may be read or written.
"""

from __future__ import annotations

import asyncio
import difflib
from hashlib import sha256
from pathlib import Path
from typing import Any

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.errors import NotFound
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.tool import flag, number, parameters, text
from cuebook.performers.files.paths import TooLarge, name_inside, read_inside, read_named_inside, write_inside
from cuebook.performers.tools.toolbox import SimpleTool, Tool

FILE_LIMIT = 8 << 20
"""The maximum size in bytes of a file that is read or edited."""
LINES = 2_000
"""The number of lines that are shown by default."""
_LINE = 2_000
_PREFIX = 8_192
_PATH = {"file_path": "path"}


def relative(workspace: Path, given: str) -> str:
    """The path below the workspace. Models often pass the full path of a file they have seen."""
    for root in (str(workspace), str(workspace.resolve())):
        if given == root:
            return "."
        if given.startswith(f"{root}/"):
            return given[len(root) + 1 :]
    return given


def looks_binary(data: bytes) -> bool:
    return b"\0" in data[:_PREFIX]


class Files:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._writing = asyncio.Lock()

    def tools(self) -> list[Tool]:
        path = text("The file, relative to the workspace.", least=1)
        return [
            SimpleTool(
                ToolSpec(
                    "Read",
                    "Reads a text file in the workspace. Each line comes with its number.",
                    parameters(
                        ("path",),
                        path=path,
                        offset=number("The first line to show."),
                        limit=number(f"How many lines to show; {LINES} by default."),
                    ),
                ),
                self._read,
                self._describe_read,
                reads_only=True,
                idempotent=True,
                aliases=_PATH,
            ),
            SimpleTool(
                ToolSpec(
                    "Write",
                    "Writes a text file in the workspace: creates it and its folders, or replaces it entirely.",
                    parameters(("path", "content"), path=path, content=text("The whole text.")),
                ),
                self._write,
                self._describe_write,
                idempotent=True,
                aliases=_PATH,
            ),
            SimpleTool(
                ToolSpec(
                    "Edit",
                    "Replaces a piece of a text file. The piece must occur exactly once, unless all is set.",
                    parameters(
                        ("path", "old", "new"),
                        path=path,
                        old=text("The exact text in the file, without line numbers.", least=1),
                        new=text("The text that replaces it."),
                        all=flag("Whether to replace every occurrence."),
                    ),
                ),
                self._edit,
                self._describe_edit,
                aliases={**_PATH, "old_string": "old", "new_string": "new", "replace_all": "all"},
            ),
        ]

    # --- Read ---

    async def _describe_read(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        name = await asyncio.to_thread(name_inside, self._workspace, self._path(arguments))
        return Description((Action("file", f"read:{name}", True),), f"Read {name}", {"path": name})

    async def _read(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        given = self._path(arguments)
        try:
            data, name = await asyncio.to_thread(read_named_inside, self._workspace, given, FILE_LIMIT)
        except TooLarge:
            return _too_large(given)
        refused = call.permits(Action("file", f"read:{name}", True))
        if refused is not None:
            return refused
        content = _as_text(data, name)
        if isinstance(content, Failed):
            return content
        content = call.masked(content)
        return _numbered(content, name, arguments.get("offset", 1), arguments.get("limit", LINES), call.limits.output)

    # --- Write ---

    async def _describe_write(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        name, present = await asyncio.to_thread(self._present, self._path(arguments))
        before = None if present is None else _as_text(present, name)
        if isinstance(before, str):
            preview = {"path": name, "change": _diff(name, before, arguments["content"])}
        else:
            preview = {"path": name, "content": arguments["content"]}
            if present is not None:
                preview["replaces"] = f"{len(present)} bytes that are not text"
        verb = "Write" if present is None else "Replace"
        return _change(name, f"{verb} {name}", preview, present)

    async def _write(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        given, content = self._path(arguments), arguments["content"]
        try:
            data = content.encode()
        except UnicodeEncodeError:
            return Failed(
                "bad_arguments", "The content contains an unpaired surrogate.", fix="Use complete characters."
            )
        async with self._writing:
            name = await asyncio.to_thread(name_inside, self._workspace, given)
            refused = call.permits(Action("file", f"write:{name}"))
            if refused is not None:
                return refused
            await asyncio.to_thread(write_inside, self._workspace, name, data, parents=True)
        return ToolResult(f"Wrote {len(data)} bytes to {name}.")

    # --- Edit ---

    async def _describe_edit(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        given = self._path(arguments)
        name, present = await asyncio.to_thread(self._present, given)
        if present is None:
            return _not_there(given)
        edited = _edited(present, name, arguments)
        if isinstance(edited, Failed):
            return edited
        before, after, _ = edited
        return _change(name, f"Edit {name}", {"path": name, "change": _diff(name, before, after)}, present)

    async def _edit(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        given = self._path(arguments)
        async with self._writing:
            name, present = await asyncio.to_thread(self._present, given)
            if present is None:
                return _not_there(given)
            refused = call.permits(Action("file", f"write:{name}"))
            if refused is not None:
                return refused
            edited = _edited(present, name, arguments)
            if isinstance(edited, Failed):
                return edited
            _, after, count = edited
            await asyncio.to_thread(write_inside, self._workspace, name, after.encode())
        return ToolResult(f"Replaced {count} {'occurrence' if count == 1 else 'occurrences'} in {name}.")

    # --- internal ---

    def _path(self, arguments: dict[str, Any]) -> str:
        return relative(self._workspace, arguments["path"])

    def _present(self, given: str) -> tuple[str, bytes | None]:
        """The real name below the workspace, and the current content."""
        name = name_inside(self._workspace, given)
        try:
            return name, read_inside(self._workspace, name, FILE_LIMIT)
        except NotFound:
            return name, None
        except TooLarge as error:
            raise TooLarge(f"The file {name} has more than {FILE_LIMIT} bytes.", fix=error.fix) from None


def _change(name: str, summary: str, preview: dict[str, str], present: bytes | None) -> Description:
    """An approval is valid only for the file as it was shown."""
    seen = "" if present is None else sha256(present).hexdigest()
    return Description((Action("file", f"write:{name}"),), summary, preview, bound={"file": name, "content": seen})


def _as_text(data: bytes, name: str) -> str | Failed:
    if not looks_binary(data):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return Failed("binary_file", f"{name} is not a text file: it contains {len(data)} bytes of other data.")


def _numbered(content: str, name: str, offset: int, limit: int, size: int) -> ToolResult | Failed:
    lines = content.splitlines()
    if not lines:
        return ToolResult(f"[{name} is empty]")
    if offset > len(lines):
        return Failed("bad_arguments", f"{name} has only {len(lines)} lines, so there is no line {offset}.")
    shown: list[str] = []
    room = size - 200  # for the note
    for count, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        cut = line if len(line) <= _LINE else f"{line[:_LINE]} [cut: {len(line)} characters]"
        entry = f"{count:>6}\t{cut}"
        room -= len(entry.encode("utf-8", "replace")) + 1
        if room < 0 and shown:
            break
        shown.append(entry)
    last = offset + len(shown) - 1
    if offset > 1 or last < len(lines):
        more = f"; continue with offset {last + 1}" if last < len(lines) else ""
        shown.append(f"[lines {offset} to {last} of {len(lines)}{more}]")
    return ToolResult("\n".join(shown))


def _edited(present: bytes, name: str, arguments: dict[str, Any]) -> tuple[str, str, int] | Failed:
    """The text before and after, and how often the piece was replaced."""
    content = _as_text(present, name)
    if isinstance(content, Failed):
        return content
    old, new = arguments["old"], arguments["new"]
    if old == new:
        return Failed("bad_arguments", "The new text is the same as the old text.", fix="Use different text.")
    count = content.count(old)
    if count == 0:
        return _no_match(content, name, old)
    if count > 1 and not arguments.get("all", False):
        where = ", ".join(str(line) for line in _lines_of(content, old)[:10])
        return Failed(
            "ambiguous",
            f"The old text occurs {count} times in {name}, on lines {where}."
            " Include more of the surrounding text, or set all.",
        )
    after = content.replace(old, new)
    try:
        after.encode()
    except UnicodeEncodeError:
        return Failed("bad_arguments", "The new text contains an unpaired surrogate.", fix="Use complete characters.")
    return content, after, count


def _no_match(content: str, name: str, old: str) -> Failed:
    hint = "Read the file again and use its exact text."
    if "\r\n" in content and "\n" in old and "\r\n" not in old:
        hint = "The lines of the file end with \\r\\n: use the same line endings, or replace one line at a time."
    elif " ".join(old.split()) in " ".join(content.split()):
        hint = "It occurs with different whitespace or line endings: copy it exactly as it is in the file."
    return Failed("no_match", f"The old text does not occur in {name}. {hint}")


def _lines_of(content: str, piece: str) -> list[int]:
    lines, at = [], content.find(piece)
    while at >= 0:
        lines.append(content.count("\n", 0, at) + 1)
        at = content.find(piece, at + len(piece)) if len(lines) < 10 else -1
    return lines


def _diff(name: str, before: str, after: str) -> str:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if len(old) + len(new) > 20_000:
        # A diff takes too long for files of this size; the approval is bound to the whole text anyway.
        return f"{len(before)} characters in {len(old)} lines become {len(after)} in {len(new)}:\n{after}"
    lines = difflib.unified_diff(old, new, f"{name} (current)", f"{name} (new)")
    return (
        "".join(line if line.endswith("\n") else f"{line}\n[no newline at the end]\n" for line in lines)
        or "[no change]"
    )


def _not_there(given: str) -> Failed:
    return Failed("not_found", f"There is no file {given!a} in the workspace.", fix="Check the path, or use Write.")


def _too_large(given: str) -> Failed:
    return Failed("too_large", f"The file {given!a} has more than {FILE_LIMIT} bytes, which is too large to read.")
