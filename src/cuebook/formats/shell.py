"""Parses a shell script just enough to find its commands. It runs nothing and applies no policy.

`simple_commands` is strict: it returns a result only if the script consists of plain commands; `placed_commands` also returns
the folder in which each of them runs. `commands_in` is lenient: it finds what it can, including code that runs conditionally.
"""

from __future__ import annotations

import re
import shlex
from posixpath import join, normpath
from typing import NamedTuple

_OPERATOR = re.compile(r"<<<|<<-|<<|<>|<&|>>|>&|>\||&>>|&>|&&|&|\|\||\|&|\||;;&|;;|;&|;|\n|[()<>]")
_REDIRECTIONS = {"<<<", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "&>>", "&>", "<", ">"}
_JOINS = {"&&", "||", "|", ";", "\n"}
_RUN = re.compile(r"[^\s'\"\\$`&|;<>(){}*?\[\x00-\x1f\x7f]+")
_QUOTED_RUN = re.compile(r"[^\"\\$`]+")
_BRACKETS = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[()]", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=", re.ASCII)
_ANSI = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}

_LEADING = {"!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac", "coproc"}
"""Reserved words that may precede a command."""
_HEADS = {"for", "select", "case", "function", "[["}
"""Reserved words whose line contains no command."""
_LASTING = frozenset(
    (
        *("pushd", "popd", "export", "declare", "typeset", "local", "readonly", "unset", "set", "shopt", "alias"),
        *("unalias", "hash", "enable", "trap", "read", "mapfile", "readarray", "getopts", "let", "source", ".", "eval"),
    )
)
"""Shell builtins with a lasting effect: the commands that follow may not be what they seem."""
_DEEPEST = 8
"""How deeply nested scripts are parsed."""
_RESERVED = _LEADING | _HEADS | {"in", "]]", "time"}


class _Word(NamedTuple):
    text: str
    plain: int
    """The number of leading characters that were neither quoted nor expanded."""
    wild: bool
    """Whether a wildcard may expand it into other words."""
    end: int

    @property
    def bare(self) -> bool:
        return self.plain == len(self.text)

    @property
    def assigns(self) -> bool:
        found = _ASSIGNMENT.match(self.text)
        return found is not None and found.end() <= self.plain


class _Redirection:
    """A redirection of a command's input or output; `fed` is text that is passed as its input."""

    def __init__(self, to: str, wild: bool, fed: str = "") -> None:
        self.to = to
        self.wild = wild
        self.fed = fed


class Found(NamedTuple):
    """A command in a script."""

    argv: tuple[str, ...]
    fed: tuple[str, ...]


def simple_commands(script: str) -> list[list[str]] | None:
    """The commands of a script that contains nothing else: words, joined by `&&`, `||`, `;`, `|` and line breaks.

    Returns None if the script contains anything else (an expansion, a redirection, a subshell, a background job, an
    assignment, a reserved word) or is incomplete.
    """
    found = _plain_commands(script)
    return None if found is None else [[word.text for word in words] for words, _ in found]


def placed_commands(script: str) -> list[Placed] | None:
    """Like `simple_commands`, each with the folder that it runs in. `cd DIR && ...` applies to the commands after it and is
    listed only if there are none.

    Also returns None if the folder is uncertain (after `cd DIR; ...` there are two possibilities), or if a command changes
    something else for later commands, such as variables.
    """
    found = _plain_commands(script)
    if found is None:
        return None
    placed: list[Placed] = []
    folder, before = "", ""
    for number, (words, after) in enumerate(found):
        argv = tuple(word.text for word in words)
        last = number == len(found) - 1
        name = next((word for word in argv if word not in ("builtin", "command")), "")
        if folder and before not in ("&&", "|"):
            return None
        if name in _LASTING and not last:
            return None
        if name != "cd" or last:
            placed.append(Placed(folder, argv))
        elif len(words) != 2 or not _is_folder(words[1]) or after != "&&" or before in ("|", "||"):
            return None
        else:
            folder = normpath(join(folder, argv[1]))
        before = after
    return placed


def placed_in(folder: str, line: str) -> str:
    """A command as it would be typed to run it in a folder; an empty folder is the workspace."""
    return f"cd {shlex.quote(folder)} && {line}" if folder not in ("", ".") else line


class Placed(NamedTuple):
    """A command, and the folder in which a script runs it; empty for the folder where the script started."""

    folder: str
    argv: tuple[str, ...]


def _is_folder(word: _Word) -> bool:
    """Whether `cd` takes the word literally: `-`, `~` and wildcards stand for other folders, and `..` may follow a link."""
    return bool(word.text) and not word.wild and not word.text.startswith(("-", "~", "+")) and ".." not in word.text


