"""The files and folders in the workspace that a command mentions in any way, and the parts that cannot be determined.

An approval is bound to the content of these files. If more are found than the command opens, the worst case is an
unnecessary approval.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from posixpath import basename

import msgspec

from cuebook.formats.executables import (
    FILTERS,
    SHELLS,
    code_argument,
    is_interpreter,
    modules_of,
    takes_code_from_input,
)
from cuebook.formats.shell import commands_in, mentions_in
from cuebook.performers.commands.resolve import is_below
from cuebook.performers.files.digests import digest_of
from cuebook.performers.files.paths import real

_MOST_WORDS = 5_000
_MOST_FILES = 500
_MOST_BYTES = 20 << 20
_MOST_FOLDERS = 16
_MOST_MATCHES = 500
_MOST_ENTRIES = 200_000
"""The maximum number of names that are compared with wildcards, in total."""
_MOST_WILD = 3
"""The maximum number of path segments with wildcards: each multiplies the number of folders to check."""
_MOST_BRACES = 4
_OWN_WORDS = 30
"""The number of words after an interpreter that may be its own options."""
_DEEPEST = 4
_SCRIPT = re.compile(r"[\s'\"\\$`*?\[{;|&<>()]")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_BY_SHELL = re.compile(r"[@+!?*]\(|\*\*|\{[^{}\s]*\.\.[^{}\s]*\}|(?:^|[\s=:;|&<>(])~")
"""Forms that some shells expand, but that are not expanded here: extended patterns, sequences and home folders."""
_GOES_THERE = frozenset({"cd", "pushd", "-C", "--chdir", "--directory", "--prefix", "--cwd"})

EXPANDED = "the value of a variable or a substitution in the script"
_FITTING = "the matches of a shell pattern in the script"
_CODE = "the files that the code in the arguments opens"
_CODE_READ = "the files that the code in its input opens"
_WIDE = "the whole workspace, which is mentioned as a folder"
_MANY = "some of the words: there are too many"
_WILD = "the matches of some wildcards: there are too many names to check"


class Named(msgspec.Struct, frozen=True):
    """The files that a command mentions, as they are now."""

    files: dict[str, str]
    """Digests of contents, by the path relative to the workspace. The path of a folder ends in `/`."""
    unbound: tuple[str, ...] = ()
    """Descriptions of everything that could be different when it runs."""


def named_by(argv: Sequence[str], stdin: str, cwd: str, workspace: str) -> Named:
    """Analyses the arguments as they are and as scripts, and the input that is passed to a shell."""
    words = _Words()
    words.command(argv)
    if stdin and any(basename(word) in SHELLS for word in argv):
        words.script(stdin, shell=True)
    elif stdin and reads_code(argv):
        words.unbound[_CODE_READ] = None
    return _Search(words, cwd, workspace).named()


def reads_code(argv: Sequence[str]) -> bool:
    """Whether its program, or one that it starts, executes its input."""
    if not argv or basename(argv[0]) in FILTERS:
        return False
    if is_interpreter(argv[0]):
        return takes_code_from_input(argv)
    own = argv[:_OWN_WORDS]
    return any(is_interpreter(word) and takes_code_from_input(argv[at:]) for at, word in enumerate(own))


class _Words:
    """Every word that could be a name."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.wild: dict[str, None] = {}
        self.modules: dict[str, None] = {}
        self.places: set[str] = set()
        """Folders that the command works in, without mentioning their content."""
        self.unbound: dict[str, None] = {}
        self._read: set[tuple[str, bool]] = set()

    def command(self, argv: Sequence[str], depth: int = 0) -> None:
        if depth > _DEEPEST or len(self.names) > _MOST_WORDS:
            self.unbound[_MANY] = None
            return
        shell = any(basename(word) in SHELLS or word == "eval" for word in argv)
        before = ""
        for at, word in enumerate(argv):
            self._add(word)
            if before in _GOES_THERE:
                self.places.add(word)
            if _SCRIPT.search(word):
                self.script(word, shell=shell, depth=depth)
            options = argv[at : at + _OWN_WORDS]
            self.modules |= dict.fromkeys(modules_of(options))
            if code_argument(options):
                self.unbound[_CODE] = None
            before = word

    def script(self, text: str, *, shell: bool, depth: int = 0) -> None:
        if (text, shell) in self._read:
            return
        self._read.add((text, shell))
        found = mentions_in(text)
        if shell and found.expands:
            self.unbound[EXPANDED] = None
        if shell and _BY_SHELL.search(text):
            self.unbound[_FITTING] = None
        for word, wild in found.words:
            self._add(word)
            if wild and shell:
                self.wild[word] = None
        for one in commands_in(text)[0]:
            self.command(one.argv, depth + 1)

    def _add(self, word: str) -> None:
        for name in _spellings(word):
            if name and len(name) < 4096 and "\0" not in name:
                self.names[name] = None


