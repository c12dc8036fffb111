"""Evaluates expressions with given variables, and coerces values to declared types. Bounded; nothing is executed.

An expression that needs a model, a call or an unknown variable is `NotComputable`, never a guess.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import msgspec

from cuebook.dialects.program.values.expressions import (
    Binary,
    CallOf,
    Choice,
    Expression,
    ExpressionError,
    Field,
    Filled,
    Item,
    ListOf,
    Literal,
    Ref,
    Slice,
    TableOf,
    Unary,
    Words,
    expression_of,
)

_LARGEST = 1_000_000
"""The maximum number of items or characters in a computed value."""
_LARGEST_WITHIN = 5_000_000
"""The maximum number of items and characters in all nested lists and tables, with repeated values counted each time."""
_DEEPEST = 100
"""The deepest nesting of lists and tables."""
_MOST_BITS = 4096
_LARGEST_FLOAT = 1.7e308


ERROR_MARK = "$"


class NotComputable(Exception):
    """The value cannot be computed by arithmetic alone."""


def is_error(value: Any) -> bool:
    """Whether a value is the result of a failed call. The mark distinguishes it from the program's own tables."""
    return isinstance(value, dict) and value.get(ERROR_MARK) == "error"


def holds_error(value: Any) -> bool:
    """Whether a value is, or contains, the result of a failed call."""
    if is_error(value):
        return True
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(holds_error(one) for one in within if isinstance(one, (dict, list)))


def evaluate(expression: Expression, variables: Mapping[str, Any]) -> Any:
    """Return the value as plain data."""
    match expression:
        case Literal(value):
            return value
        case Words(text):
            return text
        case Ref(name):
            if name not in variables:
                raise NotComputable(f"${name} is not defined")
            return variables[name]
        case ListOf(items):
            return _bounded([evaluate(one, variables) for one in items])
        case TableOf(pairs):
            return _bounded({_key(evaluate(key, variables)): evaluate(value, variables) for key, value in pairs})
        case Field(of, name):
            return _field(evaluate(of, variables), name)
        case Item(of, Slice(start, stop)):
            bounds = (None if one is None else evaluate(one, variables) for one in (start, stop))
            return _computed(lambda whole, a, b: whole[a:b], evaluate(of, variables), *bounds)
        case Item(of, index):
            return _item(evaluate(of, variables), evaluate(index, variables))
        case Unary("not", of):
            return not judge(of, variables)
        case Unary(sign, of):
            return _computed(operator.neg if sign == "-" else operator.pos, evaluate(of, variables))
        case Binary(("and" | "or") as word, left, right):
            first = evaluate(left, variables)
            return first if bool(first) == (word == "or") else evaluate(right, variables)
        case Binary(sign, left, right):
            return _binary(sign, evaluate(left, variables), evaluate(right, variables))
        case Choice(condition, then, otherwise):
            return evaluate(then if judge(condition, variables) else otherwise, variables)
        case CallOf(name, args, named) if name in FUNCTIONS and not named:
            return _computed(FUNCTIONS[name], *(_sound(evaluate(one, variables)) for one in args))
        case Filled(parts):
            return _computed("".join, [_to_str(_sound(evaluate(one, variables))) for one in parts])
    raise NotComputable("a call is needed for this")


def _sound(value: Any) -> Any:
    """Return the value. Raise `NotComputable` for an error, which is neither a string nor a number."""
    if holds_error(value):
        raise NotComputable("a call failed, so its result is an error")
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "abs": abs, "round": round, "min": lambda *of: _extreme(min, of), "max": lambda *of: _extreme(max, of), "sum": sum, "str": str, "int": int, "float": float,
    "bool": lambda value: _holds(value),
}  # fmt: skip

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda one, many: _within(one, many),
    "not in": lambda one, many: not _within(one, many),
    "is": lambda one, other: one is other or one == other,
    "is not": lambda one, other: one is not other and one != other,
}