def _plain_commands(script: str) -> list[tuple[list[_Word], str]] | None:
    """The words of each command, and the operator that joins it to the next."""
    reader = _Reader(script)
    if not reader.plain:
        return None
    commands: list[tuple[list[_Word], str]] = []
    words: list[_Word] = []
    unfinished = False
    for token in [*reader.tokens, "\n"]:
        if isinstance(token, _Word):
            words.append(token)
        elif words:
            if not _is_plain(words[0]):
                return None
            commands.append((words, str(token)))
            words, unfinished = [], token not in (";", "\n")
        elif token != "\n":
            return None
    return None if unfinished else commands


def _is_plain(program: _Word) -> bool:
    reserved = program.bare and program.text in _RESERVED
    wild = program.wild and program.text != "["
    return bool(program.text) and not (reserved or wild or program.assigns)


def commands_in(script: str) -> tuple[list[Found], list[str]]:
    """All commands that can be recognised, and the nested scripts that run by substitution."""
    reader = _Reader(script)
    found: list[Found] = []
    words: list[_Word] = []
    fed: list[str] = []
    for token in [*reader.tokens, "\n"]:
        if isinstance(token, _Word):
            words.append(token)
        elif isinstance(token, _Redirection):
            if token.fed:
                fed.append(token.fed)
        else:
            argv = _command_of(words)
            if argv:
                found.append(Found(argv, tuple(fed)))
            words, fed = [], []
    return found, reader.nested


def mentions_in(script: str) -> Mentions:
    """All words of a script, in commands, redirections and assignments, including nested scripts."""
    words: dict[tuple[str, bool], None] = {}
    waiting, expands = [script], False
    for _ in range(_DEEPEST):
        below: list[str] = []
        for text in waiting:
            reader = _Reader(text)
            expands = expands or reader.expands
            below += reader.nested
            for token in reader.tokens:
                if isinstance(token, _Redirection):
                    words[token.to, token.wild] = None
                    below += [token.fed] if token.fed else []
                elif isinstance(token, _Word):
                    words[token.text, token.wild] = None
        waiting = below
        if not waiting:
            break
    return Mentions(tuple(words), expands or bool(waiting))


class Mentions(NamedTuple):
    """The words that a script mentions."""

    words: tuple[tuple[str, bool], ...]
    """Each word with its quotes removed, and whether a wildcard may expand it into other words."""
    expands: bool
    """Whether it contains variables or substitutions, whose values are unknown here."""


def _command_of(words: list[_Word]) -> tuple[str, ...]:
    start = 0
    while start < len(words):
        word = words[start]
        if word.bare and word.text in _HEADS:
            return ()
        if not (word.assigns or (word.bare and word.text in _LEADING)):
            break
        start += 1
    return tuple(word.text for word in words[start:])


