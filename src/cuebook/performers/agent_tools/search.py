"""Glob and Grep: finding files and lines in the workspace, in bounded time and without following links.

Folders stay open while they are walked, so that a link swapped in during the walk cannot lead elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.files import looks_binary, relative
from cuebook.performers.agent_tools.gitignore import LARGEST, NAME, Rules, wildcard_at
from cuebook.performers.agent_tools.tool import HABITS, Halt, Halted, flag, in_worker, number, parameters, text
from cuebook.performers.files.paths import name_inside, open_inside
from cuebook.performers.tools.toolbox import SimpleTool, Tool

MOST_FILES = 1_000
"""The maximum number of files that Glob lists."""
MATCHES = 200
"""The number of lines that Grep shows by default."""
MOST_MATCHES = 2_000
_MOST_ENTRIES = 200_000
_FILE = 4 << 20
_SHOWN = 400
_SKIPPED = ".git"
_EXCLUDE = ".git/info/exclude"
_IGNORED = flag(f"Whether to include files that {NAME} excludes, such as those in node_modules.")
MODES = ("content", "files_with_matches", "count")
_AROUND = 20
"""The maximum number of lines of context before and after a match."""
_TYPES = {
    **{
        name: (name,)
        for name in ("c", "cs", "css", "go", "java", "json", "lua", "php", "sh", "sql", "swift", "toml", "xml")
    },
    **{"py": ("py", "pyi"), "js": ("js", "jsx", "mjs", "cjs"), "ts": ("ts", "tsx", "mts", "cts"), "rust": ("rs",)},
    **{"ruby": ("rb",), "cpp": ("cpp", "cc", "cxx", "h", "hpp"), "md": ("md",), "html": ("html", "htm")},
    **{"yaml": ("yml", "yaml"), "kotlin": ("kt", "kts"), "txt": ("txt",)},
}
"""The suffixes of the files of a type, under the names that models know."""
_LEFT_OUT = f"[files that {NAME} excludes were skipped; set ignored to include them]"


_FOLDER = dict.fromkeys(("directory", "dir_path", "folder", "target_directory"), "path")


class Finding:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def tools(self) -> list[Tool]:
        path = text("The folder to look in, relative to the workspace; by default the workspace itself.", least=1)
        return [
            SimpleTool(
                ToolSpec(
                    "Glob",
                    "Lists the files in the workspace whose paths match a pattern, such as `src/**/*.py`, sorted.",
                    parameters(
                        ("pattern",),
                        pattern=text("`*` matches part of a name, `**` any folders, `{a,b}` either.", least=1),
                        path=path,
                        ignored=_IGNORED,
                    ),
                ),
                self._glob,
                self._describe_glob,
                reads_only=True,
                idempotent=True,
                aliases={"glob_pattern": "pattern", **_FOLDER},
                unused=HABITS,
            ),
            SimpleTool(
                ToolSpec(
                    "Grep",
                    "Finds the lines of files in the workspace that match a regular expression (RE2).",
                    parameters(
                        ("pattern",),
                        pattern=text("The regular expression.", least=1),
                        path=text("A file or folder, relative to the workspace; by default all of it.", least=1),
                        glob=text("Search only files whose names or paths match, such as `*.py`.", least=1),
                        ignore_case=flag("Whether to ignore case."),
                        limit=number(f"How many lines to show; {MATCHES} by default."),
                        output_mode={
                            "type": "string",
                            "enum": list(MODES),
                            "description": "Show the matching lines (the default), only the files, or counts.",
                        },
                        before=number("How many lines to show before each match.", least=0),
                        after=number("How many lines to show after each match.", least=0),
                        around=number("How many lines to show before and after each match.", least=0),
                        type=text("Search only files of this type, such as `py` or `ts`.", least=1),
                        ignored=_IGNORED,
                    ),
                ),
                self._grep,
                self._describe_grep,
                reads_only=True,
                idempotent=True,
                aliases={
                    **dict.fromkeys(("-i", "case_insensitive"), "ignore_case"),
                    **dict.fromkeys(("head_limit", "max_results", "limit_matches"), "limit"),
                    **dict.fromkeys(("include", "include_pattern"), "glob"),
                    **dict.fromkeys(("regex", "query"), "pattern"),
                    **{"-B": "before", "-A": "after", "-C": "around", "context": "around"},
                    **_FOLDER,
                },
                # Line numbers are always shown.
                unused=HABITS | {"-n", "line_numbers"},
            ),
        ]

    async def _describe_glob(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        _fitting(arguments["pattern"])
        return await self._described(arguments, "List files")

    async def _describe_grep(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        expression(arguments["pattern"], ignore_case=False)
        _suffixes(arguments)
        return await self._described(arguments, "Search")

    async def _described(self, arguments: dict[str, Any], verb: str) -> Description:
        name = await asyncio.to_thread(name_inside, self._workspace, self._path(arguments))
        preview = {"pattern": arguments["pattern"], "path": name}
        if "glob" in arguments:
            preview["files"] = arguments["glob"]
        return Description((Action("file", f"read:{name}", True),), f"{verb} in {name}", preview)

    async def _glob(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        fits = _fitting(arguments["pattern"])
        within_git = _SKIPPED in arguments["pattern"].split("/")

        walk = _Walk(self._workspace, ignored=arguments.get("ignored", False), within_git=within_git)

        def work(halt: Halt) -> tuple[list[str], bool]:
            found, complete = [], True
            for entry in walk.entries(self._path(arguments), halt):
                if entry is None:
                    complete = False
                elif fits.fullmatch(entry.below):
                    found.append(entry.name)
            return sorted(found), complete

        done = await in_worker("Glob", call, work)
        if isinstance(done, Failed):
            return done
        found, complete = done
        shown = found[:MOST_FILES]
        if not found:
            shown.append("No file matches." if complete else "No file matches among those that were checked.")
        if len(found) > len(shown):
            shown.append(f"[{len(found) - MOST_FILES} more are left out; use a narrower pattern]")
        if found and not complete:
            shown.append(f"[only {_MOST_ENTRIES} entries were checked; name a folder]")
        if walk.left_out:
            shown.append(_LEFT_OUT)
        return ToolResult("\n".join(shown))

    async def _grep(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        wanted = expression(arguments["pattern"], ignore_case=arguments.get("ignore_case", False))
        glob = arguments.get("glob")
        fits = None if glob is None else _fitting(glob if "/" in glob else f"**/{glob}")
        suffixes = _suffixes(arguments)
        limit = min(arguments.get("limit", MATCHES), MOST_MATCHES)
        mode = arguments.get("output_mode", "content")
        around = arguments.get("around", 0)
        lines = (min(arguments.get("before", around), _AROUND), min(arguments.get("after", around), _AROUND))

        def permitted(name: str) -> bool:
            return call.permits(Action("file", f"read:{name}", True)) is None

        walk = _Walk(self._workspace, ignored=arguments.get("ignored", False))

        def work(halt: Halt) -> _Found:
            entries = walk.entries(self._path(arguments), halt)
            if suffixes:
                entries = (one for one in entries if one is None or one.file.rpartition(".")[2] in suffixes)
            found = _Found(mode, limit)
            self._search(entries, wanted, fits, permitted, call.masked, found, lines if mode == "content" else (0, 0))
            return found

        found = await in_worker("Grep", call, work)
        if isinstance(found, Failed):
            return found
        return found.result(left_out=walk.left_out)

    # --- internal ---

    def _path(self, arguments: dict[str, Any]) -> str:
        return relative(self._workspace, arguments.get("path", "."))

    def _search(
        self,
        entries: Iterator[_Entry | None],
        wanted: Any,
        fits: Any,
        permitted: Callable[[str], bool],
        masked: Callable[[str], str],
        found: _Found,
        around: tuple[int, int],
    ) -> None:
        """A file that must not be read is not searched either: reporting a match would reveal its content."""
        for entry in entries:
            if entry is None:
                found.complete = False
                break
            if fits is not None and not fits.fullmatch(entry.below):
                continue
            if not permitted(entry.name):
                continue
            data = entry.read()
            if data is None:
                found.too_large += 1
                continue
            if looks_binary(data):
                continue
            lines = data.removesuffix(b"\n").split(b"\n")
            shown = 0
            for count, line in enumerate(lines, 1):
                if wanted.search(line) is None:
                    continue
                if found.is_full(entry.name):
                    found.complete = False
                    return
                found.counts[entry.name] = found.counts.get(entry.name, 0) + 1
                first = max(shown, count - 1 - around[0])
                if around != (0, 0) and shown and first > shown:
                    found.lines.append("--")
                for at in range(first, min(len(lines), count + around[1])):
                    # Masked before it is cut, because half a secret is not recognised.
                    whole = masked(lines[at].decode("utf-8", "replace").rstrip("\r"))
                    mark = ":" if at == count - 1 or wanted.search(lines[at]) is not None else "-"
                    said = whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]} [cut]"
                    found.lines.append(f"{entry.name}:{at + 1}{mark} {said}")
                    shown = at + 1


class _Walk:
    """Walks the files of the workspace, except for those that git ignores."""

    def __init__(self, workspace: Path, *, ignored: bool, within_git: bool = False) -> None:
        self._workspace = workspace
        self._ignored, self._within_git = ignored, within_git
        self.left_out = False
        """Whether anything was left out."""

    def entries(self, given: str, halt: Halt) -> Iterator[_Entry | None]:
        """The regular files below a folder, or the file itself. Yields None at the end if there are too many."""
        name = name_inside(self._workspace, given)
        whole = (self._workspace / name).resolve()
        if not whole.is_dir():
            fd = open_inside(self._workspace, name, os.O_RDONLY)
            os.close(fd)
            folder, file = os.path.split(name)
            top = open_inside(self._workspace, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                yield _Entry(name, file, top, file)
            finally:
                os.close(top)
            return
        prefix = "" if name == "." else f"{name}/"
        top = open_inside(self._workspace, name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield from self._below(top, prefix, halt)
        except RecursionError:
            yield None
        except Halted:
            return
        finally:
            os.close(top)

    def _below(self, top: int, prefix: str, halt: Halt) -> Iterator[_Entry | None]:
        left = _MOST_ENTRIES
        rules = {prefix: self._rules_above(prefix)}
        for path, folders, files, folder_fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            halt.check()
            inner = "" if path == "." else f"{path.removeprefix('./')}/"
            here = f"{prefix}{inner}"
            held = rules.pop(here)
            if NAME in files and not self._ignored:
                held = held.within(here, _text_of(NAME, folder_fd))
            kept = [folder for folder in sorted(folders) if self._within_git or folder != _SKIPPED]
            folders[:] = [folder for folder in kept if not self._leaves_out(held, f"{here}{folder}", is_folder=True)]
            rules |= {f"{here}{folder}/": held for folder in folders}
            for file in sorted(files):
                halt.check()
                left -= 1
                if left < 0:
                    yield None
                    return
                if _is_file(file, folder_fd) and not self._leaves_out(held, f"{here}{file}", is_folder=False):
                    yield _Entry(f"{here}{file}", f"{inner}{file}", folder_fd, file)

    def _leaves_out(self, rules: Rules, name: str, *, is_folder: bool) -> bool:
        out = not self._ignored and rules.leaves_out(name, is_folder=is_folder)
        self.left_out = self.left_out or out
        return out

    def _rules_above(self, prefix: str) -> Rules:
        """The rules of the folders above; none if the folder itself is ignored, since it was requested explicitly."""
        if self._ignored:
            return Rules()
        rules = self._excluded()
        if not prefix:
            return rules
        folder = ""
        for part in prefix[:-1].split("/"):
            try:
                fd = open_inside(self._workspace, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
            except (OSError, CuebookError):
                return Rules()
            try:
                rules = rules.within(folder, _text_of(NAME, fd))
            finally:
                os.close(fd)
            folder += f"{part}/"
            if rules.leaves_out(folder[:-1], is_folder=True):
                return Rules()
        return rules

    def _excluded(self) -> Rules:
        """The rules that git keeps outside the tree. Those of the tree take precedence."""
        folder, _, name = _EXCLUDE.rpartition("/")
        try:
            fd = open_inside(self._workspace, folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, CuebookError):
            return Rules()
        try:
            return Rules().within("", _text_of(name, fd))
        finally:
            os.close(fd)


class _Entry(msgspec.Struct, frozen=True):
    """A file found during the walk, valid as long as its folder is open."""

    name: str
    """The path relative to the workspace."""
    below: str
    """The path relative to the searched folder."""
    folder: int
    file: str

    def read(self) -> bytes | None:
        """The content; None if it is too large, and empty if it cannot be read."""
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.folder)
        except OSError:
            return b""
        with os.fdopen(fd, "rb", buffering=0) as opened:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            data = bytearray()
            while len(data) <= _FILE and (piece := opened.read(1 << 20)):
                data += piece
        return None if len(data) > _FILE else bytes(data)


class _Found:
    def __init__(self, mode: str, limit: int) -> None:
        self._mode, self._limit = mode, limit
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}
        """How many lines match, by file."""
        self.complete = True
        self.too_large = 0

    def is_full(self, name: str) -> bool:
        """Whether another matching line of this file would exceed the limit."""
        if self._mode == "content":
            return sum(self.counts.values()) >= self._limit
        return name not in self.counts and len(self.counts) >= self._limit

    def result(self, *, left_out: bool) -> ToolResult:
        shown = {
            "content": self.lines,
            "files_with_matches": list(self.counts),
            "count": [f"{name}:{count}" for name, count in self.counts.items()],
        }[self._mode]
        if not shown:
            shown = ["No line matches."]
        if not self.complete:
            what = "lines" if self._mode == "content" else "files"
            shown.append(f"[there are more than these {self._limit} {what}; narrow the search]")
        if self.too_large:
            shown.append(f"[{self.too_large} files larger than {_FILE} bytes were not searched]")
        if left_out:
            shown.append(_LEFT_OUT)
        return ToolResult("\n".join(shown))


def _text_of(name: str, folder: int) -> str:
    """The text of a small file; empty if it cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    with os.fdopen(fd, "rb", buffering=0) as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return (opened.read(LARGEST) or b"").decode("utf-8", "replace")