def _binary(sign: str, left: Any, right: Any) -> Any:
    numbers = type(left) in (int, float, bool) and type(right) in (int, float, bool)
    if sign == "**" and not (numbers and abs(right) <= 64 and abs(left) < 1e15):
        raise NotComputable("the power is too large")
    if sign == "*" and not numbers and _size(left) * _size(right) > _LARGEST:
        raise NotComputable("the result is too large")
    if sign == "%" and not numbers:  # a string with % would be a format
        raise NotComputable("only numbers can be divided")
    if sign in _EQUALITIES and _unlike(left, right):
        raise NotComputable("whether a string equals a number is a matter of interpretation")
    if sign in _ORDERS and (isinstance(left, str) or isinstance(right, str)):
        raise NotComputable("the order of two strings is a matter of interpretation")
    return _computed(_OPERATORS[sign], left, right)


_EQUALITIES = frozenset({"==", "!=", "is", "is not"})
_ORDERS = frozenset({"<", "<=", ">", ">="})


def judge(condition: Expression, variables: Mapping[str, Any]) -> bool:
    """Whether a condition holds. As a value, `$name or "you"` is one of its sides; as a condition, both sides are
    judged."""
    match condition:
        case Binary("and", left, right):
            return judge(left, variables) and judge(right, variables)
        case Binary("or", left, right):
            return judge(left, variables) or judge(right, variables)
    return _holds(evaluate(condition, variables))


def _holds(value: Any) -> bool:
    """Whether a value counts as true. For a string such as `no` or `0`, that is a matter of interpretation."""
    if isinstance(value, str) and value:
        raise NotComputable("whether a string counts as true is a matter of interpretation")
    return bool(value)


def _extreme(choose: Callable[[Any], Any], of: tuple[Any, ...]) -> Any:
    values = of[0] if len(of) == 1 else of
    if any(isinstance(one, str) for one in values):
        raise NotComputable("the order of several strings is a matter of interpretation")
    return choose(values)


def _unlike(one: Any, other: Any) -> bool:
    """Whether one is a string and the other a number or a boolean."""
    return (isinstance(one, str) and isinstance(other, (int, float))) or (
        isinstance(other, str) and isinstance(one, (int, float))
    )


def _within(one: Any, many: Any) -> bool:
    if one in many:
        return True
    if not isinstance(many, str) and any(_unlike(one, other) for other in many):
        raise NotComputable("whether a string equals a number is a matter of interpretation")
    return False


def figures(expression: Expression) -> bool:
    """Whether the expression consists only of numbers and operators, as in `2024-11-12`: if a string is expected, it is
    not arithmetic."""
    match expression:
        case Binary(_, left, right):
            return _figure(left) and _figure(right)
    return False


def _figure(expression: Expression) -> bool:
    match expression:
        case Literal(value):
            return type(value) in (int, float)
        case Unary(_, of):
            return _figure(of)
    return figures(expression)


def is_text(type: str) -> bool:
    return type_name(type) == "str"


def _size(value: Any) -> int:
    return max(1, abs(value)) if isinstance(value, int) else len(value) if isinstance(value, (str, list)) else 1


