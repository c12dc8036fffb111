"""Commands as rules see them: as typed, by the name of their program, and including what wrappers and shells would run.

A rule that permits must match the command as typed. A rule that restricts may match anything found inside it. That is
only a seat belt: a program can always start other programs that are not visible here. The sandbox is the real barrier.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from posixpath import basename, join, normpath

from cuebook.formats.executables import ALIKE_EVERYWHERE, SHELLS, WRAPPERS, choices_of_folder
from cuebook.formats.shell import commands_in, placed_commands, placed_in
from cuebook.gate.policy.patterns import Stand, fits, fits_any, is_literal, may_fit

EVERYTHING = "*"
"""A pattern that is only a wildcard clearly means every command."""
DEEPEST = 8
MOST = 400
LONGEST = 500_000
FARTHEST = 100
"""Limits for analysing one command: nesting depth, number of nested commands, total length, and how many words of a
wrapper are searched. A command that exceeds one of them needs at least approval.
"""

_PLAIN_SHELLS = frozenset(f"{folder}{name}" for folder in ("", "/bin/", "/usr/bin/") for name in ("sh", "bash", "dash"))
"""Shells whose scripts `placed_commands` parses exactly as they do."""
_TAKING_SCRIPTS = SHELLS | {"su", "runuser", "script", "flock"}
"""Programs that run the text after `-c`."""


class Command:
    """One command, analysed once."""

    def __init__(self, target: str) -> None:
        self.target = target
        try:
            words = tuple(shlex.split(target))
        except ValueError:
            words = ()
        placed = len(words) > 3 and target == placed_in(words[1], shlex.join(words[3:]))
        self.folder = words[1] if placed else ""
        """The folder that it runs in, if not the workspace."""
        self.argv: tuple[str, ...] = words[3:] if placed else words
        self.complete = True
        """Whether everything inside it was analysed."""
        self._scripts: list[str] = []
        self._forms = dict.fromkeys([target])
        if self.folder:
            self._forms |= dict.fromkeys(_spellings(("cd", self.folder)))
        if self.argv:
            self._look_within()
            self._forms |= dict.fromkeys(self.parts)

    def caught_by(self, pattern: str) -> bool:
        """For rules that restrict."""
        return fits_any(pattern, self._forms)

    def may_be_caught_by(self, pattern: str, unknown: Stand) -> bool:
        """Like `caught_by`, but a placeholder may stand for any value. A script with a placeholder could become any script."""
        if not self.argv or unknown.within(self.argv[0]) or any(map(unknown.within, self._scripts)):
            return True
        return any(may_fit(pattern, unknown.pieces(form)) for form in self._forms)

    def allowed_by(
        self, patterns: Sequence[str], otherwise: Callable[[str], bool] | None = None, depth: int = 0
    ) -> tuple[int, ...]:
        """For rules that permit: the indexes of the rules that together allow the command; empty if none do.

        `otherwise` says whether something else already permits a part of a script.
        """
        for number, pattern in enumerate(patterns):
            if pattern == EVERYTHING or (pattern == self.target and is_literal(pattern)):
                return (number,)
        if not self._scripts:
            by_one = next(((number,) for number, one in enumerate(patterns) if self._typed_as(one)), ())
            return by_one or self._allowed_by_two(patterns, otherwise)
        parts = self.parts
        if not parts or depth >= DEEPEST:
            return ()
        used: set[int] = set()
        for part in parts:
            numbers = command_of(part).allowed_by(patterns, otherwise, depth + 1)
            if not numbers and not (otherwise and otherwise(part)):
                return ()
            used.update(numbers)
        return tuple(sorted(used))

    @property
    def parts(self) -> tuple[str, ...]:
        """The commands of `bash -c SCRIPT`, each with its folder, if the script contains only commands."""
        if len(self.argv) != 3 or self.argv[0] not in _PLAIN_SHELLS or self.argv[1] != "-c":
            return ()
        found = placed_commands(self.argv[2]) or ()
        return tuple(placed_in(_joined(self.folder, one.folder), shlex.join(one.argv)) for one in found)

    @property
    def program(self) -> str:
        return basename(self.argv[0]) if self.argv else ""

    def _typed_as(self, pattern: str) -> bool:
        if self.folder:
            if not pattern.startswith("cd "):
                return False
            where, joined, pattern = pattern.removeprefix("cd ").partition(" && ")
            if not joined or not _fits_folder(where, self.folder):
                return False
            if pattern == EVERYTHING:
                return True
        # `./git` is not the `git` of the rule, even if the rest matches.
        if not self.argv or ("/" in self.argv[0] and "/" not in pattern.partition(" ")[0]):
            return False
        return fits(pattern, shlex.join(self.argv) if self.folder else self.target) and self._folders_in(pattern)

    def _folders_in(self, pattern: str) -> bool:
        """Whether the pattern spells out each argument that makes the program work in another folder, instead of
        covering it with a wildcard.
        """
        certain = re.split(r"[*?]", pattern, maxsplit=1)[0]
        chosen = () if is_literal(pattern) else _choices_of_folder(self.argv)
        return all(certain.startswith(shlex.join(self.argv[:end])) for end in chosen)

    def _allowed_by_two(self, patterns: Sequence[str], otherwise: Callable[[str], bool] | None) -> tuple[int, ...]:
        """For a program that does the same in every folder: the rule for the folder and the rule for the program."""
        if not self.folder or not self.argv or self.argv[0] not in ALIKE_EVERYWHERE:
            return ()
        used: set[int] = set()
        for part in (shlex.join(("cd", self.folder)), shlex.join(self.argv)):
            numbers = command_of(part).allowed_by(patterns)
            if not numbers and not (otherwise and otherwise(part)):
                return ()
            used.update(numbers)
        return tuple(sorted(used))

    def _look_within(self) -> None:
        waiting, seen, letters = [(self.argv, 0)], {self.argv}, 0
        while waiting:
            argv, depth = waiting.pop()
            letters += sum(map(len, argv))
            if depth > DEEPEST or letters > LONGEST:
                self.complete = False
                return
            self._forms |= dict.fromkeys(_spellings(argv))
            scripts, commands, whole = _inside(argv)
            self._scripts += scripts
            self.complete = self.complete and whole
            for script in scripts:
                found, whole = _of_script(script)
                commands += found
                self.complete = self.complete and whole
            fresh = [one for one in dict.fromkeys(commands) if one and one not in seen]
            if len(seen) + len(fresh) > MOST:
                self.complete = False
                return
            seen.update(fresh)
            waiting += [(one, depth + 1) for one in fresh]


def _choices_of_folder(argv: tuple[str, ...]) -> Iterator[int]:
    """The ends of the arguments that choose a folder for the program and for the programs that it starts."""
    waiting, seen = [0], {0}
    while waiting:
        start = waiting.pop()
        part = argv[start:]
        yield from (start + end for end in choices_of_folder(part))
        own = WRAPPERS.get(basename(part[0]))
        fresh = {start + at for at in _starts(part, own)[0]} - seen if own is not None else set[int]()
        seen |= fresh
        if len(seen) > MOST:
            yield len(argv)
            return
        waiting += fresh


def _joined(folder: str, below: str) -> str:
    return normpath(join(folder, below)) if folder and below else folder or below


def _fits_folder(pattern: str, folder: str) -> bool:
    """A wildcard matches only folders below the workspace."""
    if is_literal(pattern):
        return pattern in (folder, shlex.quote(folder))
    return not folder.startswith("/") and ".." not in folder and fits(pattern, shlex.quote(folder))


@lru_cache(maxsize=256)
def command_of(target: str) -> Command:
    return Command(target)


def _spellings(argv: tuple[str, ...]) -> Iterator[str]:
    for words in (argv, (basename(argv[0]), *argv[1:])):
        yield shlex.join(words)
        yield " ".join(words)


def _inside(argv: tuple[str, ...]) -> tuple[list[str], list[tuple[str, ...]], bool]:
    """The scripts and the commands that a command would run, and whether the lists are complete."""
    program, rest = basename(argv[0]), argv[1:]
    scripts: list[str] = []
    if program in _TAKING_SCRIPTS:
        scripts += _scripts_after_c(rest)
    if program in ("eval", "watch"):
        scripts.append(" ".join(rest))
    if program == "trap":
        scripts += rest[:1]
    if program == "env":
        scripts += _split_string(rest)
    commands: list[tuple[str, ...]] = []
    whole = True
    if program in WRAPPERS:
        starts, whole = _starts(argv, WRAPPERS[program])
        commands += [argv[at:] for at in starts]
    if program == "find":
        commands += _executed(rest)
    return [script for script in dict.fromkeys(scripts) if script], commands, whole


def _starts(argv: tuple[str, ...], own: int) -> tuple[list[int], bool]:
    """Where the wrapped command may begin. An option may or may not consume the next word, so both are tried."""
    starts: set[int] = set()
    waiting, seen = [(1, own)], set[tuple[int, int]]()
    whole = True
    while waiting:
        at, left = waiting.pop()
        if at >= len(argv) or (at, left) in seen:
            continue
        if at > FARTHEST:
            whole = False
            continue
        seen.add((at, left))
        word = argv[at]
        if word == "--":
            waiting.append((at + 1, left))
        elif word.startswith("-"):
            waiting += [(at + 1, left), (at + 2, left)]
        elif left:
            waiting.append((at + 1, left - 1))
        elif "=" in word.partition("/")[0]:
            waiting.append((at + 1, left))
        else:
            starts.add(at)
    return sorted(starts), whole


def _scripts_after_c(words: tuple[str, ...]) -> list[str]:
    """The text after `-c`, which may be combined with other options, as in `-lc` or `-c -o pipefail`."""
    scripts: list[str] = []
    following: list[str] = []
    for word in reversed(words):
        if word.startswith("--command="):
            scripts.append(word.partition("=")[2])
        elif word == "--command" or (word.startswith("-") and not word.startswith("--") and "c" in word):
            scripts += following
        elif not word.startswith(("-", "+")):
            following = [word, *following[:1]]
    return scripts


def _split_string(words: tuple[str, ...]) -> list[str]:
    """The words that `env -S` splits."""
    for at, word in enumerate(words):
        if word in ("-S", "--split-string"):
            return [" ".join(words[at + 1 :])]
        if word.startswith(("-S", "--split-string=")):
            return [" ".join([word.removeprefix("--split-string=").removeprefix("-S"), *words[at + 1 :]])]
    return []


def _executed(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The commands of `find -exec`, each up to its `;` or `+`."""
    found: list[list[str]] = []
    inside = False
    for word in words:
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            found.append([])
            inside = True
        elif word in (";", "+"):
            inside = False
        elif inside:
            found[-1].append(word)
    return [tuple(one) for one in found]


def _of_script(script: str) -> tuple[list[tuple[str, ...]], bool]:
    """The commands of a script, including its substitutions and here-documents, and whether the list is complete."""
    commands: list[tuple[str, ...]] = []
    waiting = [script]
    for _ in range(DEEPEST):
        below: list[str] = []
        for text in waiting:
            found, nested = commands_in(text)
            below += nested
            for one in found:
                commands.append(one.argv)
                if basename(one.argv[0]) in SHELLS:
                    below += one.fed
        waiting = below
        if not waiting or len(commands) > MOST:
            break
    return commands, not waiting
