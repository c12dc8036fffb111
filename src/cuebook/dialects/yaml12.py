"""Reads YAML 1.2 and JSON as values that know their lines. It knows nothing of what the values mean.

Strict: the core schema and nothing beyond (`yes` is a text, `010` is ten, a date is what was written), one document, and
nothing built that a text could ask for. Neither depth nor references can make it take its time.
"""

from __future__ import annotations

import re
from functools import cache
from json import JSONDecodeError, JSONDecoder
from typing import Any

from cuebook.dialects.values import ORDINARY, Building, Limits, Malformed, Open, Value

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
"""How a plain scalar begins that may be something else than a text."""


def _text_of(text: str) -> str:
    """Without a byte order mark. `Malformed` for what could not be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(text.count("\n", 0, error.start) + 1, "this is not valid text", "Save it as UTF-8.") from None
    return text.removeprefix("\ufeff")


def _whole_characters(text: str, line: int) -> str:
    """With the halves of characters, as escapes can write them, put together."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Malformed(line, "half of a character is missing") from None


# --- YAML ---------------------------------------------------------------------------------------------------


@cache
def _scanner() -> type[Any]:
    """The library's scanner, which also takes tabs between what stands on a line, as YAML 1.2 does."""
    from ruamel.yaml.scanner import Scanner

    class TabScanner(Scanner):
        def scan_to_next_token(self) -> Any:
            if not self.flow_level and self._line().strip(" \t"):
                self._pass_blanks()
            super().scan_to_next_token()
            while not self.flow_level and self.reader.peek() == "\t" and self._only_blanks():
                self._pass_blanks()  # a line of blanks
                super().scan_to_next_token()

        def _line(self) -> str:
            """What was read of this line."""
            reader = self.reader
            return str(reader.buffer[max(0, reader.pointer - reader.column) : reader.pointer])

        def _pass_blanks(self) -> None:
            while self.reader.peek() in " \t":
                # No tab stands before what begins a list or a table: it would be a part of the indentation.
                self.allow_simple_key = self.allow_simple_key and self.reader.peek() != "\t"
                self.reader.forward()

        def _only_blanks(self) -> bool:
            ahead = 0
            while self.reader.peek(ahead) in " \t":
                ahead += 1
            return self.reader.peek(ahead) in "\0\r\n#"

    return TabScanner


