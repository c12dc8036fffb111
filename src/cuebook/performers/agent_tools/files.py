"""Read, Write and Edit: tools for text files in the workspace, and for reading images and PDFs.

`paths` decides where a path leads; the gate decides what may be read or written.
"""

from __future__ import annotations

import asyncio
import difflib
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from cuebook.kernel.context import Attachment, Text
from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.tool import HABITS, flag, number, parameters, text
from cuebook.performers.files.paths import TooLarge, name_inside, read_inside, read_named_inside, write_inside
from cuebook.performers.tools.toolbox import SimpleTool, Tool

FILE_LIMIT = 8 << 20
"""The maximum size in bytes of a file that is read or edited."""
LINES = 2_000
"""The number of lines that are shown by default."""
IMAGE_LIMIT = 3_750_000
"""The maximum size in bytes of an image: providers accept 5 MB of base64."""
PDF = "application/pdf"
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": PDF,
}
_LINE = 2_000
_PREFIX = 8_192
_PATH = dict.fromkeys(("file_path", "filepath", "filename", "file", "target_file"), "path")


class BadArguments(BadInput):
    """The arguments cannot be used."""

    code = "bad_arguments"


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
                    "Reads a text file in the workspace, each line with its number; or an image or a PDF, if you can see them.",
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
                aliases={**_PATH, "start_line": "offset", "line_count": "limit"},
                unused=HABITS,
            ),
            SimpleTool(
                ToolSpec(
                    "Write",
                    "Writes a text file in the workspace: creates it and its folders, or replaces it entirely. Write a long"
                    " file in parts: first without append_at, then each part with the size that the last result reported.",
                    parameters(
                        ("path", "content"),
                        path=path,
                        content=text("The whole text, or the next part."),
                        append_at=number(
                            "Append instead of replacing: the size of the file in bytes, as the last result reported it.",
                            least=0,
                        ),
                    ),
                ),
                self._write,
                self._describe_write,
                idempotent=True,
                aliases={**_PATH, **dict.fromkeys(("contents", "text", "file_text"), "content")},
                unused=HABITS,
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
                aliases={
                    **_PATH,
                    **dict.fromkeys(("old_string", "old_str", "old_text"), "old"),
                    **dict.fromkeys(("new_string", "new_str", "new_text"), "new"),
                    "replace_all": "all",
                },
                unused=HABITS,
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
        media_type = media_type_of(data)
        if media_type:
            return _attached(data, name, media_type)
        content = _as_text(data, name)
        if isinstance(content, Failed):
            return content
        content = call.masked(content)
        return _numbered(content, name, arguments.get("offset", 1), arguments.get("limit", LINES), call.limits.output)

    # --- Write ---

    async def _describe_write(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        name, present = await asyncio.to_thread(self._present, self._path(arguments))
        if "append_at" in arguments:
            appended = _appended(present or b"", name, arguments["append_at"], _data(arguments["content"]))
            if isinstance(appended, Failed):
                return appended
            preview = {"path": name, "appends": arguments["content"], "at": f"byte {arguments['append_at']:,}"}
            return _change(name, f"Append to {name}", preview, present)
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
        data = _data(arguments["content"])
        if "append_at" in arguments:
            return await self._append(arguments, data, call)
        async with self._writing:
            name = await asyncio.to_thread(name_inside, self._workspace, self._path(arguments))
            refused = call.permits(Action("file", f"write:{name}"))
            if refused is not None:
                return refused
            await asyncio.to_thread(write_inside, self._workspace, name, data, parents=True)
        return ToolResult(f"Wrote {len(data)} bytes to {name}.")

    async def _append(self, arguments: dict[str, Any], data: bytes, call: Call) -> ToolResult | Failed:
        """Appends a part at a given size, so that a part which is written twice is there once."""
        async with self._writing:
            name, present = await asyncio.to_thread(self._present, self._path(arguments))
            refused = call.permits(Action("file", f"write:{name}"))
            if refused is not None:
                return refused
            whole = _appended(present or b"", name, arguments["append_at"], data)
            if isinstance(whole, Failed):
                return whole
            if whole != present:
                await asyncio.to_thread(write_inside, self._workspace, name, whole, parents=True)
        said = f"Appended {len(data)} bytes to {name}" if whole != present else f"{name} already has this part"
        return ToolResult(f"{said}. It has {len(whole)} bytes now; append the next part at {len(whole)}.")

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


def _data(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise BadArguments("The content contains an unpaired surrogate.", fix="Use complete characters.") from None


def _appended(present: bytes, name: str, at: int, data: bytes) -> bytes | Failed:
    """The content with the part at that position, which is its end unless the part is already there."""
    if len(present) == at:
        whole = present + data
        if len(whole) > FILE_LIMIT:
            return Failed("too_large", f"{name} would have more than {FILE_LIMIT} bytes.", fix="Write another file.")
        return whole
    if present[at:] == data and at < len(present):
        return present
    return Failed(
        "bad_arguments",
        f"{name} has {len(present)} bytes, not {at}, so the part was not appended.",
        fix=f"Read its end, then append at {len(present)} what is missing.",
    )


def _as_text(data: bytes, name: str) -> str | Failed:
    if not looks_binary(data):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return Failed("binary_file", f"{name} is not a text file: it contains {len(data)} bytes of other data.")


def media_type_of(data: bytes) -> str:
    """The type of an image or a PDF, by its first bytes; empty for all other files."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _MAGIC.items() if data.startswith(start)), "")


def _attached(data: bytes, name: str, media_type: str) -> ToolResult | Failed:
    most = FILE_LIMIT if media_type == PDF else IMAGE_LIMIT
    if len(data) > most:
        return Failed("too_large", f"{name} has {len(data):,} bytes; at most {most:,} can be sent to a model.")
    what = "PDF document" if media_type == PDF else f"image ({media_type})"
    file = Attachment(media_type, Text(b64encode(data).decode()), name)
    return ToolResult(f"[{name}: {what}, {len(data):,} bytes]", attachments=(file,))


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
