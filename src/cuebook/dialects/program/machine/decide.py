"""Decides what can be executed without a model: jumps, arithmetic, conditions on variables, explicit calls, returns.

For the position of a frame it returns the effect of the next line, or None if only a model can decide. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects.program.listing import END, Listing, Position, call_named, jump_condition, yield_of
from cuebook.dialects.program.machine.frames import is_private
from cuebook.dialects.program.model import ListingLine
from cuebook.dialects.program.reply.items import Call, Target
from cuebook.dialects.program.values.evaluate import (
    FUNCTIONS,
    DoesNotCoerce,
    NotComputable,
    coerced,
    condition_of,
    evaluate,
    figures,
    is_error,
    is_text,
    judge,
    type_name,
)
from cuebook.dialects.program.values.expressions import (
    CallOf,
    Expression,
    ExpressionError,
    Literal,
    Ref,
    Words,
    call_of,
    expression_of,
    refs_of,
)
from cuebook.dialects.program.values.placeholders import interpolated, mentions
from cuebook.dialects.program.verify.verdicts import Signature

_SET = re.compile(
    r"(?:set\s++)?\$(?P<name>[^\W\d]\w*+)\s*+(?::\s*+(?P<type>[\w.]++(?:\[[\w, ]*+\])?))?\s*+=(?!=)\s*+", re.I
)
_TAIL = re.compile(r"(?<!\s)\s*+;\s*+(?:do not yield|no yield needed|yld\b[^;\"']*+)\s*+\Z", re.IGNORECASE)
_UNTIL = re.compile(r"until\b\s*", re.IGNORECASE)
_UNLESS = re.compile(r"unless\b\s*", re.IGNORECASE)
_OTHERWISE = re.compile(r"(?:else|otherwise)\s*+,?+\s*+(?=if|when)|el(?=if\b)", re.IGNORECASE)
_EACH = re.compile(r"for\s++each\s++\$(?P<item>\w++)(?::\w++)?\s++in\s++\$(?P<list>\w++)\s*+[.:]?+\Z", re.IGNORECASE)
SPEAKING = frozenset({"Say", "SendMessage"})


_KEPT = 2_000
"""The number of parsed lines that are cached."""


@lru_cache(_KEPT)
def _expression(text: str, at: int) -> Expression | None:
    try:
        found: Expression = interpolated(expression_of(text, at))
        return found
    except ExpressionError:
        return None


@lru_cache(_KEPT)
def _called(text: str, at: int) -> CallOf | None:
    try:
        found: CallOf = interpolated(call_of(text, at))
        return found
    except ExpressionError:
        return None


@lru_cache(_KEPT)
def _comparison(text: str) -> tuple[Expression | None, bool]:
    """A condition, and whether it is negated: it ends a loop (`until`) or prevents a jump (`unless`)."""
    until = _UNTIL.match(text) or _UNLESS.match(text)
    return condition_of(text[until.end() :] if until else _OTHERWISE.sub("", text, count=1)), until is not None


# --- effects of a line --------------------------------------------------------------------------------------


class Goes(msgspec.Struct, frozen=True):
    """Moves to another node and does nothing else."""

    node: int


class Sets(msgspec.Struct, frozen=True):
    name: str
    value: Any
    type: str
    node: int


class Iterates(msgspec.Struct, frozen=True):
    """The next item of a `For each`, or its end."""

    name: str
    value: Any
    index: int | None
    """None if no item is left."""
    node: int


class Queues(msgspec.Struct, frozen=True):
    call: Call
    target: str
    type: str
    yields: Target | None
    node: int


class Yields(msgspec.Struct, frozen=True):
    target: Target
    node: int


class Returns(msgspec.Struct, frozen=True):
    value: Any


Done: TypeAlias = Goes | Sets | Iterates | Queues | Yields | Returns


class Spelled(msgspec.Struct, frozen=True):
    """A call as a line spells it out. Arguments may still be words for a model."""

    name: str
    target: str
    """The variable that receives the result; empty if there is none."""
    type: str
    call: CallOf | None
    """None if the arguments, or the text after them, cannot be parsed."""


@lru_cache(_KEPT)
def spelled(line: ListingLine) -> Spelled | None:
    """The call that a QUE or EXE line spells out; None if the line describes it in words."""
    text = _TAIL.sub("", line.text.strip())
    found = _SET.match(text)
    call = _called(text, found.end() if found else 0)
    name = call_named(line) or (call.name if call is not None and line.code == "EXE" else "")
    if not name or name in FUNCTIONS:
        return None
    return Spelled(name, found["name"] if found else "", (found["type"] or "") if found else "", call)


# --- successor ----------------------------------------------------------------------------------------------


def following(listing: Listing, position: Position) -> int | None:
    """The node after a position, or `END`; None if a model decides it."""
    if not listing.lines:
        return None
    if not position.line:
        return 0
    nodes = listing.nodes_at(position)
    if len(nodes) != 1 or position.status == "begun":
        return None
    if position.status == "arrived":
        return nodes[0]
    found = listing.yields[nodes[0] % len(listing.lines)]
    ways = listing.successors(nodes[0])
    if len(ways) != 1 or (found is not None and found.repeats):
        return None
    return ways[0]


# --- deciding -----------------------------------------------------------------------------------------------


class Decider:
    """Decides the effects of one playbook's lines."""

    def __init__(
        self,
        listing: Listing,
        types: Callable[[str], str],
        *,
        known: Callable[[str], bool],
        signatures: Mapping[str, Signature],
        watched: Collection[str],
    ) -> None:
        """`known` returns whether a playbook exists, and `signatures` says how each is called. `watched` contains the
        variables of triggers that only a model can judge: the model must be called whenever one of them is set."""
        self._listing, self._types, self._known, self._watched = listing, types, known, watched
        self._signatures = signatures

    def decide(self, node: int, variables: Mapping[str, Any], loops: Mapping[str, int], previous: str) -> Done | None:
        """The effect of the line at a node; None if a model has to decide. `previous` is the line before it."""
        line = self._listing.line_at(node)
        match line.code:
            case "JMP":
                return self._jump(node, line, variables)
            case "CND":
                return self._condition(node, line, variables, loops, previous)
            case "EXE":
                return self._set(node, line, variables)
            case "QUE":
                return self._call(node, line, variables)
            case "RET":
                return self._return(line, variables)
            case "YLD":
                return self._yield(node)
        return None

    def ways(self, node: int, variables: Mapping[str, Any], loops: Mapping[str, int], previous: str) -> tuple[int, ...]:
        """The possible successors of a node. A condition or jump that can be computed has exactly one."""
        ways = self._listing.successors(node)
        if self._listing.line_at(node).code not in ("CND", "JMP") or len(ways) < 2:
            return ways
        jumps = self._listing.line_at(node).code == "JMP"
        match self.decide(node, variables, loops, previous):
            case Goes(following) if jumps:
                return ways[-1:] if following == ways[-1] else self._listing.jumps(node)
            case Goes(following) | Iterates(_, _, None, following):
                return (following,)
            case Iterates(node=following) if not self.passable(node) and self._does_something(node):
                return (following,)
        return ways

    def _does_something(self, node: int) -> bool:
        """Whether an iteration of a loop does more than a model could do by itself, for one item or for all at once."""
        number = self._listing.line_at(node).number
        below = [line for line in self._listing.lines if line.number.startswith(f"{number}.")]
        return any(
            line.code in ("QUE", "YLD", "RET") or (line.code == "EXE" and not needs_model(line)) for line in below
        )

    def passable(self, node: int) -> bool:
        """Whether an iteration of a loop may consist of lines that a reply need not name, so that it cannot be
        counted."""
        return node in self._listing.reached((node,))

    def item_of(self, node: int) -> tuple[str, str] | None:
        """The names of the item and the list of a `For each`."""
        each = _EACH.match(self._listing.line_at(node).text.strip())
        return (each["item"], each["list"]) if each is not None else None

    def _jump(self, node: int, line: ListingLine, variables: Mapping[str, Any]) -> Done | None:
        ways = self._listing.successors(node)
        condition = jump_condition(line)
        if not condition:
            return Goes(ways[0])
        taken = self._holds(condition, variables)
        return None if taken is None else Goes(ways[0] if taken else ways[-1])

    def _holds(self, text: str, variables: Mapping[str, Any]) -> bool | None:
        """Whether a condition holds; None if a model has to decide."""
        condition, reverse = _comparison(text)
        if condition is None or _failed(condition, variables):
            return None
        try:
            return judge(condition, variables) != reverse
        except NotComputable:
            return None

    def _condition(
        self, node: int, line: ListingLine, variables: Mapping[str, Any], loops: Mapping[str, int], previous: str
    ) -> Done | None:
        ways = self._listing.successors(node)
        if len(ways) == 1:
            return Goes(ways[0])
        each = _EACH.match(line.text.strip())
        if each is not None:
            return self._each(line, each, ways, variables, loops, previous)
        taken = self._holds(line.text.strip(), variables)
        return None if taken is None else Goes(ways[0] if taken else ways[1])

    def _each(
        self,
        line: ListingLine,
        each: re.Match[str],
        ways: tuple[int, ...],
        variables: Mapping[str, Any],
        loops: Mapping[str, int],
        previous: str,
    ) -> Done | None:
        items = variables.get(each["list"])
        inside = previous == line.number or previous.startswith(f"{line.number}.")
        if not isinstance(items, list) or (inside and line.number not in loops) or each["item"] in self._watched:
            return None
        index = loops[line.number] + 1 if inside else 0
        if index >= len(items):
            return Iterates(each["item"], None, None, ways[1])
        return Iterates(each["item"], items[index], index, ways[0])

    def _set(self, node: int, line: ListingLine, variables: Mapping[str, Any]) -> Done | None:
        text = _TAIL.sub("", line.text.strip())
        found = _SET.match(text)
        ways = self._listing.successors(node)
        if found is None or self._listing.yields[node] is not None or len(ways) != 1 or found["name"] in self._watched:
            return None
        type = found["type"] or self._types(found["name"])
        value = self._read(text, found.end(), variables, type)
        fitted = None if value is None else _fitted(value.value, type)
        return None if fitted is None else Sets(found["name"], fitted.value, found["type"] or "", ways[0])

    def _call(self, node: int, line: ListingLine, variables: Mapping[str, Any]) -> Done | None:
        text = _TAIL.sub("", line.text.strip())
        found = _SET.match(text)
        inline, ways = self._listing.yields[node], self._listing.successors(node)
        if not call_named(line) or len(ways) != 1 or (inline is not None and (inline.repeats or inline.target is None)):
            return None
        call = _called(text, found.end() if found else 0)
        target = found["name"] if found else ""
        if call is None or not self._explicit(call, variables) or target in self._watched:
            return None
        type = found["type"] or "" if found else ""
        item = Call(call.name, call.args, call.named)
        return Queues(item, target, type, inline.target if inline else None, ways[0])

    def _explicit(self, call: CallOf, variables: Mapping[str, Any]) -> bool:
        """Whether every argument has a value. A message is an instruction, unless it is a variable."""
        speaks = call.name.rpartition(".")[2] in SPEAKING
        values = [*call.args, *(value for _, value in call.named)]
        if speaks:
            *targets, message = values or [Words("")]
            to_user = all(isinstance(one, (Words, Literal)) for one in targets)
            return to_user and isinstance(message, Ref) and self.value(message, variables) is not None
        if not self._known(call.name):
            return True  # the result is an error, and a model could not do better
        signature = self._signatures.get(call.name)
        types = {one.name: one.type for one in signature.params} if signature else {}
        given = [*zip(types, call.args, strict=False), *call.named]
        if any(is_text(types.get(name, "")) and figures(value) for name, value in given):
            return False  # it looks like arithmetic, but is text without quotes
        return all(self.value(value, variables) is not None for value in values)

    def _return(self, line: ListingLine, variables: Mapping[str, Any]) -> Done | None:
        text = line.text.strip()
        if not text:
            return Returns(None) if returns_nothing(self._listing.returns) else None
        value = self._read(text, 0, variables, self._listing.returns)
        fitted = None if value is None else _fitted(value.value, self._listing.returns)
        return None if fitted is None else Returns(fitted.value)

    def _yield(self, node: int) -> Done | None:
        found, ways = self._listing.yields[node % len(self._listing.lines)], self._listing.successors(node)
        if found is None or found.repeats or found.target is None or found.target in ("meeting", "agent"):
            return None
        return Yields(found.target, ways[0] if ways else END)

    # --- values ---

    def _read(self, text: str, at: int, variables: Mapping[str, Any], type: str) -> Literal | None:
        expression = _expression(text, at)
        if expression is None or (is_text(type) and figures(expression)):
            return None
        return self.value(expression, variables)

    def value(self, expression: Expression, variables: Mapping[str, Any]) -> Literal | None:
        """The value of an expression; None for words, text that mentions a variable, an unknown variable, an error, or a
        call."""
        if has_words(expression) or mentions(expression) or _failed(expression, variables):
            return None
        try:
            return Literal(evaluate(expression, variables))
        except NotComputable:
            return None


