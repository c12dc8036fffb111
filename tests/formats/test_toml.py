"""TOML: every value is the same as in the standard library, and knows its line."""

from __future__ import annotations

import tomllib

import pytest

from cuebook.formats.builder import Limits
from cuebook.formats.toml import read_toml
from cuebook.formats.values import Malformed

TEXT = '''model = "a/b"  # the usual one
[limits]
seconds = 0x1F
sizes = [1_000,
  2.5e3, {deep = -inf}]
"dotted.name".since = 1979-05-27T07:32:00Z

[[servers.list]]
name = "first"
[servers.list.env]
on = true
[[servers.list]]
name = """
several
lines"""
at = 07:32:00
'''


def test_values_are_those_of_the_standard_library() -> None:
    assert read_toml(TEXT).plain == tomllib.loads(TEXT)
    assert read_toml("").plain == {}


def test_every_value_knows_its_line() -> None:
    lines = read_toml(TEXT).lines_by_key()
    assert lines[("model",)] == 1
    assert lines[("limits",)] == 2
    assert lines[("limits", "sizes", 1)] == 5
    assert lines[("limits", "sizes", 2, "deep")] == 5
    assert lines[("limits", "dotted.name", "since")] == 6
    assert lines[("servers", "list", 0, "env", "on")] == 11
    assert lines[("servers", "list", 1)] == 12
    assert lines[("servers", "list", 1, "at")] == 16


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = = 2\n", 2, "invalid TOML: Invalid value"),
        ("a = 1\na = 2\n", 2, "invalid TOML: Cannot overwrite a value"),
        ("a = [\n", 2, "invalid TOML"),
        (f"a = {'[' * 10_000}", 1, "nested too deeply"),
        (f"a = {'9' * 10_000}", 1, "invalid TOML: Exceeds the limit"),
        (f"a = 1\nb = {'9' * 300}", 2, "this number has 300 characters"),
    ],
)
def test_a_mistake_is_an_error_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_toml(text)
    assert words in caught.value.message
    assert caught.value.line == line


def test_limits_hold_for_toml_too() -> None:
    with pytest.raises(Malformed, match="nested too deeply") as caught:
        read_toml("a = 1\nb = [[[1]]]\n", Limits(depth=3))
    assert caught.value.line == 2