def _is_file(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


class BadPattern(BadInput):
    """The pattern cannot be used."""

    code = "bad_pattern"


def _suffixes(arguments: dict[str, Any]) -> tuple[str, ...]:
    """The suffixes of the requested type of files; empty for all files."""
    kind = arguments.get("type")
    if kind is None:
        return ()
    kind = str(kind).lower().lstrip(".")
    if kind in _TYPES:
        return _TYPES[kind]
    if any(kind in suffixes for suffixes in _TYPES.values()):
        return (kind,)
    raise BadPattern(f"Unknown file type {kind[:40]!a}.", fix="Use `glob` instead, as in `*.txt`.")


def expression(pattern: str, *, ignore_case: bool) -> Any:
    """Compiles a pattern so that matching takes linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern.encode("utf-8", "replace"), options)
    except re2.error as error:
        why = (
            error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise BadPattern(
            f"{pattern[:200]!a} is not a usable regular expression: {why}.",
            fix="Use RE2 syntax: no look-around and no back-references.",
        ) from None


def _fitting(pattern: str) -> Any:
    """A glob as a regular expression for paths."""
    import re2

    parts = pattern.removeprefix("./").split("/")
    if pattern.startswith("/") or ".." in parts or "\0" in pattern:
        raise BadPattern(
            f"The pattern {pattern[:200]!a} leads out of the folder.", fix="Use a pattern relative to the folder."
        )
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_translated("/".join(parts)), options)
    except re2.error:
        raise BadPattern(
            f"{pattern[:200]!a} is not a valid pattern.", fix="Use names with *, **, ?, [a-z] and {a,b}."
        ) from None


def _translated(pattern: str) -> str:
    import re2

    made, at, depth = [], 0, 0
    while at < len(pattern):
        rest = pattern[at:]
        sign = rest[0]
        step = 1
        if rest.startswith("**/"):
            made.append("(?:[^/]*/)*")
            step = 3
        elif rest.startswith("**"):
            made.append("(?s:.*)")
            step = 2
        elif wildcard := wildcard_at(rest):
            part, step = wildcard
            made.append(part)
        elif sign == "{" and "}" in rest:
            made.append("(?:")
            depth += 1
        elif sign == "}" and depth:
            made.append(")")
            depth -= 1
        elif sign == "," and depth:
            made.append("|")
        else:
            made.append(re2.escape(sign))
        at += step
    return "".join(made)