def needs_model(line: ListingLine) -> bool:
    """Whether, judging by its text, only a model can execute a line, whatever the values of its variables."""
    text = _TAIL.sub("", line.text.strip())
    found = _SET.match(text)
    match line.code:
        case "JMP":
            condition = jump_condition(line)
            return bool(condition) and _comparison(condition)[0] is None
        case "YLD":
            target = yield_of(line)
            return target is None or target.repeats or target.target in (None, "meeting", "agent")
        case "EXE":
            expression = _expression(text, found.end()) if found else None
            return expression is None or has_words(expression) or mentions(expression)
        case "QUE":
            call = _called(text, found.end() if found else 0) if call_named(line) else None
            if call is None or call.name.rpartition(".")[2] in SPEAKING:
                return True
            return has_words((call.args, call.named)) or mentions((call.args, call.named))
        case "RET":
            expression = _expression(text, 0) if text else Literal(None)
            return expression is None or has_words(expression) or mentions(expression)
    return True


_TYPED = re.compile(r"\$([^\W\d]\w*+):\w")


def asked_for(listing: Listing, number: str) -> list[str]:
    """The typed variables that the user was asked for at a line that waited for them."""
    found = listing.by_number.get(number, [])
    index = found[0] if len(found) == 1 else None
    waited = None if index is None else listing.yields[index]
    if index is None or waited is None or waited.target != "user" or waited.repeats:
        return []
    asking = listing.lines[index - 1] if listing.lines[index].code == "YLD" and index else listing.lines[index]
    return _TYPED.findall(asking.text) if asking.code == "QUE" else []


