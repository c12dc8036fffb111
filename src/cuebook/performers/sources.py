"""The performer of `ReadSource`: reads text from files below a root, from the prompt library, from URLs and from tool
servers, and lists tools.

It finds a source and checks that it is text. The HTTP performer sends the requests; tools, skills and prompts come
from the objects that are passed in.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import ReadSource, SendHttp, ServerSpec, ToolSpec
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Call, Description, Trust
from cuebook.kernel.run import Settings
from cuebook.performers.files.neighbours import did_you_mean
from cuebook.performers.files.paths import name_inside, parts_of, read_named_inside
from cuebook.performers.http.performer import Fetched, HttpPerformer

MAX_BYTES = 2_000_000
PAUSES = (0.25, 1.0)
"""Seconds to wait before each retry after a server error."""

PROMPT_SUFFIXES = (".md", ".txt")

ListTools = Callable[[str], Awaitable[Sequence[ToolSpec] | Failed]]
"""Returns the tools whose names match a pattern. It starts only approved servers."""


class BroughtTools(Protocol):
    """The tools of servers that playbooks bring along."""

    async def describe_server(self, server: ServerSpec) -> Description | Failed:
        """The actions of listing the tools. Nothing is started."""

    async def trusts(self, name: str) -> tuple[Trust, ...]:
        """The approvals that are required before a tool with this name is listed."""

    async def specs(self, pattern: str, server: ServerSpec) -> Sequence[ToolSpec] | Failed: ...


class SkillSource(Protocol):
    """The content of skills, each as JSON."""

    async def describe(self, skill: str, settings: Settings) -> Description | Failed: ...

    async def read(self, skill: str, call: Call) -> Source | Failed: ...


class ServedPrompts(Protocol):
    """Prompts that tool servers offer, each as `server/name`."""

    async def describe(self, given: str) -> Description | Failed:
        """The actions of reading the prompt. Nothing is started."""

    async def read(self, given: str, call: Call) -> str | Failed: ...


_MOST_COMPARED = 2_000
"""The maximum number of names to compare a missing name with."""
_TEXTUAL = ("json", "xml", "yaml", "javascript", "ecmascript", "toml", "markdown", "csv", "graphql", "x-sh", "sql")


class SourcePerformer:
    """Reads text. It looks for a file in each root and for a prompt in each library folder; the first match counts."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        http: HttpPerformer,
        prompts: Sequence[Path] = (),
        tools: ListTools | None = None,
        brought: BroughtTools | None = None,
        skills: SkillSource | None = None,
        served: ServedPrompts | None = None,
        unfit: Callable[[Path], Failed | None] = lambda folder: None,
        max_bytes: int = MAX_BYTES,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        """`unfit` returns the reason why no files may be read in a playbook's folder, if there is one."""
        self._roots = tuple(roots)
        self._http = http
        self._prompts = tuple(prompts)
        self._tools = tools
        self._brought = brought
        self._skills = skills
        self._served = served
        self._unfit = unfit
        self._max_bytes = max_bytes
        self._pauses = tuple(pauses)

    async def describe(self, effect: ReadSource, settings: Settings) -> Description | Failed:
        scheme, rest = _split(effect.source)
        try:
            match scheme:
                case "file":
                    return await asyncio.to_thread(self._describe_file, rest, settings)
                case "prompt":
                    return await asyncio.to_thread(self._describe_prompt, rest)
                case "http" | "https":
                    return await self._http.describe(_get(effect.source), settings)
                case "skill" if self._skills is not None:
                    return await self._skills.describe(rest, settings)
                case "tools" if effect.server is not None and self._brought is not None:
                    return await self._brought.describe_server(effect.server)
                case "mcp" if self._served is not None:
                    return await self._served.describe(rest)
                case "tools":
                    trusts = () if self._brought is None else await self._brought.trusts(rest)
                    listing = (Action("tool", rest, True),)
                    return Description(listing, f"List the tools {rest}", trusts=trusts, harmless=True)
        except BadInput as refused:
            return Failed.of(refused)
        return _unknown_scheme(effect.source)

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        scheme, rest = _split(effect.source)
        try:
            match scheme:
                case "file":
                    data, name = await asyncio.to_thread(self._read_file, rest, call.settings)
                    return _refusal(name, rest, call) or _source(data, f"The file {name}")
                case "prompt":
                    data, action = await asyncio.to_thread(self._read_prompt, rest)
                    # A link may have been swapped in since it was described: what counts is the file that was opened.
                    return call.permits(action) or _source(data, f"The prompt {rest}")
                case "http" | "https":
                    return await self._read_url(effect.source, call)
                case "skill" if self._skills is not None:
                    return await self._skills.read(rest, call)
                case "tools" if effect.server is not None and self._brought is not None:
                    return _listed(await self._brought.specs(rest, effect.server))
                case "mcp" if self._served is not None:
                    return self._served_source(await self._served.read(rest, call), f"The prompt {rest}")
                case "tools":
                    return await self._list_tools(rest)
        except BadInput as refused:
            return Failed.of(refused)
        return _unknown_scheme(effect.source)

    # --- files ---

    def _describe_file(self, given: str, settings: Settings) -> Description:
        roots = self._roots_of(settings)
        for root in roots:
            name = _existing(root, given)
            if name:
                return Description(
                    (Action("file", f"read:{name}", True),),
                    f"Read the file {name}",
                    preview={"file": str(root / name)},
                    bound={"root": str(root), "file": name},
                )
        parts_of(given)
        raise _missing(given, roots)

    def _read_file(self, given: str, settings: Settings) -> tuple[bytes, str]:
        roots = self._roots_of(settings)
        for root in roots:
            try:
                return read_named_inside(root, given, self._max_bytes)
            except NotFound:
                continue
        raise _missing(given, roots)

    def _roots_of(self, settings: Settings) -> tuple[Path, ...]:
        """The playbook's own folder if it has one, otherwise the configured roots."""
        if not settings.folder:
            return self._roots
        folder = Path(settings.folder)
        problem = self._unfit(folder)
        if problem is not None:
            raise NoFolder(problem.message, fix=problem.fix)
        return (folder,)

    # --- prompts ---

    def _describe_prompt(self, given: str) -> Description:
        folder, path = self._found_prompt(given)
        name = name_inside(folder, path)
        return Description(
            (self._reading(folder, name),),
            f"Read the prompt {given}",
            preview={"file": os.path.realpath(folder / name)},
            bound={"root": str(folder), "file": name},
        )

    def _read_prompt(self, given: str) -> tuple[bytes, Action]:
        folder, path = self._found_prompt(given)
        data, name = read_named_inside(folder, path, self._max_bytes)
        return data, self._reading(folder, name)

    def _reading(self, library: Path, name: str) -> Action:
        """The action of reading the file. Its path is relative to the root that contains it, as for any other file."""
        real = os.path.join(os.path.realpath(library), name)
        for root in map(os.path.realpath, self._roots):
            if real.startswith(root.rstrip(os.sep) + os.sep):
                return Action("file", f"read:{os.path.relpath(real, root)}", True)
        # Only the user, never a project, can configure a library elsewhere. Policies refer to it as `prompts`.
        return Action("file", f"read:prompts/{name}", True)

    def _found_prompt(self, given: str) -> tuple[Path, str]:
        """The library's folder and the file below it."""
        name = "/".join(parts_of(given))
        known: dict[str, tuple[Path, str]] = {}
        for folder in self._prompts:
            for path in sorted(_files(folder)):
                stem, dot, suffix = path.rpartition(".")
                if f"{dot}{suffix}" in PROMPT_SUFFIXES:
                    known.setdefault(stem, (folder, path))
        if name in known:
            return known[name]
        folders = " or ".join(str(folder) for folder in self._prompts) or "any folder: none is configured"
        near = did_you_mean(name, sorted(known))
        raise NotFound(
            f"There is no prompt {name[:200]!a} in {folders}.",
            fix=near or f"Save it as {name[:200]}{PROMPT_SUFFIXES[0]} in the prompt library.",
        )

    # --- URLs, tool servers and tools ---

    def _served_source(self, text: str | Failed, what: str) -> Source | Failed:
        if isinstance(text, Failed):
            return text
        data = text.encode("utf-8", "replace")
        if len(data) > self._max_bytes:
            return _too_large(what, self._max_bytes)
        return _source(data, what)

    async def _read_url(self, url: str, call: Call) -> Source | Failed:
        fetched = await self._fetched(url, call)
        if isinstance(fetched, Failed):
            return fetched
        incoming, where = fetched.incoming, fetched.url.place
        if incoming.status != 200:
            return Failed(
                "http_status",
                f"{where} answered with status {incoming.status}.",
                fix="Check the URL, and whether it can be read without signing in.",
                retryable=incoming.status in (408, 429) or incoming.status >= 500,
                details={"status": incoming.status},
            )
        if incoming.truncated:
            return _too_large(where, self._max_bytes)
        kind = incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and not kind.startswith("text/") and not any(word in kind for word in _TEXTUAL):
            return Failed("not_text", f"{where} is not text but {kind[:80]!a}.", fix="Use a text source.")
        try:
            content = Text(fetched.text(errors="strict"))
        except UnicodeDecodeError:
            return _not_text(where)
        return Source(content, sha256(incoming.body).hexdigest())

    async def _fetched(self, url: str, call: Call) -> Fetched | Failed:
        """The server's response. The request is retried after a server error."""
        fetched = await self._http.fetch(_get(url), call, self._max_bytes)
        for pause in self._pauses:
            if isinstance(fetched, Failed) or fetched.incoming.status < 500:
                break
            await asyncio.sleep(pause)
            fetched = await self._http.fetch(_get(url), call, self._max_bytes)
        return fetched

    async def _list_tools(self, pattern: str) -> Source | Failed:
        if self._tools is None:
            return Failed("no_tools", "No tools are configured here.", fix="Configure a tool server first.")
        return _listed(await self._tools(pattern))