class _Reader:
    """Turns a script into words, operators and redirections."""

    def __init__(self, text: str) -> None:
        self.tokens: list[_Word | _Redirection | str] = []
        self.nested: list[str] = []
        self.plain = True
        """Whether it has consisted only of words and joining operators so far."""
        self.expands = False
        """Whether there was a variable or a substitution."""
        self._text = text
        self._at = 0
        self._awaited: list[tuple[_Redirection, str, bool, bool]] = []
        """Here-documents that begin after the next line break: the redirection, the end marker, whether to strip tabs, and
        whether to expand."""
        while self._at < len(text):
            self._next()
        if self._awaited:
            self._documents()

    def _next(self) -> None:
        text, at = self._text, self._at
        letter = text[at]
        if letter in " \t":
            self._at += 1
        elif text.startswith("\\\n", at):
            self._at += 2
        elif letter == "#":
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        elif text.startswith(("<(", ">("), at) or not (operator := _OPERATOR.match(text, at)):
            self.tokens.append(self._word())
        else:
            self._operate(operator[0])

    def _operate(self, operator: str) -> None:
        start = self._at
        self._at += len(operator)
        if operator in _REDIRECTIONS:
            self._redirect(operator, start)
            return
        self.plain = self.plain and operator in _JOINS
        self.tokens.append(operator)
        if operator == "\n" and self._awaited:
            self._documents()

    def _redirect(self, operator: str, start: int) -> None:
        self.plain = False
        last = self.tokens[-1] if self.tokens else None
        if isinstance(last, _Word) and last.end == start and last.bare and last.text.isdigit():
            self.tokens.pop()  # the redirected file descriptor
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        to = self._word()
        redirection = _Redirection(to.text, to.wild, to.text if operator == "<<<" else "")
        self.tokens.append(redirection)
        if operator in ("<<", "<<-"):
            self._awaited.append((redirection, to.text, operator == "<<-", to.bare))

    def _documents(self) -> None:
        for redirection, until, tabs, expands in self._awaited:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                line = self._text[self._at : len(self._text) if end < 0 else end]
                self._at += len(line) + 1
                line = line.lstrip("\t") if tabs else line
                if line == until:
                    break
                lines.append(line)
            redirection.fed = "\n".join(lines)
            if expands:
                self.nested += _Reader('"' + redirection.fed.replace('"', "") + '"').nested
        self._awaited = []

    def _word(self) -> _Word:
        text, parts = self._text, list[str]()
        plain, wild = -1, False
        while self._at < len(text):
            start, letter = self._at, text[self._at]
            run = _RUN.match(text, start)
            if run:
                self._at = run.end()
                parts.append(run[0])
            elif letter in "*?[":
                wild = True
                self._at += 1
                parts.append(letter)
            elif text.startswith("{}", start):
                self._at += 2
                parts.append("{}")
            elif text.startswith("\\\n", start):
                self._at += 2
            elif letter in "'\"\\$`" or text.startswith(("<(", ">("), start):
                plain = sum(map(len, parts)) if plain < 0 else plain
                parts.append(self._quoted(letter))
            elif letter in " \t" or _OPERATOR.match(text, start):
                break
            else:  # a brace, a control character, or a blank that not every shell treats as one
                self.plain = False
                self._at += 1
                parts.append(letter)
        made = "".join(parts)
        return _Word(made, len(made) if plain < 0 else plain, wild, self._at)

    def _quoted(self, letter: str) -> str:
        if letter == "'":
            return self._single()
        if letter == '"':
            self._at += 1
            return self._double()
        if letter == "\\":
            escaped = self._text[self._at + 1 : self._at + 2]
            self.plain = self.plain and bool(escaped)
            self._at += 2
            return escaped
        return self._expansion()

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        self.plain = self.plain and end >= 0
        end = len(self._text) if end < 0 else end
        quoted = self._text[self._at + 1 : end]
        self._at = end + 1
        return quoted

    def _double(self) -> str:
        """The text after a double quote, up to the closing quote."""
        text, parts = self._text, list[str]()
        while self._at < len(text):
            run = _QUOTED_RUN.match(text, self._at)
            if run:
                self._at = run.end()
                parts.append(run[0])
            elif text[self._at] == '"':
                self._at += 1
                return "".join(parts)
            elif text[self._at] == "\\":
                after = text[self._at + 1 : self._at + 2]
                parts.append({"\n": "", '"': '"', "\\": "\\", "$": "$", "`": "`"}.get(after, f"\\{after}"))
                self._at += 2
            else:
                parts.append(self._expansion())
        self.plain = False
        return "".join(parts)

    def _expansion(self) -> str:
        """An expansion (`$`, a backtick, or a process substitution): kept literally, with its content added to `nested`."""
        self.plain = False
        text, start = self._text, self._at
        if text.startswith("$'", start):
            return self._ansi()
        if text.startswith('$"', start):
            self._at += 2
            return self._double()
        self.expands = True
        if text.startswith(("$(", "<(", ">("), start):
            end = self._closing(start + 2)
            self.nested.append(text[start + 2 : end])
        elif text.startswith("${", start):
            end = text.find("}", start)
            end = len(text) if end < 0 else end
            self.nested.append(text[start + 2 : end])
        elif text[start] == "`":
            end = start + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            self.nested.append(text[start + 1 : end].replace("\\`", "`"))
        else:
            end = start
        self._at = min(end + 1, len(text))
        return text[start : self._at]

    def _ansi(self) -> str:
        end = self._at + 2
        while end < len(self._text) and self._text[end] != "'":
            end += 2 if self._text[end] == "\\" else 1
        quoted = self._text[self._at + 2 : end]
        self._at = min(end + 1, len(self._text))
        return _ANSI.sub(_ansi_letter, quoted)

    def _closing(self, start: int) -> int:
        depth = 1
        for found in _BRACKETS.finditer(self._text, start):
            depth += {"(": 1, ")": -1}.get(found[0], 0)
            if depth == 0:
                return found.start()
        return len(self._text)


def _ansi_letter(found: re.Match[str]) -> str:
    for group, radix in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if found[group]:
            code = int(found[group], radix)
            return chr(code) if code < 0x110000 else ""
    return _ANSI_LETTERS.get(found[5], found[5])
