"""Reads one directive line: `@output`, `@elicit`, `@prompt`, `@tool` or `@approve`, independent of its step.

Everything here takes time proportional to the length of the line.
"""

from __future__ import annotations

import json
import re
from typing import Literal, cast

import msgspec

from cuebook.dialects.markdown.model import Approval, Elicitation, Output, PromptUse, ToolUse
from cuebook.dialects.markdown.parse.declarations import OUTPUT_TYPES
from cuebook.dialects.people import MOST_CHANGES, MOST_CHANGES_BY_DEFAULT, MOST_VOTES, flaw_of, too_few
from cuebook.formats.forms import DRAFT, filled_in
from cuebook.formats.schema import flaws
from cuebook.formats.suggestions import meant
from cuebook.kernel.effects import QuestionType
from cuebook.kernel.errors import BadInput
from cuebook.kernel.votes import Rule

DirectiveKind = Literal["output", "elicit", "prompt", "tool", "approve"]
Use = Output | Elicitation | PromptUse | ToolUse | Approval
Flaw = Literal[
    "malformed", "elicit_type", "elicit_default", "elicit_form", "prompt_scheme", "tool_arguments", "approve"
]

SCHEMES = ("library", "file", "mcp")
QUESTIONS = ("input", "confirm", "select")
FORM = "form"
"""The type of question that the format does not have."""

_WORD = re.compile(r"\w+", re.ASCII)
_QUOTED = re.compile(r'"([^"]*)"')
_OUTPUT = re.compile(
    r'@output\((\w+)(?:\s*:\s*(\w+))?((?:,\s*"[^"]*")*)(?:,\s*extract:"(\w+)")?\)',
    re.ASCII,
)
_DEFAULT = re.compile(r',\s*default:"((?:[^"\\]|\\.)*)"\Z', re.ASCII)
_ESCAPED = re.compile(r'\\(["\\])')
_BY = re.compile(r',\s*by:"([^"]*)"\s*\Z', re.ASCII)
_FIRST = re.compile(r'\s*,\s*"([^"]*)"\s*,\s*', re.ASCII)
_LATER = re.compile(r"\s*,\s*default:", re.ASCII)
_DECODER = json.JSONDecoder()
_FORM = 'Write @elicit(form, "Question?", {"type": "object", "properties": {...}}).'
_PART = re.compile(r'\s*(?:(\w+)\s*:\s*)?("(?:[^"\\]|\\.)*"|[^,"]+?)\s*(?:,|\Z)', re.ASCII)
_OF_APPROVAL = ("text", "show", "by", "votes", "denials", "different_person", "changes", "at_most")
_APPROVE = 'Write @approve("Question?", show:"reply", by:"alice, role:admin", votes:2, changes:"2").'
_CONFIRMED = {"yes": True, "true": True, "no": False, "false": False}
_VARIABLE = re.compile(r"\{\{(\w+)\}\}", re.ASCII)


class Directive(msgspec.Struct, frozen=True, gc=False):
    kind: DirectiveKind
    line: int
    use: Use | None
    """None if the directive is ignored; `flaw` is the reason."""
    flaw: Flaw | None = None
    said: str = ""
    """The invalid part, or what is wrong."""
    fix: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the line stays in the step's text like any other line."""
        return self.flaw == "malformed"


def read(text: str, line: int) -> Directive:
    """Reads a line that begins with one of the directives and `(`. The line has no surrounding whitespace."""
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
    if type_ == FORM:
        return _form(rest, line)
    if type_ not in QUESTIONS:
        return Directive("elicit", line, None, "elicit_type", type_)
    rest, by, wrong = _answerers(rest)
    if wrong is not None:
        return Directive("elicit", line, None, "elicit_form", *wrong)
    strings, default = _question(rest)
    prompt, *options = strings or [""]
    if default is not None:
        fitting = _fitting(type_, options, default)
        if fitting is None:
            return Directive("elicit", line, None, "elicit_default", default)
        default = fitting
    question = Elicitation(cast(QuestionType, type_), prompt, tuple(options), default, line, by=by)
    return Directive("elicit", line, question)


def _answerers(rest: str) -> tuple[str, tuple[str, ...], tuple[str, str] | None]:
    """The text without the list of people that may end it, the list, and what is wrong with it."""
    found = _BY.search(rest)
    if found is None or rest.count('"', 0, found.start()) % 2:
        return rest, (), None
    by, wrong = _people(found[1])
    return rest[: found.start()], by, wrong


