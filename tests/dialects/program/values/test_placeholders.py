"""Placeholders that are filled in when a playbook begins, and text that only looks like them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.program.values.expressions import CallOf, Literal, Ref
from cuebook.dialects.program.values.placeholders import filled, placeholders


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("Today: {timestamp.date()}", ["timestamp.date()"]),
        ('{Loadfile("a}b.txt", inline=True)} {Joke()}', ['Loadfile("a}b.txt", inline=True)', "Joke()"]),
        ("{ $x + 1 } and {$user['name']} and {name}", ["$x + 1", "$user['name']", "name"]),
        ('Return {"street": "12"}, {}, {some words}, {$x', []),
        ("{{name}} {a {$b} c}", ["$b"]),
        ("it's {$x}, isn't it, \"{$y}\"", ["$x", "$y"]),
    ],
)
def test_braces_around_a_value_are_a_placeholder(text: str, sources: list[str]) -> None:
    found = placeholders(text)
    assert [one.source for one in found] == sources
    assert all(text[one.start] == "{" and text[one.end - 1] == "}" for one in found)


def test_placeholders_are_values() -> None:
    call, name = placeholders('{Loadfile("a.txt", silent=True)}{name}')
    assert call.value == CallOf("Loadfile", (Literal("a.txt"),), (("silent", Literal(True)),))
    assert name.value == Ref("name")
    assert (call.calls, name.calls) == (True, False)


def test_a_text_is_filled_in_once() -> None:
    text = 'Dear {$name}, {{not}} {"this": 1}: {$x}.'
    assert filled(text, lambda one: f"<{one.source}{{$x}}>") == 'Dear <$name{$x}>, {not} {"this": 1}: <$x{$x}>.'


@given(st.lists(st.sampled_from(["{", "}", "{{", '"', "'", "\\", "$x", "f(", ")", " ", "a", "\n"])).map("".join))
def test_any_text_has_placeholders_in_order(text: str) -> None:
    found = placeholders(text)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))
    assert isinstance(filled(text, lambda one: ""), str)