@lru_cache(_KEPT)
def reads_of(line: ListingLine) -> frozenset[str]:
    """The variables used in the computation of a line; empty if it leaves something to a model."""
    text = _TAIL.sub("", line.text.strip())
    found = _SET.match(text)
    at = found.end() if found else 0
    value: Any = None
    match line.code:
        case "RET":
            value = _expression(text, 0) if text else None
        case "EXE":
            value = _expression(text, at) if found else None
        case "QUE":
            value = _called(text, at) if call_named(line) else None
        case "CND":
            value = _comparison(text)[0]
        case "JMP":
            value = _comparison(jump_condition(line))[0]
    return frozenset() if value is None or has_words(value) or mentions(value) else frozenset(refs_of(value))


def obstacle(line: ListingLine, variables: Mapping[str, Any]) -> str:
    """Why the value of a line cannot be computed; empty if it can be, or is described in words."""
    text = _TAIL.sub("", line.text.strip())
    found = _SET.match(text)
    computes = line.code == "RET" or (line.code == "EXE" and found is not None)
    expression = _expression(text, found.end() if found else 0) if computes and text else None
    if expression is None or has_words(expression) or mentions(expression) or any(map(is_private, refs_of(expression))):
        return ""
    try:
        evaluate(expression, variables)
    except NotComputable as why:
        return str(why)
    return ""


