"""The capability `files`: reads, lists and writes files below the folders that the owner of the machine names."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.node.capabilities.capability import Action, BadArguments, Capability, NotAllowed, Result, Work
from cuebook.performers.files.decoding import is_text
from cuebook.performers.files.paths import (
    OutsideRoot,
    TooLarge,
    inside,
    open_inside,
    parts_of,
    read_inside,
    write_inside,
)
from cuebook.performers.nodes.protocol import MAX_OUTPUT

MOST_ENTRIES = 2_000

_PATH = {"path": {"type": "string", "minLength": 1}}
_READ = {"type": "object", "properties": _PATH, "required": ["path"], "additionalProperties": False}
_LIST = {"type": "object", "properties": _PATH, "additionalProperties": False}
_WRITE = {
    "type": "object",
    "properties": {**_PATH, "text": {"type": "string"}, "base64": {"type": "string"}},
    "required": ["path"],
    "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
    "additionalProperties": False,
}


class Root(msgspec.Struct, frozen=True):
    """A folder that is offered."""

    path: Path
    """Absolute, without links."""
    writable: bool = False

    @classmethod
    def parse(cls, given: str, where: str) -> Root:
        """From `DIR` or `DIR:rw`."""
        text, writable = (given[:-3], True) if given.endswith(":rw") else (given, False)
        path = Path(text).expanduser()
        if not text or not path.is_dir():
            raise BadInput(f"{where}: {text or given} is not a folder.", fix="Write DIR, or DIR:rw to allow writing.")
        return cls(Path(os.path.realpath(path)), writable)


def capability(roots: Sequence[Root]) -> Capability:
    files = _Files(roots)
    below = ", ".join(f"{root.path}{' (also written)' if root.writable else ''}" for root in roots)
    reading = Action(
        "read", f"Reads a file below {below}", files.read, _READ, reads_only=True, idempotent=True, check=files.check
    )
    listing = Action(
        "list", f"Lists a folder below {below}", files.list, _LIST, reads_only=True, idempotent=True, check=files.check
    )
    if not any(root.writable for root in roots):
        return Capability("files", (reading, listing))
    written = ", ".join(str(root.path) for root in roots if root.writable)
    writing = Action(
        "write", f"Writes a whole file below {written}", files.write, _WRITE, idempotent=True, check=files.check_writing
    )
    return Capability("files", (reading, listing, writing))


class _Files:
    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(roots)

    async def check(self, arguments: dict[str, Any]) -> None:
        root, below = self._place(arguments.get("path", "."))
        await _allowed(lambda: inside(root.path, below))

    async def check_writing(self, arguments: dict[str, Any]) -> None:
        root, _ = self._place(arguments["path"])
        if not root.writable:
            raise NotAllowed(
                f"This node does not allow writing below {root.path}.", fix=f"Its owner can: --files {root.path}:rw."
            )
        await self.check(arguments)
        _content(arguments)

    async def read(self, arguments: dict[str, Any], work: Work) -> Result:
        root, below = self._place(arguments["path"])
        most = min(work.max_output, MAX_OUTPUT)
        try:
            data = await _allowed(lambda: read_inside(root.path, below, most))
        except TooLarge as error:
            raise TooLarge(error.message, fix="Allow the step more output, or read a smaller file.") from None
        if is_text(data) and b"\0" not in data:
            return Result(data.decode())
        path = str(root.path / below)
        return Result(value={"path": path, "size": len(data), "base64": base64.b64encode(data).decode()})

    async def list(self, arguments: dict[str, Any], work: Work) -> Result:
        root, below = self._place(arguments.get("path", "."))
        entries = await _allowed(lambda: _entries(root.path, below))
        shown = entries[:MOST_ENTRIES]
        return Result(value=shown, cut=len(entries) > len(shown))

    async def write(self, arguments: dict[str, Any], work: Work) -> Result:
        root, below = self._place(arguments["path"])
        data = _content(arguments)
        await _allowed(lambda: write_inside(root.path, below, data, parents=True))
        return Result(value={"path": str(root.path / below), "size": len(data)})

    def _place(self, given: str) -> tuple[Root, str]:
        """The folder that a path is below, and the path relative to it."""
        if not given.startswith("/"):
            if len(self._roots) > 1:
                raise BadArguments(
                    f"{given[:200]!a} is not a full path.",
                    fix=f"This node offers several folders: {', '.join(str(root.path) for root in self._roots)}.",
                )
            _parts(given)
            return self._roots[0], given
        parts = _parts(given.lstrip("/") or ".")
        path = Path("/", *parts)
        fitting = [root for root in self._roots if path == root.path or root.path in path.parents]
        if not fitting:
            raise NotAllowed(
                f"This node does not offer {given[:200]!a}.",
                fix=f"It offers {', '.join(str(root.path) for root in self._roots)}.",
            )
        root = max(fitting, key=lambda one: len(one.path.parts))
        return root, str(path.relative_to(root.path))


def _parts(given: str) -> tuple[str, ...]:
    try:
        return parts_of(given)
    except OutsideRoot as refused:
        raise NotAllowed(refused.message, fix=refused.fix) from None


async def _allowed(work: Any) -> Any:
    try:
        return await asyncio.to_thread(work)
    except OutsideRoot as refused:
        raise NotAllowed(refused.message, fix=refused.fix) from None


def _entries(root: Path, below: str) -> list[dict[str, Any]]:
    folder = open_inside(root, below, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(folder) as entries:
            return sorted((_entry(one) for one in entries), key=lambda one: one["name"])
    finally:
        os.close(folder)


def _entry(found: os.DirEntry[str]) -> dict[str, Any]:
    status = found.stat(follow_symlinks=False)
    kinds = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
    name = os.fsencode(found.name).decode("utf-8", "replace")
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return {"name": name, "kind": kind, "size": status.st_size, "modified": int(status.st_mtime)}


def _content(arguments: dict[str, Any]) -> bytes:
    """What is to be written. A message of the protocol limits its size."""
    try:
        if "base64" in arguments:
            return base64.b64decode(arguments["base64"], validate=True)
        return bytes(arguments["text"].encode())
    except (binascii.Error, ValueError):
        raise BadArguments("`base64` is not base64, or `text` is not text.", fix="Correct it.") from None
