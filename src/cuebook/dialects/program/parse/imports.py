"""Replaces `!import path` with the text of another file, indented like the line. The caller reads the files.

A run stores the program as a single string, so imports are resolved before it starts. A program with unresolved imports
cannot be parsed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.kernel.errors import CuebookError

DEEPEST = 10
LARGEST = 1_048_576
"""Maximum size of one file in bytes."""
LARGEST_WHOLE = 4_000_000
"""Maximum length of the whole text in characters."""
MOST_FILES = 1_000
"""The maximum number of imports; a file imported twice counts twice."""
_WORD = "!import"
_IMPORT = re.compile(r"(?P<indent>[ \t]*+)!import[ \t]++(?P<path>[^#\n]*+)(?:#.*)?")
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]++://")

Read = Callable[[str], str]
"""Returns the text of a file by its path, relative to the program's folder. Raises `CuebookError` if it is missing or
not allowed."""


class Origin(msgspec.Struct, frozen=True):
    """The origin of a line."""

    line: int
    """The line in the program; for imported lines, the line of the import."""
    file: str = ""
    """The imported file; empty for a line of the program itself."""
    line_there: int = 0


class Resolved(msgspec.Struct, frozen=True):
    text: str
    origins: tuple[Origin, ...] = ()
    """One for each line of the text; empty if nothing was imported."""

    def place(self, line: int | None) -> tuple[int | None, str]:
        """The program line that a line of the text comes from, and a message prefix that names the imported file."""
        if line is None or not self.origins:
            return line, ""
        origin = self.origins[min(line, len(self.origins)) - 1]
        return origin.line, f"{origin.file}:{origin.line_there}: " if origin.file else ""

    def located(self, problem: Problem) -> Problem:
        line, where = self.place(problem.line)
        return msgspec.structs.replace(problem, line=line, message=f"{where}{problem.message}")


def unread(text: str) -> list[Problem]:
    """The problems in a program that still has imports."""
    if _WORD not in text:
        return []
    fix = "Run the program from its file, or replace the line with the text of that file."
    return [
        Problem(f"The import of '{found['path'].strip()}' was not resolved.", number, fix, "IMPORT")
        for number, _, found in _lines(text)
        if found is not None
    ]


def resolved(text: str, name: str, read: Read) -> Resolved:
    """Return the text with everything it imports. Raise `InvalidPlaybook` if a file cannot be imported."""
    if _WORD not in text:
        return Resolved(text)
    reading = _Reading(read)
    lines = list(reading.lines(text, "", "", ()))
    if reading.problems:
        raise InvalidPlaybook(name, reading.problems, codes=True)
    return Resolved("\n".join(line for line, _ in lines), tuple(origin for _, origin in lines))


class _Reading:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._size = self._files = 0
        self.problems: list[Problem] = []
        self._line = 0
        """The line of the program whose import is being resolved."""

    def lines(self, text: str, file: str, indent: str, within: tuple[str, ...]) -> Iterator[tuple[str, Origin]]:
        for number, line, found in _lines(text):
            if not within:
                self._line = number
            self._size += len(line) + len(indent) + 1
            if found is None:
                origin = Origin(self._line, file, number) if file else Origin(number)
                yield (f"{indent}{line}" if line.strip() else line), origin
            elif self._too_much(found["path"].strip()):
                return
            else:
                try:
                    path, content = self._text(found["path"].strip(), file, number, within)
                except _NotImported as error:
                    self.problems.append(Problem(error.message, self._line, error.fix, "IMPORT"))
                else:
                    yield from self.lines(content, path, f"{indent}{found['indent']}", (*within, path))

    def _too_much(self, path: str) -> bool:
        self._files += 1
        if self._size <= LARGEST_WHOLE and self._files <= MOST_FILES:
            return False
        if not any(problem.code == "TOO_LARGE" for problem in self.problems):
            most = f"{MOST_FILES:,} imports" if self._files > MOST_FILES else f"{LARGEST_WHOLE:,} characters"
            message = f"With '{path}' the program has more than {most}."
            self.problems.append(Problem(message, self._line, "Import fewer or smaller files.", "TOO_LARGE"))
        return True

    def _text(self, path: str, file: str, number: int, within: tuple[str, ...]) -> tuple[str, str]:
        """The path relative to the program's folder, and the text of the file."""
        where = f" (imported by {file}:{number})" if file else ""
        if not path:
            raise _NotImported(f"An import has no path{where}.", "Write !import and a path.")
        if _ELSEWHERE.match(path) or posixpath.isabs(path):
            fix = "Use a path relative to the importing file."
            raise _NotImported(f"'{path}' cannot be imported{where}: only files next to the program can be.", fix)
        place = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        if place in within:
            around = " -> ".join([*within[within.index(place) :], place])
            raise _NotImported(f"'{place}' imports itself: {around}.", "Remove one of the imports.")
        if len(within) >= DEEPEST:
            words = f"'{place}' is nested more than {DEEPEST} imports deep{where}."
            raise _NotImported(words, "Import it at a higher level.")
        try:
            content = self._read(place)
        except CuebookError as error:
            words = f"The file '{place}' cannot be imported{where}: {error.message}"
            raise _NotImported(words, error.fix) from None
        if len(content.encode("utf-8", "surrogatepass")) > LARGEST:
            raise _NotImported(f"'{place}' has more than {LARGEST:,} bytes{where}.", "Import fewer or smaller files.")
        return place, content.removeprefix("\ufeff").removesuffix("\n")


class _NotImported(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


def _lines(text: str) -> Iterator[tuple[int, str, re.Match[str] | None]]:
    """Yield every line with its number, and the match if it is an import. Imports in HTML comments are ignored."""
    lines = text.replace("\r\n", "\n").split("\n")
    last_end = max((number for number, line in enumerate(lines, start=1) if "-->" in line), default=0)
    commented = False
    for number, line in enumerate(lines, start=1):
        found = None if commented else _IMPORT.fullmatch(line)
        yield number, line, found
        opened, closed = line.rfind("<!--"), line.rfind("-->")
        if max(opened, closed) >= 0:
            commented = opened > closed and number < last_end
