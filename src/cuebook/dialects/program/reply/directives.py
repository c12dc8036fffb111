"""Parses the spans that the scanner cuts out of a reply: directives, and lines that begin with a keyword."""

from __future__ import annotations

import re

from cuebook.dialects.program.reply.items import (
    Artifact,
    Assign,
    Call,
    Check,
    Defect,
    Plan,
    Prose,
    Recap,
    ReplyItem,
    Return,
    SaveArtifact,
    Step,
    Target,
    Trigger,
    Var,
    What,
    Yield,
    YieldCheck,
)
from cuebook.dialects.program.reply.scanner import Span
from cuebook.dialects.program.values.expressions import (
    CallOf,
    Expression,
    ExpressionError,
    Literal,
    Ref,
    arguments_of,
    call_of,
    expression_of,
)

# --- lines --------------------------------------------------------------------------------------------------

_KEYWORD = re.compile(
    r"""\s*+(?:
    (?P<trig>trig(?:\s++(?:on|for)\b[^?\n]*+)?\s*+\?)
  | (?P<yldq>yld\s*+\?)
  | (?P<what>(?:what|wut)\?)
  | (?P<yld>yld\b(?!\?))
  | (?P<recap>recap\b\s*+[–—:-]++)
  | (?P<plan>plan\b\s*+[–—:-]++)
  | (?P<bare>(?:Step|Var|Return|Trigger)\[)
    )""",
    re.VERBOSE,
)
_OPAQUE = frozenset({"yldq", "what"})
_TARGET = re.compile(r"\s*+(?:for\b\s*+)?+(?:the\b\s*+)?+(?P<word>[^\s.,;:`]++)?+[ \t]*+(?P<rest>[^\n`]*+)")
_TARGETS: dict[str, Target] = {
    "user": "user",
    "human": "user",
    "call": "call",
    "calls": "call",
    "exit": "exit",
    "return": "return",
    "finished": "return",
    "meeting": "meeting",
    "agent": "agent",
}
_NUMBER_OR_NAME = re.compile(r"[\w-]++")


def opaque(text: str, line_start: bool, headed: bool) -> bool:
    """Whether back-ticks have no meaning in a line with this beginning: a recap, a plan or a thought."""
    found = _KEYWORD.match(text)
    if found is None:
        return False
    return found.lastgroup in _OPAQUE or (found.lastgroup in ("recap", "plan") and line_start and not headed)


def line_of(span: Span, *, headed: bool) -> ReplyItem | None:
    """Parse a piece of text. Return None for the `trig?` before a trigger, because the trigger follows."""
    place = {"start": span.start, "end": span.end}
    found = _KEYWORD.match(span.text)
    kind = found.lastgroup if found else ""
    rest = span.text[found.end() :].strip() if found else span.text.strip()
    if kind == "trig":
        return None if span.before_directive and not rest else Check(rest, **place)
    if kind == "yldq":
        return YieldCheck(rest, **place)
    if kind == "what":
        return What(rest, **place)
    if kind == "yld":
        return _yield(span, found.end() if found else 0)
    if kind == "bare" and span.line_start and found:
        at = span.start + found.start("bare")
        return Defect("S2", "a directive is written without back-ticks", "Write it as `...`.", start=at, end=span.end)
    if kind in ("recap", "plan") and span.line_start and not headed:
        return (Recap if kind == "recap" else Plan)(rest, **place)
    return Prose(span.text.strip(), **place)


def _yield(span: Span, at: int) -> ReplyItem:
    found = _TARGET.match(span.text, at)
    word = found["word"] if found else None
    place = {"start": span.start, "end": span.end}
    if not found or not word:
        return Defect("S2", "the yield has no target", "Write 'yld user', 'yld call' or 'yld exit'.", **place)
    target = _TARGETS.get(word.lower())
    if target is None and word[0].islower():
        fix = f"Write 'yld user', 'yld call', 'yld return' or 'yld exit'; for an agent 'yld for agent {word}'."
        return Defect("S2", f"unknown yield target '{word}'", fix, **place)
    if target is None:
        return Yield("agent", f"{word} {found['rest']}".strip(" ."), **place)
    if target not in ("meeting", "agent"):
        return Yield(target, "", **place)
    name = _NUMBER_OR_NAME.match(found["rest"])
    return Yield(target, name[0] if name else "", **place)


# --- directives ---------------------------------------------------------------------------------------------

_HEAD = re.compile(
    r"\s*+(?:(?P<name>[^\W\d][\w.]*+)\s*+(?P<open>[\[(])|\$(?P<target>\w++)(?P<more>[^=(]*+)(?P<is>=?+))"
)
_STEP = re.compile(
    r"""\s*+(?P<quote>["']?+)\s*+(?P<playbook>[^:"'\]\s]++(?:\s++[^:"'\]\s]++)*+)\s*+:\s*+
    (?:(?P<line>\d{1,4}(?:\.\d{1,4})*+)|(?P<other>[TN]\d{1,4}))(?:\s*+:\s*+(?P<code>[A-Za-z]{3}))?\s*+(?P=quote)\s*+\Z""",
    re.VERBOSE,
)
_VAR = re.compile(r"\s*+\$?+(?P<name>[^\W\d]\w*+)\s*+(?::\s*+(?P<type>[\w.]++(?:\[[\w\s,.|\[\]]*\])?))?\s*+,")
_TYPE = re.compile(r"\s*+(?::\s*+(?P<type>[\w.]++(?:\[[\w\s,.|\[\]]*\])?))?\s*+\Z")
_STRAY = re.compile(r"\$(?P<name>[^\W\d]\w*+)\s*+(?P<type>:\s*+[\w.]++)?+\s*+=\Z")
_DIRECTIVES = ("Step", "Var", "Return", "Trigger", "Artifact")