def _computed(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise NotComputable(str(error)) from None
    match result:
        case int():
            fits = result.bit_length() <= _MOST_BITS
        case float():
            fits = isfinite(result)
        case str() | list():
            fits = len(result) <= _LARGEST
        case _:
            fits = not isinstance(result, complex)
    if not fits:
        raise NotComputable("the result is too large, or not a number")
    return _bounded(result)


def _bounded(value: Any) -> Any:
    """Return the value. Raise `NotComputable` if it is larger than it looks: a list can contain another list many
    times."""
    if _weight(value, {}, 0) > _LARGEST_WITHIN:
        raise NotComputable("the result is too large")
    return value


def _weight(value: Any, known: dict[int, int], depth: int) -> int:
    """The number of items and characters, with repeated values counted each time but traversed only once."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, (list, dict)):
        return 1
    if depth > _DEEPEST:
        raise NotComputable("the result is nested too deeply")
    if id(value) not in known:
        within = value.values() if isinstance(value, dict) else value
        plain = not {*map(type, within)} & {str, list, dict}
        known[id(value)] = 1 + (len(value) if plain else sum(_weight(one, known, depth + 1) for one in within))
    return known[id(value)]


def _key(value: Any) -> str:
    """Return a key as a string, as in JSON, so a value is the same after it was stored."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) or value is None:
        return json.dumps(value)
    raise NotComputable("a key of a table must be a string or a number")


def _item(of: Any, index: Any) -> Any:
    return _computed(operator.getitem, of, _key(index) if isinstance(of, Mapping) else index)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and name in value:
        return value[name]
    raise NotComputable(f"there is no '{name}' in it")


# --- conditions ---------------------------------------------------------------------------------------------

_BEFORE = re.compile(r"(?:when(?:ever)?|if|while|once)\b\s*", re.IGNORECASE)
_BECOMES = re.compile(r"(\$\w++)\s++(?:becomes|is)\s++(?=[<>=])")


@lru_cache(1_000)
def condition_of(text: str) -> Expression | None:
    """Parse a condition that compares variables, as in `When $x > 15`. Return None if a model must judge it."""
    found = _BEFORE.match(text)
    bare = text[found.end() if found else 0 :].strip().rstrip(".")
    try:
        condition = expression_of(_BECOMES.sub(r"\1 ", bare))
    except ExpressionError:
        return None
    return condition if _compares(condition) else None


def _compares(condition: Expression) -> bool:
    match condition:
        case Binary("and" | "or", left, right):
            return _compares(left) and _compares(right)
        case Unary("not", of):
            return _compares(of)
        case Binary("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in", left, right):
            return _plain(left) and _plain(right)
        case Ref():
            return True
    return False


def _plain(value: Expression) -> bool:
    match value:
        case Literal() | Ref():
            return True
        case Field(of) | Unary(_, of):
            return _plain(of)
        case Item(left, right) | Binary(_, left, right):
            return _plain(left) and _plain(right)
        case ListOf(items):
            return all(_plain(one) for one in items)
        case CallOf(name, args, ()):
            return name in FUNCTIONS and all(_plain(one) for one in args)
    return False


# --- types --------------------------------------------------------------------------------------------------


class Coerced(msgspec.Struct, frozen=True):
    value: Any
    changed: bool = False
    """Whether the value was converted, such as `"3"` to an int. An int counts as a float without conversion."""


class DoesNotCoerce(Exception):
    """The value does not have the type and cannot be converted to it."""


_NAMES = {
    "string": "str", "text": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "tuple": "list", "set": "list", "object": "dict", "map": "dict", "none": "null", "nonetype": "null",
}  # fmt: skip
_OPTIONAL = re.compile(r"\|\s*none\b|\bnone\s*\||^optional\[", re.IGNORECASE)


@lru_cache(256)
def type_name(type: str) -> str:
    """Return `str`, `int`, `float`, `bool`, `list`, `dict`, `artifact` or `null`; empty for a type that cannot be
    checked."""
    bare = _OPTIONAL.sub("", type.strip()).strip().lower()
    bare = re.split(r"[\[\]]", bare, maxsplit=1)[0].strip()
    bare = _NAMES.get(bare, bare)
    return bare if bare in _COERCIONS or bare in ("artifact", "null") else ""


def coerced(value: Any, type: str) -> Coerced:
    """Convert a value to its declared type. Raise `DoesNotCoerce` if that is impossible. Null is accepted for every type."""
    name = type_name(type)
    if not name or name == "artifact" or value is None:
        return Coerced(value)
    if name == "null" or is_error(value):
        raise DoesNotCoerce
    made = _COERCIONS[name](value)
    return Coerced(made, changed=made != value or made.__class__ is not value.__class__)


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict, bool)) else str(value)


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        value = _to_float(value) if re.fullmatch(r"\s*[-+]?\d{1,300}\.0*\s*", value) else _number(int, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise DoesNotCoerce
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        value = _number(float, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DoesNotCoerce
    if abs(value) > _LARGEST_FLOAT or value != value:
        raise DoesNotCoerce
    return value


def _number(make: Callable[[str], Any], written: str) -> Any:
    try:
        return make(written.strip()[:400])
    except ValueError:
        raise DoesNotCoerce from None


def _to_bool(value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, 1, "true", "yes"):
        return True
    if word in (False, 0, "false", "no"):
        return False
    raise DoesNotCoerce


def _decoded(value: Any, kind: type[Any]) -> Any:
    """Return a list or a table, even if it was written in quotes."""
    if isinstance(value, str):
        try:
            value = evaluate(expression_of(value), {})
        except (ExpressionError, NotComputable):
            raise DoesNotCoerce from None
    if not isinstance(value, kind):
        raise DoesNotCoerce
    return value


_COERCIONS: dict[str, Callable[[Any], Any]] = {
    "str": _to_str,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "list": lambda value: _decoded(value, list),
    "dict": lambda value: _decoded(value, dict),
}
