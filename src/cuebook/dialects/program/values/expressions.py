"""Expressions in replies and listings: Python or JSON literals, `$references`, and simple arithmetic.

They are parsed into a small closed set of nodes, in linear time and with limited depth. Nothing is executed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias, Union

import msgspec

DEEPEST = 60
"""The deepest nesting of brackets, signs and conditions."""
_MOST_LINKS = 200
"""The maximum number of operators, fields and indexes in one value: a chain of them is also nested."""
_LONGEST_NUMBER = 300


class ExpressionError(ValueError):
    """The text is not a value. `at` is an offset in the text."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message, self.at = message, at


class Node(msgspec.Struct, frozen=True, tag=True):
    pass


class Literal(Node, frozen=True):
    value: Any


class Words(Node, frozen=True):
    """Text without quotes, as in `Return[valid]`."""

    text: str


class Ref(Node, frozen=True):
    name: str
    """Without the `$`."""


class Field(Node, frozen=True):
    of: Expression
    name: str


class Item(Node, frozen=True):
    of: Expression
    index: Expression


class Slice(Node, frozen=True):
    start: Expression | None
    stop: Expression | None


class ListOf(Node, frozen=True):
    items: tuple[Expression, ...]


class TableOf(Node, frozen=True):
    pairs: tuple[tuple[Expression, Expression], ...]


class Unary(Node, frozen=True):
    operator: str
    of: Expression


class Binary(Node, frozen=True):
    operator: str
    left: Expression
    right: Expression


class Choice(Node, frozen=True):
    """`then if condition else otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


class CallOf(Node, frozen=True):
    name: str
    args: tuple[Expression, ...] = ()
    named: tuple[tuple[str, Expression], ...] = ()


class Filled(Node, frozen=True):
    """A string with values in it, as in `"Hello {$name}"`: its parts in order."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = Union[  # noqa: UP007  the name is needed before the classes exist
    Literal, Words, Ref, Field, Item, Slice, ListOf, TableOf, Unary, Binary, Choice, CallOf, Filled
]

