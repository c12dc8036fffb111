"""Reads YAML 1.2 into values that record their line.

Strict: only the core schema (`yes` is a string, `010` is ten, a date stays a string), one document, and no tags that build
objects. Depth and aliases are limited, so no file takes long to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from cuebook.formats.builder import ORDINARY, Builder, Limits, checked_text, whole_characters
from cuebook.formats.json import read_json
from cuebook.formats.values import Malformed, Value

_TAG = "tag:yaml.org,2002:"
_NO_BREAKS = "\x85\u2028\u2029"

_CORE = {
    "null": re.compile(r"(?:null|Null|NULL|~)?"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
    "str": re.compile(r".*", re.DOTALL),
}  # fmt: skip
"""The kinds of a plain scalar, in the order in which they are tried."""
_MAY_BE_OTHER = frozenset("nN~tTfF-+.0123456789")
"""The first characters of plain scalars that may be something other than a string."""


@cache
def _scanner() -> type[Any]:
    """The library's scanner, which also accepts tabs between the parts of a line, as YAML 1.2 does."""
    from ruamel.yaml.scanner import Scanner

    class TabScanner(Scanner):
        def scan_to_next_token(self) -> Any:
            if not self.flow_level and self._line().strip(" \t"):
                self._pass_blanks()
            super().scan_to_next_token()
            while not self.flow_level and self.reader.peek() == "\t" and self._only_blanks():
                self._pass_blanks()  # a blank line
                super().scan_to_next_token()

        def _line(self) -> str:
            """The part of this line that has already been read."""
            reader = self.reader
            return str(reader.buffer[max(0, reader.pointer - reader.column) : reader.pointer])

        def _pass_blanks(self) -> None:
            while self.reader.peek() in " \t":
                # A tab may not precede the start of a list or a table: it would be part of the indentation.
                self.allow_simple_key = self.allow_simple_key and self.reader.peek() != "\t"
                self.reader.forward()

        def _only_blanks(self) -> bool:
            ahead = 0
            while self.reader.peek(ahead) in " \t":
                ahead += 1
            return self.reader.peek(ahead) in "\0\r\n#"

    return TabScanner


def read_yaml(text: str, limits: Limits = ORDINARY) -> Value:
    """Parses the only document in the input; null if there is none. Raises `Malformed` with the line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text, back = _one_kind_of_break(checked_text(text))
    builder = Builder(limits)
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _scanner()
    try:
        for event in yaml.parse(text):
            _take(builder, event, back)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else text.count("\n") + 1
        raise Malformed(line, *_explained(str(error.problem or error.context))) from None
    except YAMLError as error:
        place = getattr(error, "position", 0)  # for a character that YAML does not allow
        said = " ".join(str(getattr(error, "reason", error)).split())
        raise Malformed(text.count("\n", 0, place) + 1, f"invalid YAML: {said}") from None
    return builder.root if builder.root is not None else Value(1, "null")


def _one_kind_of_break(text: str) -> tuple[str, dict[int, int]]:
    """Replaces the line breaks that exist only in YAML 1.1 with private characters; returns the text and how to restore it.

    The library still treats them as line breaks.
    """
    if not any(sign in text for sign in _NO_BREAKS):
        return text, {}
    used = set(text)
    free = [code for code in range(0xE000, 0xF900) if chr(code) not in used]
    back = {code: ord(sign) for code, sign in zip(free, _NO_BREAKS, strict=False)}
    return text.translate({sign: code for code, sign in back.items()}), back


def _take(builder: Builder, event: Any, back: dict[int, int]) -> None:
    line = event.start_mark.line + 1
    match type(event).__name__:
        case "ScalarEvent":
            written = event.value.translate(back) if back else event.value
            text = whole_characters(written, line)
            builder.scalar(line, _kind_of(event, line), text, event.anchor)
        case "MappingStartEvent":
            _only_tag(event, "map", line)
            builder.opened("map", line, event.anchor)
        case "SequenceStartEvent":
            _only_tag(event, "seq", line)
            builder.opened("seq", line, event.anchor)
        case "MappingEndEvent" | "SequenceEndEvent":
            builder.closed()
        case "AliasEvent":
            builder.alias(line, event.anchor)
        case "DocumentStartEvent" if builder.root is not None:
            raise Malformed(line, "a second document begins here", "Keep one document per file.")


def _kind_of(event: Any, line: int) -> str:
    tag = event.tag
    if tag is None and not event.implicit[0]:
        return "str"
    text = event.value
    if tag is None:
        if text and text[0] not in _MAY_BE_OTHER:
            return "str"
        return next(kind for kind, pattern in _CORE.items() if pattern.fullmatch(text))
    if str(tag) == "!":
        return "str"
    kind = str(tag).removeprefix(_TAG)
    if kind not in _CORE:
        raise _unknown_tag(tag, line)
    if not _CORE[kind].fullmatch(text):
        raise Malformed(line, f"'{text[:60]}' is not a valid {kind}", "Remove the tag.")
    return kind


def _only_tag(event: Any, kind: str, line: int) -> None:
    if event.tag is not None and str(event.tag) not in ("!", f"{_TAG}{kind}"):
        raise _unknown_tag(event.tag, line)


def _unknown_tag(tag: Any, line: int) -> Malformed:
    return Malformed(line, f"unknown tag '{tag}'", "Remove the tag.")


_INDENT = "Indent the line like its neighbours; '- ' items and 'name:' lines cannot be mixed at one level."
_QUOTE = "Put a string that contains ': ' or begins with one of * & ! % @ { [ in quotes."
_FIXES = {
    "mapping values": f"Indent the line like its neighbours. {_QUOTE}",
    "<block end>": _INDENT,
    "expected ':'": "Write the line before it as NAME: VALUE, or indent it as part of the text above.",
    "expected ','": "Close the open bracket, or put a comma between two values.",
    "end of stream": "Close the open quotation mark or bracket.",
    "sequence entries": "Start the list on a new line.",
    "escape character": "Write two backslashes for one, or use single quotes.",
    "alias": _QUOTE,
    "cannot start": _QUOTE,
    "tag": _QUOTE,
}
"""Fixes, by words in the library's message."""


