"""Reads one directive line: `@output`, `@elicit`, `@prompt` or `@tool`, independent of its step.

Everything here takes time proportional to the length of the line.
"""

from __future__ import annotations

import re
from typing import Literal, cast

import msgspec

from cuebook.dialects.markdown.model import Elicitation, Output, PromptUse, ToolUse
from cuebook.dialects.markdown.parse.declarations import OUTPUT_TYPES
from cuebook.kernel.effects import QuestionType

DirectiveKind = Literal["output", "elicit", "prompt", "tool"]
Use = Output | Elicitation | PromptUse | ToolUse
Flaw = Literal["malformed", "elicit_type", "elicit_default", "prompt_scheme", "tool_arguments"]

SCHEMES = ("library", "file", "mcp")
QUESTIONS = ("input", "confirm", "select")

_WORD = re.compile(r"\w+", re.ASCII)
_QUOTED = re.compile(r'"([^"]*)"')
_OUTPUT = re.compile(
    r'@output\((\w+)(?:\s*:\s*(\w+))?((?:,\s*"[^"]*")*)(?:,\s*extract:"(\w+)")?\)',
    re.ASCII,
)
_DEFAULT = re.compile(r',\s*default:"((?:[^"\\]|\\.)*)"\Z', re.ASCII)
_ESCAPED = re.compile(r'\\(["\\])')
_VARIABLE = re.compile(r"\{\{(\w+)\}\}", re.ASCII)


class Directive(msgspec.Struct, frozen=True, gc=False):
    kind: DirectiveKind
    line: int
    use: Use | None
    """None if the directive is ignored; `flaw` is the reason."""
    flaw: Flaw | None = None
    said: str = ""
    """The invalid part."""

    @property
    def is_text(self) -> bool:
        """Whether the line stays in the step's text like any other line."""
        return self.flaw == "malformed"


def read(text: str, line: int) -> Directive:
    """Reads a line that begins with one of the four directives and `(`. The line has no surrounding whitespace."""
    kind = cast(DirectiveKind, text[1 : text.index("(")])
    if not text.endswith(")"):
        return Directive(kind, line, None, "malformed")
    return _READERS[kind](text, line)


def _output(text: str, line: int) -> Directive:
    found = _OUTPUT.fullmatch(text)
    if found is None:
        return Directive("output", line, None, "malformed")
    name, kind, quoted, extract = found.groups()
    type_ = "" if kind is None else OUTPUT_TYPES.get(kind.lower(), "string")
    # Other implementations keep options only for an enum.
    options = tuple(_QUOTED.findall(quoted)) if type_ == "enum" else ()
    return Directive("output", line, Output(name, type_, options, extract or "", line))


def _elicit(text: str, line: int) -> Directive:
    inner = text[len("@elicit(") : -1]
    word = _WORD.match(inner)
    rest = "" if word is None else inner[word.end() :]
    if word is None or (rest and (rest[0] != "," or len(rest) == 1)):
        return Directive("elicit", line, None, "malformed")
    type_ = word[0].lower()
    if type_ not in QUESTIONS:
        return Directive("elicit", line, None, "elicit_type", type_)
    strings, default = _question(rest)
    prompt, *options = strings or [""]
    if default is not None:
        fitting = _fitting(type_, options, default)
        if fitting is None:
            return Directive("elicit", line, None, "elicit_default", default)
        default = fitting
    question = Elicitation(cast(QuestionType, type_), prompt, tuple(options), default, line)
    return Directive("elicit", line, question)


def _question(rest: str) -> tuple[list[str], str | None]:
    """The quoted strings, and the default that may follow them."""
    found = _DEFAULT.search(rest)
    # An odd number of quotes before it means that it is part of a quoted string.
    if found is None or rest.count('"', 0, found.start()) % 2:
        return _QUOTED.findall(rest), None
    return _QUOTED.findall(rest, 0, found.start()), _ESCAPED.sub(r"\1", found[1])


def _fitting(type_: str, options: list[str], default: str) -> str | None:
    if type_ == "confirm":
        return default.lower() if default.lower() in ("yes", "no") else None
    if type_ == "select":
        return default if default in options else None
    return default


def _prompt(text: str, line: int) -> Directive:
    argument = text[len("@prompt(") : -1].strip()
    if not argument:
        return Directive("prompt", line, None, "malformed")
    scheme, colon, _ = argument.partition(":")
    if colon and scheme not in SCHEMES:
        return Directive("prompt", line, None, "prompt_scheme", scheme)
    return Directive("prompt", line, PromptUse(argument, line))


def _tool(text: str, line: int) -> Directive:
    inner = text[len("@tool(") : -1]
    if not inner:
        return Directive("tool", line, None, "malformed")
    connection, rest = read_name(inner)
    tool, arguments = read_name(rest)
    if not connection or not tool:
        return Directive("tool", line, None, "tool_arguments", inner.strip())
    return Directive("tool", line, ToolUse(connection, tool, arguments.strip(), line))


def read_name(text: str) -> tuple[str, str]:
    """A name, quoted or not, and the text after the following comma."""
    text = text.lstrip()
    quote = text[:1]
    if quote in ('"', "'") and (closed := text.find(quote, 1)) > 0:
        after = text[closed + 1 :].lstrip()
        if not after or after[0] == ",":
            return text[1:closed], after[1:]
    name, _, after = text.partition(",")
    return name.strip(), after


def variable_of(argument: str) -> str | None:
    """The name in `@prompt({{name}})`."""
    found = _VARIABLE.fullmatch(argument)
    return found[1] if found else None


_READERS = {"output": _output, "elicit": _elicit, "prompt": _prompt, "tool": _tool}
