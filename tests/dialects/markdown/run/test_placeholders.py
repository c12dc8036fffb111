"""Placeholders are replaced in a single pass, from left to right."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.markdown.run.placeholders import placeholders, render

# The format's own pattern; ours must find the same, without its quadratic time.
PUBLISHED = re.compile(r"\{\{(\w+)(?::(\w+)(?::([^}]*))?)?\}\}", re.ASCII)

PIECES = st.lists(st.sampled_from(["{", "{{", "}", "}}", ":", "a", "b1", "_", " ", "é", "\n", "{{a}}", "{{b:string:x"]))
TEXTS = st.one_of(st.text(), PIECES.map("".join))


@pytest.mark.parametrize(
    ("text", "rendered", "unresolved"),
    [
        ("{{a}} and {{b}}", "1 and {{b}}", ("b",)),
        ("{{b:string}}", "{{b:string}}", ("b",)),
        ("{{b:string:none}}", "none", ()),
        ("{{b:string:}}", "", ()),
        ("{{a:string:none}}", "1", ()),
        ("{{{a}}}", "{1}", ()),
        ("{{ a }} {{a-b}} {{é}}", "{{ a }} {{a-b}} {{é}}", ()),
        ("{{b:string:x}", "{{b:string:x}", ()),
        ("{{b}} {{c}} {{b}}", "{{b}} {{c}} {{b}}", ("b", "c")),
    ],
)
def test_placeholders(text: str, rendered: str, unresolved: tuple[str, ...]) -> None:
    assert render(text, {"a": "1"}) == (rendered, unresolved)


def test_a_value_is_never_read_again() -> None:
    assert render("{{a}}{{b}}", {"a": "{{b}}", "b": "{{a}}"})[0] == "{{b}}{{a}}"
    assert render("{{a}}b}}", {"a": "{{", "b": "no"})[0] == "{{b}}"


@given(TEXTS)
def test_the_same_is_found_as_by_the_published_pattern(text: str) -> None:
    found = [(one.name, one.default, one.start, one.end) for one in placeholders(text)]
    assert found == [(m[1], m[3], m.start(), m.end()) for m in PUBLISHED.finditer(text)]


@given(TEXTS, st.dictionaries(st.sampled_from(["a", "b1", "_"]), TEXTS))
def test_rendering_is_a_single_pass_and_never_fails(text: str, values: dict[str, str]) -> None:
    def fill(found: re.Match[str]) -> str:
        value: str | None = values.get(found[1], found[3])
        return found[0] if value is None else value

    assert render(text, values)[0] == PUBLISHED.sub(fill, text)