def _explained(problem: str) -> tuple[str, str]:
    """The problem and its fix, from the library's message."""
    said = " ".join(problem.split())
    if "'\\t'" in said:
        return "a tab where YAML allows only spaces", "Use spaces instead of the tab."
    fix = next((fix for words, fix in _FIXES.items() if words in said), "Correct it.")
    return f"invalid YAML: {said}", fix


def read_yaml_or_json(text: str, is_json: bool, most: int, fix: str) -> Value:
    """Reads YAML, or JSON if the file must be JSON. Rejects input of more than `most` characters."""
    if len(text) > most:
        raise Malformed(1, f"the text has more than {most:,} characters", fix)
    if is_json:
        return read_json(text)
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            return read_json(text)  # much faster, and correct for nearly every document that begins with a brace
        except Malformed:
            pass
    return read_yaml(text)


# --- names at the top level -------------------------------------------------------------------------------

SUFFIXES = ("", ".yml", ".yaml", ".json")
"""The suffixes of files that may contain YAML or JSON; empty for text that is not a file."""
_TOP_NAME = re.compile(r"^(?:\"(\w+)\"|'(\w+)'|(\w+))[ \t]*:(?=[ \t\r\n]|$)", re.ASCII | re.MULTILINE)
_FLOW = re.compile(
    r"\"([^\"\\]*(?:\\.[^\"\\]*)*)\"|'([^']*(?:''[^']*)*)'|([{\[])|([}\]])|(,)|(\w+)", re.ASCII | re.DOTALL
)
_BEFORE = re.compile(r"(?:\s|#[^\n]*|---(?=\s)|%[^\n]*\n)*")


def top_level_names(text: str) -> Iterator[str]:
    """Yields the top-level names in a YAML or JSON document, even if it is malformed further down.

    A generator, so that a caller can stop as soon as it knows enough.
    """
    text = text.removeprefix("\ufeff")
    begin = _BEFORE.match(text)
    at = begin.end() if begin else 0
    if text[at : at + 1] == "{":
        yield from _flow_names(text, at)
        return
    for found in _TOP_NAME.finditer(text):
        yield found[1] or found[2] or found[3]


def _flow_names(text: str, at: int) -> Iterator[str]:
    """The names in the outermost braces."""
    depth = 0
    named = False
    for found in _FLOW.finditer(text, at):
        if found[3]:
            depth += 1
            named = named and depth > 1
        elif found[4]:
            depth -= 1
            if depth == 0:
                return
        elif depth == 1 and found[5]:
            named = False
        elif depth == 1 and not named:
            named = True
            yield found[1] or found[2] or found[6] or ""
