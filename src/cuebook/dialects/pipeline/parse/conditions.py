"""Conditions: references and literals, `! && || ( )`, `== != < <= > >=`, and the functions `default`, `contains`,
`length` and `trim`, which text can also use within `${...}`. Parsed on loading, never evaluated.

The grammar is Lobster's, plus arguments and functions. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from cuebook.dialects.pipeline.model import Condition, Constant, Function, Operation
from cuebook.dialects.pipeline.parse.references import BRACES, STEP, Scope

LONGEST = 10_000
"""Maximum length of a condition in characters."""
MOST_OPERATORS = 100
_WHOLE = re.compile(r"-?[0-9]{1,308}")
_LITERALS = {"true": True, "false": False, "null": None}
FUNCTIONS = {"default": 2, "contains": 2, "length": 1, "trim": 1}
"""The functions, and how many operands each has."""
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<sign>&&|\|\||==|!=|<=|>=|[<>!(),])
    |(?P<braces>{BRACES.pattern})
    |(?P<step>{STEP.pattern})
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])
    |(?P<word>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)


class _Wrong(Exception):
    """Raised if the text is not a condition, with the reason and a fix."""

    def __init__(self, message: str, fix: str, column: int = 0) -> None:
        where = f"at character {column}: " if column else ""
        self.message, self.fix = f"{where}{message}", fix
        super().__init__(message)


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    column: int
    """Its position in the condition, starting at 1."""


def condition(scope: Scope, text: str, line: int, at: str) -> Condition | None:
    """Parses a condition. If it is invalid, reports the problem and returns None."""
    try:
        return _Reading(scope, text, line, at).whole()
    except _Wrong as wrong:
        scope.shape.wrong(line, f"{at}: {wrong.message}", wrong.fix, "BAD_CONDITION")
        return None


def expression(scope: Scope, text: str, line: int, at: str) -> Function | None:
    """Parses a function within `${...}`, where `name` is an argument and `step.path` a reference, as in all braces."""
    try:
        made = _Reading(scope, text, line, at, braced=True).whole()
        if not isinstance(made, Function):
            raise _Wrong("it is not a function.", f"Write one of {', '.join(FUNCTIONS)}, as in ${{trim(list.stdout)}}.")
        return made
    except _Wrong as wrong:
        scope.shape.wrong(line, f"{at}: '${{{text[:60]}}}': {wrong.message}", wrong.fix, "BAD_REFERENCE")
        return None


class _Reading:
    def __init__(self, scope: Scope, text: str, line: int, at: str, *, braced: bool = False) -> None:
        self._scope, self._line, self._at, self._braced = scope, line, at, braced
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._nested = 0

    def whole(self) -> Condition:
        made = self._any()
        left = self._peek()
        if left is not None:
            fix = "Join comparisons with && or ||." if left.kind == "sign" else "Correct it."
            raise _Wrong(f"unexpected '{left.text[:40]}'.", fix, left.column)
        return made

    def _any(self) -> Condition:
        return self._joined("||", self._all)

    def _all(self) -> Condition:
        return self._joined("&&", self._comparison)

    def _joined(self, operator: str, below: Callable[[], Condition]) -> Condition:
        made = below()
        while self._takes(operator):
            self._count()
            made = Operation(cast(Any, operator), (made, below()))
        return made

    def _comparison(self) -> Condition:
        left = self._unary(words=False)
        for operator in ("==", "!=", "<=", ">=", "<", ">"):
            if self._takes(operator):
                return Operation(cast(Any, operator), (left, self._unary(words=True)))
        return left

    def _unary(self, *, words: bool) -> Condition:
        if self._takes("!"):
            self._count()
            return Operation("!", (self._unary(words=words),))
        return self._primary(words)

    def _primary(self, words: bool) -> Condition:
        token = self._peek()
        if token is None:
            raise _Wrong("it is incomplete.", "Complete it.", len(self._text) + 1)
        self._next += 1
        match token.kind:
            case "sign" if token.text == "(":
                self._count()
                made = self._any()
                if not self._takes(")"):
                    raise _Wrong("')' is missing.", "Add it.", self._column())
                return made
            case "braces":
                return self._seen(self._scope.braced(token.text[2:-1], self._line, self._at))
            case "step":
                id, _, path = token.text[1:].partition(".")
                return self._scope.step(id, path, self._line, self._at)
            case "text":
                return Constant(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))
            case "number":
                return Constant(_number(token.text))
            case "word" if self._takes("("):
                return self._function(token)
            case "word" if token.text in _LITERALS:
                return Constant(_LITERALS[token.text])
            case "word" if self._braced and (self._scope.is_argument(token.text) or "." in token.text):
                return self._seen(self._scope.braced(token.text, self._line, self._at))
            case "word" if words:
                return Constant(token.text)
            case "word":
                fix = f"Write ${{{token.text}}}, ${token.text}.stdout, or '{token.text}' for a string."
                raise _Wrong(f"'{token.text[:40]}' is neither a reference nor a string.", fix, token.column)
        raise _Wrong(f"unexpected '{token.text}'.", "Correct it.", token.column)

    def _function(self, name: _Token) -> Function:
        self._count()
        if name.text not in FUNCTIONS:
            fix = self._scope.shape.meant(name.text, FUNCTIONS)
            raise _Wrong(f"there is no function '{name.text[:40]}'.", fix, name.column)
        operands = [self._any()]
        while self._takes(","):
            operands.append(self._any())
        if not self._takes(")"):
            raise _Wrong(f"')' is missing after the operands of {name.text}.", "Add it.", self._column())
        if len(operands) != FUNCTIONS[name.text]:
            wanted = FUNCTIONS[name.text]
            message = f"{name.text} takes {wanted} operand{'' if wanted == 1 else 's'}, but has {len(operands)}."
            raise _Wrong(message, "Correct it.", name.column)
        end = self._tokens[self._next - 1].column
        return Function(cast(Any, name.text), tuple(operands), self._text[name.column - 1 : end])

    def _column(self) -> int:
        """The position of the next token, or the end of the text."""
        token = self._peek()
        return token.column if token is not None else len(self._text) + 1

    def _count(self) -> None:
        """Counts everything that can nest, which limits the depth of parsing and evaluation."""
        self._nested += 1
        if self._nested > MOST_OPERATORS:
            fix = "Make it simpler, or use several steps."
            raise _Wrong(f"it has more than {MOST_OPERATORS} operators and parentheses.", fix)

    def _seen(self, reference: Any) -> Condition:
        """Rejects secrets: a condition and its result are recorded where others can see them."""
        if reference is None:
            return Constant(None)  # already reported
        if self._scope.is_secret(reference):
            fix = "Use something else: the result of a condition is recorded."
            self._scope.shape.wrong(self._line, f"{self._at} contains a secret.", fix, "SECRET_MISPLACED")
        made: Condition = reference
        return made

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, sign: str) -> bool:
        token = self._peek()
        taken = token is not None and token.kind == "sign" and token.text == sign
        self._next += taken
        return taken


def _tokens(text: str) -> list[_Token]:
    if len(text) > LONGEST:
        raise _Wrong(f"it has more than {LONGEST:,} characters.", "Make it simpler.")
    found: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at, end)
        if token is None:
            rest = text[at:end].lstrip()
            raise _Wrong(f"unexpected '{rest[:40]}'.", _meant(rest), end - len(rest) + 1)
        kind = str(token.lastgroup)
        found.append(_Token(kind, token[kind], token.start(kind) + 1))
        at = token.end()
    if not found:
        raise _Wrong("it is empty.", "Write a condition, or remove it.")
    return found


def _meant(rest: str) -> str:
    for sign, fix in (
        ("$", "Write $step.field, as in $build.exit_code, or ${arg}."),
        ("&", "Write && for and."),
        ("|", "Write || for or."),
        ("=", "Write == to compare."),
        ('"', "The string is not closed: add a quote."),
        ("'", "The string is not closed: add a quote."),
    ):
        if rest.startswith(sign):
            return fix
    return "Correct it."


def _number(text: str) -> int | float:
    if _WHOLE.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise _Wrong(f"'{text[:40]}' is too large.", "Write a smaller number.")
    return number