# --- tokens -------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""[\s]*+(?:
    (?P<ref>\$[^\W\d]\w*+)
  | (?P<number>(?:\d[\d_]*+(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?+\d++)?+(?!\w))
  | (?P<string>[rRbBuU]{0,2}+(?:"{3}(?:[^"\\]|\\.|"(?!""))*+"{3}|'{3}(?:[^'\\]|\\.|'(?!''))*+'{3}
              |"(?!"")[^"\\]*+(?:\\.[^"\\]*+)*+"|'(?!'')[^'\\]*+(?:\\.[^'\\]*+)*+'))
  | (?P<name>[^\W\d]\w*+)
  | (?P<mark>\*\*|//|==|!=|<=|>=|<>|&&|\|\||[-+*/%<>=(){}\[\],.:!])
  | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_SAME = {"&&": "and", "||": "or", "<>": "!=", "!": "not"}
_ESCAPE = re.compile(
    r"\\(?:(?P<code>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3})|(?P<one>.))", re.DOTALL
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_KEPT = frozenset("\\'\"/`$")

_WORDS = re.compile(r"[^\W\d][^$`=\"\[\]{}]*+\Z")
_CALLED = re.compile(r"\w\(")
"""Text that may be written without quotes: it cannot be mistaken for anything else."""


def _unescaped(found: re.Match[str]) -> str:
    code = found["code"]
    if code:
        number = int(code, 8) if code[0] in "01234567" else int(code[1:], 16)
        return chr(number) if number < 0x110000 else found[0]
    one = found["one"]
    return _ESCAPED[one] if one in _ESCAPED else one if one in _KEPT else found[0]


def _string(written: str) -> str:
    """A string without quotes, with escapes resolved. A JSON surrogate pair becomes one character."""
    start = 0
    while written[start] not in "\"'":
        start += 1
    prefix, quoted = written[:start].lower(), written[start:]
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    inner = quoted[width:-width]
    if "r" in prefix or "\\" not in inner:
        return inner
    plain = _ESCAPE.sub(_unescaped, inner)
    if any("\ud800" <= one <= "\udfff" for one in plain):
        return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain


# --- parsing ------------------------------------------------------------------------------------------------

_BINARY = {
    "or": 1, "and": 2, "in": 4, "not in": 4, "is": 4, "is not": 4, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "**": 8,
}  # fmt: skip
_COMPARES = 4
_KEYWORDS = frozenset({"or", "and", "in", "not", "is", "if", "else"})


class _Reader:
    """A precedence climber over the tokens of one text. Each token is read once."""

    def __init__(self, text: str, at: int = 0) -> None:
        self._text, self._end, self._depth, self._links = text, at, 0, 0
        self.kind = self.value = ""
        self.at = at
        self.next()

    def next(self) -> None:
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            at = len(self._text) - len(self._text[self._end :].lstrip())
            quote = self._text[at : at + 1] in ("'", '"')
            raise ExpressionError("this string is not closed" if quote else "unexpected token", at)
        self.kind = found.lastgroup or "end"
        self.value = found[self.kind]
        self.at, self._end = found.start(self.kind), found.end()
        if self.kind in ("name", "mark"):
            self.value = _SAME.get(self.value, self.value)

    def error(self, wanted: str) -> ExpressionError:
        return ExpressionError(f"{wanted} is missing here", self.at)

    def takes(self, mark: str) -> bool:
        if self.value == mark and self.kind in ("mark", "name"):
            self.next()
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.takes(mark):
            raise self.error(f"'{mark}'")

    def expression(self, least: int = 0) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(f"this is nested deeper than {DEEPEST} levels", self.at)
        left = self._climbed(self._prefixed(), least)
        if least == 0 and self.kind == "name" and self.value == "if":
            self.next()
            condition = self.expression(1)
            self.expect("else")
            left = Choice(condition, left, self.expression())
        self._depth -= 1
        return left

    def _climbed(self, left: Expression, least: int) -> Expression:
        compared: Expression | None = None
        while True:
            operator = self._operator()
            strength = _BINARY.get(operator, 0)
            if not strength or strength < least:
                return left
            self._link()
            self._skip(operator)
            right = self.expression(strength if operator == "**" else strength + 1)
            if strength == _COMPARES and compared is not None:  # a < b < c
                left = Binary("and", left, Binary(operator, compared, right))
            else:
                left = Binary(operator, left, right)
            compared = right if strength == _COMPARES else None

    def _link(self) -> None:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise ExpressionError(f"this has more than {_MOST_LINKS} operators", self.at)

    def _operator(self) -> str:
        if self.kind not in ("mark", "name"):
            return ""
        if self.value == "not" and self._follows("in"):
            return "not in"
        if self.value == "is" and self._follows("not"):
            return "is not"
        return self.value

    def _follows(self, word: str) -> bool:
        found = _TOKEN.match(self._text, self._end)
        return found is not None and found["name"] == word

    def _skip(self, operator: str) -> None:
        for _ in operator.split():
            self.next()

    def _prefixed(self) -> Expression:
        if self.kind in ("mark", "name") and self.value in ("-", "+", "not"):
            operator = self.value
            self.next()
            of = self.expression(3 if operator == "not" else 7)
            if operator == "-" and isinstance(of, Literal) and type(of.value) in (int, float):
                return Literal(-of.value)
            return Unary(operator, of)
        return self._suffixed(self._single())

    def _single(self) -> Expression:
        kind, value, at = self.kind, self.value, self.at
        if kind == "string":
            return self._strings()
        if kind == "mark" and value in ("[", "(", "{"):
            self.next()
            return self._list("]" if value == "[" else ")", value == "(") if value != "{" else self._table()
        if kind not in ("ref", "number", "name") or value in _KEYWORDS:
            raise self.error("a value")
        self.next()
        if kind == "ref":
            return Ref(value[1:])
        if kind == "number":
            return Literal(_number(value, at))
        if value in _CONSTANTS:
            return Literal(_CONSTANTS[value])
        return self._called(value)

    def _strings(self) -> Expression:
        parts = []
        while self.kind == "string":  # as in Python, adjacent strings are joined
            parts.append(_string(self.value))
            self.next()
        return Literal("".join(parts))

    def _called(self, name: str) -> Expression:
        """A call, or a single word."""
        parts = [name]
        while self.value == "." and self.kind == "mark":
            self.next()
            if self.kind != "name":
                raise self.error("a name")
            parts.append(self.value)
            self.next()
        dotted = ".".join(parts)
        return CallOf(dotted, *self.arguments()) if self.takes("(") else Words(dotted)

    def arguments(self) -> tuple[tuple[Expression, ...], tuple[tuple[str, Expression], ...]]:
        """The arguments of a call, after its opening parenthesis."""
        args: list[Expression] = []
        named: dict[str, Expression] = {}
        while not self.takes(")"):
            at = self.at
            one = self.expression()
            if self.value == "=" and self.kind == "mark" and isinstance(one, (Ref, Words)):
                self.next()
                name = one.name if isinstance(one, Ref) else one.text
                if name in named:
                    raise ExpressionError(f"'{name}' is passed twice", at)
                named[name] = self.expression()
            elif named:
                raise ExpressionError("a positional argument follows a named one", at)
            else:
                args.append(one)
            if not self.takes(","):
                self.expect(")")
                break
        return tuple(args), tuple(named.items())

    def _suffixed(self, of: Expression) -> Expression:
        while self.kind == "mark":
            if self.value == "." and not isinstance(of, Words):
                self.next()
                if self.kind not in ("name", "number"):
                    raise self.error("a name")
                self._link()
                of = Field(of, self.value)
                self.next()
            elif self.value == "[" and not isinstance(of, (Words, Literal)):
                self._link()
                self.next()
                of = Item(of, self._index())
                self.expect("]")
            else:
                break
        return of

    def _index(self) -> Expression:
        start = None if self.value == ":" else self.expression()
        if not self.takes(":"):
            if start is None:
                raise self.error("an index")
            return start
        return Slice(start, None if self.value == "]" else self.expression())

    def _list(self, closing: str, tuple_: bool) -> Expression:
        items: list[Expression] = []
        comma = False
        while not self.takes(closing):
            items.append(self.expression())
            if not self.takes(","):
                self.expect(closing)
                break
            comma = True
        if tuple_ and len(items) == 1 and not comma:
            return items[0]
        return ListOf(tuple(items))

    def _table(self) -> Expression:
        pairs: list[tuple[Expression, Expression]] = []
        while not self.takes("}"):
            key = self.expression()
            self.expect(":")
            pairs.append((key, self.expression()))
            if not self.takes(","):
                self.expect("}")
                break
        return TableOf(tuple(pairs))


def _number(written: str, at: int) -> int | float:
    if len(written) > _LONGEST_NUMBER:
        raise ExpressionError(f"this number has {len(written)} characters", at)
    plain = written.replace("_", "")
    if plain.isdecimal():
        if plain[0] == "0" and plain.strip("0"):  # as in a date or a code, not a number
            raise ExpressionError("a number must not begin with 0: this may be a string without quotes", at)
        return int(plain)
    number = float(plain)
    if number == float("inf"):
        raise ExpressionError("this number is too large", at)
    return number


def expression_of(text: str, at: int = 0) -> Expression:
    """Parse the text from `at` to its end as a value. Raise `ExpressionError` if it is not a value."""
    try:
        reader = _Reader(text, at)
        found = reader.expression()
        if reader.kind != "end":
            raise ExpressionError("unexpected token", reader.at)
    except ExpressionError:
        words = text[at:].strip()
        if _WORDS.match(words) and not _CALLED.search(words):
            return Words(words)
        raise
    return found


def call_of(text: str, at: int = 0) -> CallOf:
    """Parse the text as a call. Raise `ExpressionError` if it is not exactly one call."""
    reader = _Reader(text, at)
    if reader.kind != "name":
        raise reader.error("the name of a playbook")
    found = reader.expression()
    if reader.kind != "end":
        raise ExpressionError("unexpected token", reader.at)
    if not isinstance(found, CallOf):
        raise ExpressionError("this is not a call", at)
    return found


def arguments_of(text: str, at: int) -> tuple[Expression, ...]:
    """Parse values separated by commas, up to the `]` that ends the text."""
    reader = _Reader(text, at)
    items: list[Expression] = []
    while not reader.takes("]"):
        items.append(reader.expression())
        if not reader.takes(","):
            reader.expect("]")
            break
    if reader.kind != "end":
        raise ExpressionError("unexpected token", reader.at)
    return tuple(items)


def refs_of(expression: Expression) -> Iterator[str]:
    """The names of the variables that a value needs, in order of appearance."""
    match expression:
        case Ref(name):
            yield name
        case Literal() | Words():
            return
        case Field(of):
            yield from refs_of(of)
        case Item(left, right) | Binary(_, left, right):
            yield from refs_of(left)
            yield from refs_of(right)
        case Unary(_, of):
            yield from refs_of(of)
        case Slice(start, stop):
            for one in (start, stop):
                if one is not None:
                    yield from refs_of(one)
        case ListOf(items) | Filled(items):
            for one in items:
                yield from refs_of(one)
        case TableOf(pairs):
            for key, value in pairs:
                yield from refs_of(key)
                yield from refs_of(value)
        case Choice(condition, then, otherwise):
            for one in (condition, then, otherwise):
                yield from refs_of(one)
        case CallOf(_, args, named):
            for one in args:
                yield from refs_of(one)
            for _, one in named:
                yield from refs_of(one)