def foreseen(listing: Listing, index: int) -> bool:
    """Whether a line needs no model if its variables have suitable values, judging by its text."""
    line = listing.lines[index]
    text = line.text.strip()
    if line.code == "CND":
        computed = _EACH.match(text) is not None or _comparison(text)[0] is not None
        return computed or len(listing.successors(index)) == 1
    if line.code == "QUE" and call_named(line) in SPEAKING:
        call = _called(_TAIL.sub("", text), 0)
        return call is not None and isinstance([None, *call.args, *(value for _, value in call.named)][-1], Ref)
    return not needs_model(line)


def returns_nothing(returns: str) -> bool:
    return returns.strip().lower() in ("", "any", "void") or type_name(returns) == "null"


def _fitted(value: Any, type: str) -> Literal | None:
    try:
        return Literal(coerced(value, type).value)
    except DoesNotCoerce:
        return None


def _failed(expression: Expression, variables: Mapping[str, Any]) -> bool:
    """Whether the expression uses the result of a failed call."""
    return any(is_error(variables.get(name)) for name in refs_of(expression))


def has_words(value: Any) -> bool:
    """Whether the value contains text without quotes, which is an instruction."""
    if isinstance(value, Words):
        return True
    if isinstance(value, tuple):
        return any(has_words(one) for one in value)
    if isinstance(value, msgspec.Struct) and not isinstance(value, Literal):
        return any(has_words(getattr(value, field)) for field in value.__struct_fields__)
    return False