class _Unreadable(Exception):
    def __init__(self, message: str, at: int = 0, fix: str = "") -> None:
        self.message, self.at, self.fix = message, at, fix


def is_stray(text: str) -> bool:
    """Whether the text names the result of the call that follows it: `$x = ` before a directive."""
    return _STRAY.match(text) is not None


def directive_of(span: Span, before: Prose | None = None) -> ReplyItem:
    """Parse a directive. Return a `Defect` if it is invalid."""
    if span.broken:
        fix = "Close it, and escape quotes inside strings."
        return Defect("S2", span.broken, fix, start=span.broken_at, end=span.end)
    try:
        return _item(span, before)
    except ExpressionError as error:
        message, at, fix = error.message, error.at, ""
    except _Unreadable as error:
        message, at, fix = error.message, error.at, error.fix
    return Defect(
        "S2", message, fix or "Write it in the format of the contract.", start=span.start + 1 + at, end=span.end
    )


def _item(span: Span, before: Prose | None) -> ReplyItem:
    text = span.text.rstrip()
    head = _HEAD.match(text)
    if head is None:
        raise _Unreadable("this is not a directive")
    if head["target"]:
        return _assignment(text, head, span)
    if head["open"] == "[":
        return _bracketed(text, head["name"], head.end(), span)
    if head["name"] in _DIRECTIVES:
        raise _Unreadable(f"{head['name']} needs square brackets", head.start("open"), f"Write {head['name']}[...].")
    call = _call(call_of(text), span)
    if call.name == "SaveArtifact":
        return _saved(call)
    stray = _STRAY.match(before.text) if before else None
    if stray and before:
        type = (stray["type"] or "").lstrip(": ")
        return Assign(stray["name"], call, type, start=before.start, end=span.end)
    return call


def _call(call: CallOf, span: Span) -> Call:
    return Call(call.name, call.args, call.named, start=span.start, end=span.end)


def _assignment(text: str, head: re.Match[str], span: Span) -> ReplyItem:
    place = {"start": span.start, "end": span.end}
    typed = _TYPE.match(head["more"])
    if not head["is"]:
        raise _Unreadable("a variable cannot be called", head.start("target") - 1, "Name the playbook.")
    if text[head.end() : head.end() + 1] == "=":
        return Prose(f"`{text}`", **place)  # a comparison mentioned in passing
    if typed is None:
        raise _Unreadable("this is not a type", head.start("more"), "Write $name:type = Playbook(...).")
    value = expression_of(text, head.end())
    name, type = head["target"], typed["type"] or ""
    if isinstance(value, CallOf):
        return Assign(name, _call(value, span), type, **place)
    return Var(name, value, type, **place)


def _bracketed(text: str, name: str, at: int, span: Span) -> ReplyItem:
    place = {"start": span.start, "end": span.end}
    if name not in _DIRECTIVES:
        if name[0].islower():
            return Prose(f"`{text}`", **place)
        raise _Unreadable(f"unknown directive '{name}'", fix=f"Use {', '.join(_DIRECTIVES)} or a call.")
    if not text.endswith("]"):
        raise _Unreadable("the closing bracket must be last within the back-ticks", at - 1)
    inner = text[:-1]
    match name:
        case "Step":
            found = _step(inner, at)
            line = found["line"]
            number = ".".join(part.zfill(2) for part in line.split(".")) if line else found["other"]
            return Step(found["playbook"], number, (found["code"] or "").upper(), **place)
        case "Trigger":
            found = _step(inner, at)
            id = f"T{int(found['line'].split('.')[0])}" if found["line"] else found["other"]
            return Trigger(found["playbook"], id, (found["code"] or "").upper(), **place)
        case "Return":
            return Return(expression_of(inner, at) if inner[at:].strip() else None, **place)
        case "Artifact":
            return _artifact(arguments_of(text, at), at, span)
    var = _VAR.match(inner, at)
    if var is None:
        raise _Unreadable("a variable and its value are expected here", at, "Write Var[$name, value].")
    if not inner[var.end() :].strip():
        raise _Unreadable("the value is missing", var.end(), "Write Var[$name, value].")
    return Var(var["name"], expression_of(inner, var.end()), var["type"] or "", **place)


def _step(inner: str, at: int) -> re.Match[str]:
    found = _STEP.match(inner, at)
    if found is None:
        raise _Unreadable(f"{inner[at:][:60]} does not name a line", at, 'Write "Playbook:02.01:QUE".')
    return found


def _artifact(given: tuple[Expression, ...], at: int, span: Span) -> Artifact:
    if len(given) != 3 or not isinstance(given[0], Ref):
        raise _Unreadable("an artifact needs a name, a summary and content", at, 'Write Artifact[$name, "...", "..."].')
    return Artifact(given[0].name, given[1], given[2], start=span.start, end=span.end)


_SAVED = ("name", "summary", "content")


def _saved(call: Call) -> SaveArtifact:
    given = dict(zip(_SAVED, call.args, strict=False)) | {
        "content" if name == "value" else name: value for name, value in call.named
    }
    given.setdefault("summary", Literal(""))
    if set(given) != set(_SAVED) or len(call.args) > 3:
        raise _Unreadable(
            "an artifact needs a name, a summary and content", 0, 'Write SaveArtifact($name, "...", "...").'
        )
    return SaveArtifact(given["name"], given["summary"], given["content"], start=call.start, end=call.end)