def _spellings(word: str) -> Iterator[str]:
    """The word, the parts after each `=`, `@`, `:` and `,` in it, the part after an option's letter, and its braces."""
    for one in islice(_braced(word), 64):
        yield one
        yield from re.split(r"[=@:,]", one)
        rest = one
        while "=" in rest:
            rest = rest.partition("=")[2]
            yield rest
            yield rest.removeprefix("@")
        if re.match(r"-[A-Za-z]+@?", one):
            yield from (one[start:].removeprefix("@") for start in range(2, min(len(one), 8)))


def _braced(word: str) -> Iterator[str]:
    found = _BRACES.search(word)
    if found is None or word.count("{") > _MOST_BRACES:
        yield word
        return
    for part in found[1].split(","):
        yield from islice(_braced(word[: found.start()] + part + word[found.end() :]), 64)


class _Search:
    """Looks for the files that the words refer to, in each mentioned folder."""

    def __init__(self, words: _Words, cwd: str, workspace: str) -> None:
        self._words = words
        self._workspace = workspace
        self._unbound = dict(words.unbound)
        self._left = _MOST_FILES
        self._bytes = _MOST_BYTES
        self._entries = _MOST_ENTRIES
        self._files: dict[str, str] = {}
        self._folders = [cwd]
        for name in words.names:
            for folder in [*self._folders]:
                path = os.path.join(folder, name)
                if len(self._folders) < _MOST_FOLDERS and _is(stat.S_ISDIR, path) and is_below(real(path), workspace):
                    self._folders.append(path)
        self._folders = list(dict.fromkeys(self._folders))

    def named(self) -> Named:
        for folder in self._folders:
            for name in self._words.names:
                self._look(os.path.join(folder, name), name)
            for module in self._words.modules:
                path = os.path.join(folder, *module.split("."))
                self._look(f"{path}.py", module)
                self._look(path, module)
            for pattern in self._words.wild:
                self._matches(folder, pattern)
        return Named(dict(sorted(self._files.items())), tuple(self._unbound))

    def _matches(self, folder: str, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part]
        if os.path.isabs(pattern) or ".." in parts or sum(map(glob.has_magic, parts)) > _MOST_WILD:
            self._unbound[f"the matches of '{pattern[:100]}'"] = None
            return
        found = [folder]
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            found = [path for one in found for path in self._fitting(one, part, last)]
            if self._entries < 0:
                self._unbound[_WILD] = None
                return
        if len(found) > _MOST_MATCHES:
            self._unbound[f"the matches of '{pattern}': more than {_MOST_MATCHES} files"] = None
        for path in sorted(found)[:_MOST_MATCHES]:
            self._look(path, path)

    def _fitting(self, folder: str, part: str, last: bool) -> list[str]:
        """The matches of one pattern segment in a folder: only folders, unless it is the last segment. Empty once too
        many names have been checked.
        """
        path = os.path.join(folder, part)
        if not glob.has_magic(part):
            return [path] if os.path.lexists(path) else []
        if self._entries < 0:
            return []
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError:
            return []
        self._entries -= 1 + len(found)
        shown = [
            one.name for one in found if (last or one.is_dir()) and one.name.startswith(".") <= part.startswith(".")
        ]
        return [os.path.join(folder, name) for name in fnmatch.filter(shown, part)]

    def _look(self, path: str, name: str) -> None:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return
        place = real(path)
        if not is_below(place, self._workspace):
            return
        shown = os.path.relpath(place, self._workspace)
        if stat.S_ISREG(mode):
            self._files.setdefault(shown, digest_of(place))
        elif stat.S_ISDIR(mode) and name not in self._words.places and f"{shown}/" not in self._files:
            if is_below(self._workspace, place):
                if name in (".", "./", ".."):
                    self._unbound[_WIDE] = None
                return
            digest = self._folder(place)
            if digest:
                self._files[f"{shown}/"] = digest
            else:
                self._unbound[f"the content of the folder {shown}: it is too large"] = None

    def _folder(self, top: str) -> str:
        """A digest of the names and contents of all files below; empty if there are too many."""
        known = sha256()
        for folder, folders, names in os.walk(top):
            folders.sort()
            self._left -= 1
            if self._left < 0:
                return ""
            for name in sorted(names):
                path = os.path.join(folder, name)
                self._left -= 1
                self._bytes -= _size(path)
                if self._left < 0 or self._bytes < 0:
                    return ""
                line = f"{os.path.relpath(path, top)}\0{digest_of(path) if _is(stat.S_ISREG, path) else ''}\0"
                known.update(line.encode("utf-8", "surrogateescape"))
        return known.hexdigest()


def _is(kind: object, path: str) -> bool:
    try:
        return bool(kind(os.stat(path).st_mode))  # type: ignore[operator]
    except (OSError, ValueError):
        return False


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
