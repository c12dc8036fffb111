"""A quick check finds values that cannot contain a secret; all others are searched, so that nothing slips through."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.redaction.redactor import is_clean
from cuebook.kernel.context import Text
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import CommandResult

SECRET = '\\"\n/passing-by'
"""It begins with what looks different each time it is escaped."""
NUMBER = "4142434445464748"


def redactor() -> SecretRedactor:
    made = SecretRedactor()
    made.add("odd", SECRET)
    made.add("number", NUMBER)
    return made


def looked_at(value: Any) -> bool:
    finder = redactor().finder()
    assert finder is not None
    return is_clean(value, finder.begins, 200)


def nothing(text: str) -> None:
    """Finds no secret anywhere."""


@pytest.mark.parametrize(
    "value",
    [
        RunCommand(("echo", 'two\nlines, a "quote" and a\ttab')),
        Performed(CommandResult(0, Text("one\ntwo\n"), Text("")), "RunCommand echo"),
        {"plain": [1, 2.5, None, True, "ünï"]},
        "",
    ],
)
def test_what_holds_nothing_that_looks_like_a_secret_is_clean(value: Any) -> None:
    assert looked_at(value)
    assert redactor().value(value) is value


@pytest.mark.parametrize("times", range(3))
def test_a_secret_is_not_overlooked_however_often_it_is_escaped(times: int) -> None:
    written = SECRET
    for _ in range(times):
        written = json.dumps(written)[1:-1]
    for value in (f"so {written}.", {written: 1}, [Text(f"{written}\n")], RunCommand(("echo", written))):
        assert not looked_at(value)
        assert "pass" not in str(redactor().value(value))


def test_numbers_are_looked_at() -> None:
    assert not looked_at({"value": int(NUMBER)})
    masked: object = redactor().value({"value": int(NUMBER)})
    assert masked == {"value": "[secret number]"}


def test_a_text_that_was_cut_off_gets_a_closer_look() -> None:
    cut = CommandResult(0, Text("it is " + SECRET[:6]), Text(""), truncated=True)
    assert not is_clean(msgspec.structs.replace(cut, stdout=Text("so far")), nothing, 200)
    assert str(redactor().value(cut).stdout) == "it is [secret odd]"


def test_a_value_that_cannot_be_encoded_or_is_too_deep_gets_a_closer_look() -> None:
    deep: Any = "bottom"
    for _ in range(300):
        deep = [deep]
    for value in (object(), {1, (2, object())}, "half a \ud800 pair", deep, "a \\ backslash", "a \x01 sign"):
        assert not is_clean(value, nothing, 200)
