"""Parses the headings of agents and playbooks: names, parameters with types and defaults, and return types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from cuebook.dialects.program.model import Param
from cuebook.dialects.program.values.evaluate import NotComputable, evaluate
from cuebook.dialects.program.values.expressions import ExpressionError, expression_of

AgentKind = Literal["ai", "human", "mcp"]

_KIND = re.compile(r"(?P<title>.*\S)[ \t]*+:[ \t]*+(?P<kind>ai|human|mcp)", re.IGNORECASE)
_MARK = re.compile(r"(?P<mark>public|export|hidden)[ \t]*+:[ \t]*+", re.IGNORECASE)
_WORD = re.compile(r"\w++")
_PARAM = re.compile(r"\$?(?P<name>[^\W\d]\w*+)[ \t]*+(?P<rest>[:=].*)?", re.DOTALL)
_PIECE = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[(\[{]|[)\]}]|[^\"'()\[\]{},]++|.", re.DOTALL)


class Unreadable(ValueError):
    """A heading whose parameters cannot be parsed."""


class Heading(msgspec.Struct, frozen=True):
    name: str
    params: tuple[Param, ...] = ()
    returns: str = ""
    metadata: dict[str, Any] = {}


def agent_heading(title: str) -> tuple[str, AgentKind]:
    """The name and kind of an agent."""
    found = _KIND.fullmatch(title)
    kind: AgentKind = found["kind"].lower() if found else "ai"  # type: ignore[assignment]
    return name_of(found["title"] if found else title), kind


def playbook_heading(title: str) -> Heading:
    """Parse `public: Refund($order: str, $days: int = 3) -> bool`, or a title in plain words."""
    metadata: dict[str, Any] = {}
    while mark := _MARK.match(title):
        metadata[mark["mark"].lower()] = True
        title = title[mark.end() :]
    title, returns = _returns(title)
    before, bracket, inside = title.partition("(")
    if bracket and inside.rstrip().endswith(")"):
        try:
            return Heading(name_of(before), params_of(inside.rstrip()[:-1]), returns, metadata)
        except Unreadable:
            if before.isidentifier():
                raise
    elif bracket and before.isidentifier():
        raise Unreadable("the parenthesis is not closed")
    return Heading(name_of(title), (), returns, metadata)


def _returns(title: str) -> tuple[str, str]:
    """The title, and the type after the last arrow outside the parameters."""
    before, arrow, type = title.rpartition("->")
    if not arrow or before.count("(") > before.count(")"):
        return title.strip(), ""
    return before.strip(), type.strip()


def name_of(title: str) -> str:
    """A title as a name: `Validate order id` becomes `ValidateOrderId`. Empty if no letters remain."""
    title = title.strip()
    if title.isidentifier():
        return title
    words = _WORD.findall(title.replace("'", "").replace("’", ""))
    name = "".join(f"{word[0].upper()}{word[1:]}" for word in words)
    return name if not name or name.isidentifier() else f"_{name}"


# --- parameters ---------------------------------------------------------------------------------------------


def params_of(text: str) -> tuple[Param, ...]:
    """Parse a list of parameters. Raise `Unreadable` if it is invalid."""
    params: dict[str, Param] = {}
    for piece in _split(text, ","):
        if not piece.strip() and not params:
            continue
        param = _param(piece.strip())
        if param.name in params:
            raise Unreadable(f"there are two parameters named '{param.name}'")
        params[param.name] = param
    return tuple(params.values())


def _param(text: str) -> Param:
    found = _PARAM.fullmatch(text)
    if found is None:
        raise Unreadable(f"'{text[:40]}' is not a parameter")
    rest = found["rest"] or ""
    type, *defaults = _split(rest, "=")
    if len(defaults) > 1:
        raise Unreadable(f"'{text[:40]}' has two defaults")
    type = " ".join(type.removeprefix(":").split())
    if not defaults:
        return Param(found["name"], type)
    return Param(found["name"], type, _default(defaults[0]), True)


def _default(text: str) -> Any:
    try:
        return evaluate(expression_of(text.strip()), {})
    except (ExpressionError, NotComputable):
        raise Unreadable(f"the default '{text.strip()[:40]}' is not a plain value") from None


def _split(text: str, sign: str) -> Iterator[str]:
    """Split text at a sign, except within brackets and quotes."""
    depth, begin = 0, 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece in ("(", "[", "{"):
            depth += 1
        elif piece in (")", "]", "}"):
            depth -= 1
        elif depth == 0 and sign in piece and piece[0] not in "\"'":
            at = found.start()
            while (at := text.find(sign, at, found.end())) >= 0:
                yield text[begin:at]
                begin = at = at + 1
    yield text[begin:]