def _people(text: str) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    flaws = (flaw_of(name) for name in names)
    return names, next((flaw for flaw in flaws if flaw is not None), None)


def _form(rest: str, line: int) -> Directive:
    """Reads the rest of `@elicit(form, "question", {schema}, default:{...}, by:"alice")`."""

    def wrong(words: str, fix: str = _FORM) -> Directive:
        return Directive("elicit", line, None, "elicit_form", words, fix)

    rest, by, flaw = _answerers(rest)
    if flaw is not None:
        return wrong(*flaw)
    asked = _FIRST.match(rest)
    if asked is None:
        return wrong("a form needs a question and a JSON Schema.")
    try:
        schema, at = _DECODER.raw_decode(rest, asked.end())
        after = _LATER.match(rest, at)
        default, at = _DECODER.raw_decode(rest, after.end()) if after is not None else (None, at)
    except (ValueError, RecursionError) as error:
        return wrong(f"its schema and default must be JSON ({error}).")
    if rest[at:].strip():
        return wrong(f"'{rest[at:].strip()[:60]}' is not expected here.")
    if not isinstance(schema, dict):
        return wrong("its schema must be a JSON object.")
    for _, why in flaws(schema, DRAFT):
        return wrong(f"its schema cannot be used: {why}.", "Correct the schema.")
    try:
        answer = None if after is None else filled_in(schema, default)
    except BadInput as error:
        return wrong(f"its default does not fit: {error.message}", error.fix)
    return Directive("elicit", line, Elicitation("form", asked[1], (), answer, line, schema, by))


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


def _approve(text: str, line: int) -> Directive:
    """Reads `@approve("question", show:"reply", by:"alice, role:admin", votes:2, changes:"2")`."""
    inner, position = text[len("@approve(") : -1], 0
    fields: dict[str, str] = {}
    while position < len(inner):
        found = _PART.match(inner, position)
        if found is None or (found[1] is None and (position or not found[2].startswith('"'))):
            return Directive(
                "approve", line, None, "approve", f"'{inner[position:].strip()[:60]}' is unclear.", _APPROVE
            )
        name = found[1] or "text"
        if name not in _OF_APPROVAL:
            return Directive("approve", line, None, "approve", f"unknown field '{name}'.", meant(name, _OF_APPROVAL))
        said = found[2].strip()
        fields[name] = _ESCAPED.sub(r"\1", said[1:-1]) if said.startswith('"') else said
        position = found.end()
    made, wrong = _approval(fields, line, text)
    return Directive("approve", line, made) if wrong is None else Directive("approve", line, None, "approve", *wrong)


def _approval(fields: dict[str, str], line: int, written: str) -> tuple[Approval | None, tuple[str, str] | None]:
    numbers = {}
    most = {"votes": MOST_VOTES, "denials": MOST_VOTES, "at_most": MOST_CHANGES}
    for name, limit in most.items():
        said = fields.get(name, "")
        if said and not (said.isdecimal() and len(said) < 5 and 1 <= int(said) <= limit):
            return None, (f"{name} must be a whole number from 1 to {limit}, not '{said[:60]}'.", "Correct it.")
        numbers[name] = int(said) if said else 0
    other = _CONFIRMED.get(fields.get("different_person", "no").lower())
    if other is None:
        return None, ("different_person must be yes or no.", "Correct it.")
    by, flaw = _people(fields.get("by", ""))
    flaw = flaw or too_few(by, numbers["votes"] or 1)
    if flaw is not None:
        return None, flaw
    to = tuple(dict.fromkeys(one.strip() for one in fields.get("changes", "").split(",") if one.strip()))
    rule = Rule(by, numbers["votes"] or 1, numbers["denials"] or 1, other, to)
    shown = tuple(dict.fromkeys(one.strip() for one in fields.get("show", "").split(",") if one.strip()))
    at_most = (numbers["at_most"] or MOST_CHANGES_BY_DEFAULT) if to else 0
    return Approval(fields.get("text", ""), shown, rule, at_most, line, written), None


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


_READERS = {"output": _output, "elicit": _elicit, "prompt": _prompt, "tool": _tool, "approve": _approve}