class NoFolder(BadInput):
    """No files may be read in the playbook's folder."""

    code = "no_workspace"


def _listed(tools: Sequence[ToolSpec] | Failed) -> Source | Failed:
    if isinstance(tools, Failed):
        return tools
    content = Text(msgspec.json.encode(tools).decode())
    return Source(content, content.digest)


def _missing(given: str, roots: Sequence[Path]) -> NotFound:
    where = " or ".join(str(root) for root in roots) or "any root: none is configured"
    near = did_you_mean(given, [path for root in roots for path in islice(_files(root), _MOST_COMPARED)])
    return NotFound(f"There is no file {given[:200]!a} in {where}.", fix=near or "Check the path.")


def _split(source: str) -> tuple[str, str]:
    scheme, colon, rest = source.partition(":")
    return (scheme.lower(), rest) if colon else ("", source)


def _existing(root: Path, given: str) -> str:
    """The real name of a file below the root; empty if there is none."""
    try:
        name = name_inside(root, given)
    except NotFound:
        return ""
    return name if (root / name).exists() else ""


def _get(url: str) -> SendHttp:
    return SendHttp("GET", url, reads_only=True)


def _refusal(name: str, given: str, call: Call) -> Failed | None:
    """A link may have been swapped in since the file was described: what counts is the name that was opened."""
    if name == "/".join(parts_of(given)):
        return None
    return call.permits(Action("file", f"read:{name}", True))


def _source(data: bytes, what: str) -> Source | Failed:
    try:
        return Source(Text(data.decode().removeprefix("\ufeff")), sha256(data).hexdigest())
    except UnicodeDecodeError:
        return _not_text(what)


def _not_text(what: str) -> Failed:
    return Failed("not_text", f"{what} is not UTF-8 text.", fix="Convert it to UTF-8 first.")


def _too_large(what: str, limit: int) -> Failed:
    return Failed("too_large", f"{what} is longer than {limit} bytes.", fix="Read a smaller source.")


def _unknown_scheme(source: str) -> Failed:
    return Failed(
        "bad_source",
        f"The source {source[:200]!a} cannot be read.",
        fix="Use file:PATH, https://..., prompt:NAME, mcp:SERVER/NAME, skill:ID or tools:NAME.",
    )


def _files(root: Path) -> Iterator[str]:
    """The paths below the root, without hidden files and folders."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(folder, name).relative_to(root).as_posix()