def read_yaml(text: str, limits: Limits = ORDINARY) -> Value:
    """The one document in a text; null where there is none. `Malformed` names the line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text, back = _one_kind_of_break(_text_of(text))
    building = Building(limits)
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _scanner()
    try:
        for event in yaml.parse(text):
            _take(building, event, back)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else text.count("\n") + 1
        raise Malformed(line, *slip(str(error.problem or error.context))) from None
    except YAMLError as error:
        place = getattr(error, "position", 0)  # of a character that may not stand in YAML
        said = " ".join(str(getattr(error, "reason", error)).split())
        raise Malformed(text.count("\n", 0, place) + 1, f"this is not YAML: {said}") from None
    return building.root if building.root is not None else Value(1, "null")


def _one_kind_of_break(text: str) -> tuple[str, dict[int, int]]:
    """The library ends lines as YAML 1.1 did. What is no longer a break stands under another sign while it reads."""
    if not any(sign in text for sign in _NO_BREAKS):
        return text, {}
    used = set(text)
    free = [code for code in range(0xE000, 0xF900) if chr(code) not in used]
    back = {code: ord(sign) for code, sign in zip(free, _NO_BREAKS, strict=False)}
    return text.translate({sign: code for code, sign in back.items()}), back


def _take(building: Building, event: Any, back: dict[int, int]) -> None:
    line = event.start_mark.line + 1
    match type(event).__name__:
        case "ScalarEvent":
            written = event.value.translate(back) if back else event.value
            text = _whole_characters(written, line)
            building.scalar(line, _kind_of(event, line), text, event.anchor)
        case "MappingStartEvent":
            _only_tag(event, "map", line)
            building.opened("map", line, event.anchor)
        case "SequenceStartEvent":
            _only_tag(event, "seq", line)
            building.opened("seq", line, event.anchor)
        case "MappingEndEvent" | "SequenceEndEvent":
            building.closed()
        case "AliasEvent":
            building.alias(line, event.anchor)
        case "DocumentStartEvent" if building.root is not None:
            raise Malformed(line, "a second document begins here", "Keep one in a file.")


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
        raise Malformed(line, f"'{text[:60]}' is no value of the kind '{kind}'", "Take the tag out.")
    return kind


def _only_tag(event: Any, kind: str, line: int) -> None:
    if event.tag is not None and str(event.tag) not in ("!", f"{_TAG}{kind}"):
        raise _unknown_tag(event.tag, line)


def _unknown_tag(tag: Any, line: int) -> Malformed:
    return Malformed(line, f"there is no kind of value '{tag}'", "Take the tag out.")


_INDENT = (
    "Indent the line as those are that belong with it; a list of '- ' and names with ':' do not stand side by side."
)
_QUOTE = "Put a text that holds ': ' or begins with one of * & ! % @ { [ in quotes."
_MENDING = {
    "mapping values": f"Indent the line as those are that belong with it. {_QUOTE}",
    "<block end>": _INDENT,
    "expected ':'": "Write the line before it as NAME: VALUE, or indent it as a part of the text above.",
    "expected ','": "Close the bracket that is open, or put a comma between two values.",
    "end of stream": "Close the quotation mark or bracket that is open.",
    "sequence entries": "Begin a list on a line of its own.",
    "escape character": "Write two backslashes for one, or use single quotes.",
    "alias": _QUOTE,
    "cannot start": _QUOTE,
    "tag": _QUOTE,
}
"""By what the library says: what to do about it."""


def slip(problem: str) -> tuple[str, str]:
    """What is wrong, and what to do about it, from what the library says."""
    said = " ".join(problem.split())
    if "'\\t'" in said:
        return "a tab stands where YAML takes only spaces", "Write spaces instead of the tab."
    fix = next((fix for words, fix in _MENDING.items() if words in said), "Correct it.")
    return f"this is not YAML: {said}", fix


# --- JSON ---------------------------------------------------------------------------------------------------

_SPACES = frozenset(" \t\n\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(
    r"(?:(?P<bool>true|false)|(?P<null>null)|(?P<int>-?(?:0|[1-9][0-9]*))(?P<float>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))(?![\w.+-])",
    re.ASCII,
)


_STRINGS = JSONDecoder()


def read_json(text: str, limits: Limits = ORDINARY) -> Value:
    """The value of a JSON text. `Malformed` names the line."""
    return _Json(_text_of(text), limits).value()


class _Json:
    """A JSON text from its beginning to its end, without recursion."""

    def __init__(self, text: str, limits: Limits) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._building = Building(limits)

    def value(self) -> Value:
        building = self._building
        while building.root is None:
            top = building.top
            if top is None or top.name is not None or top.kind == "seq":
                self._item(top)
            else:
                self._field(top)
        if self._peek():
            raise self._wrong("something stands after the end")
        return building.root

    def _item(self, top: Open | None) -> None:
        """A value; in a list also its end, and the comma before."""
        if top is not None and top.kind == "seq":
            if self._ends("]"):
                return
            if top.items:
                self._expect(",")
        letter = self._peek()
        line = self._line
        if letter in ("{", "["):
            self._at += 1
            self._building.opened("map" if letter == "{" else "seq", line)
        elif letter == '"':
            self._building.scalar(line, "str", self._string())
        else:
            self._building.scalar(line, *self._plain())

    def _field(self, top: Open) -> None:
        """A name and its colon, or the end of the map."""
        if self._ends("}"):
            return
        if top.fields:
            self._expect(",")
        if self._peek() != '"':
            raise self._wrong("a name in double quotes is missing")
        line = self._line
        self._building.scalar(line, "str", self._string())
        self._expect(":")

    def _ends(self, bracket: str) -> bool:
        if self._peek() != bracket:
            return False
        self._at += 1
        self._building.closed()
        return True

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong(f"'{sign}' is missing")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is no space; empty at the end."""
        letter = self._text[self._at : self._at + 1]
        if letter not in _SPACES:
            return letter
        found = _SPACE.match(self._text, self._at)
        if found:
            self._line += self._text.count("\n", self._at, found.end())  # a string holds none
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _string(self) -> str:
        try:
            text, self._at = _STRINGS.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            said = re.sub(r"( starting)? at$|:.*", "", error.msg)
            raise self._wrong(said[:1].lower() + said[1:]) from None
        return _whole_characters(str(text), self._line)

    def _plain(self) -> tuple[str, str]:
        found = _SCALAR.match(self._text, self._at)
        if found is None:
            raise self._wrong("a value is missing" if self._at >= len(self._text) else "this is no value")
        self._at = found.end()
        kind = next(name for name in ("float", "int", "bool", "null") if found[name])
        return kind, found[0]

    def _wrong(self, message: str) -> Malformed:
        return Malformed(self._line, f"this is not JSON: {message}")


# --- either -------------------------------------------------------------------------------------------------


def read_either(text: str, is_json: bool, most: int, fix: str) -> Value:
    """The value of a text in YAML, or in JSON where it must be. One of more than `most` characters is refused."""
    if len(text) > most:
        raise Malformed(1, f"the text has more than {most:,} characters", fix)
    if is_json:
        return read_json(text)
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            return read_json(text)  # far quicker, and nearly all that begins like this
        except Malformed:
            pass
    return read_yaml(text)
