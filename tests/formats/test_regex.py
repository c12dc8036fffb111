"""Patterns mean the same as in JavaScript, and none of them can block the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.formats.regex import UnsupportedRegex, compiled, searches


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True), ("^b", "abc", False), ("a$", "a\n", False), ("^b", "a\nb", False),
        (r"^\d+$", "12", True), (r"^\d+$", "١٢", False), (r"\w", "é", False), (r"\W", "é", True),
        (r"\s", "\u00a0", True), (r"\s", "\ufeff", True), (r"\S", "\u2003", False), (r"[\s]", "\v", True),
        (r"[^\s]", "\u3000", False), (r"[\S]", "x", True), (r"[^\S]", "x", False), (r"[\D]", "5", False),
        (".", "\n", False), (".", "\r", False), (".", "\u2028", False), ("^.$", "é", True), ("[^]", "\n", True),
        ("[]", "x", False), ("a[^b]c", "a\nc", True),
        (r"(?<year>\d{4})-(?<month>\d\d)", "on 2026-01-01", True), ("(?:ab)+c", "ababc", True), ("(?i:OK)", "it is ok", True),
        (r"\u00e9", "é", True), (r"\x41", "A", True), (r"\cJ", "\n", True), (r"\c1", r"\c1", True), (r"\0", "\0", True), (r"\t", "\t", True),
        (r"\/", "/", True), (r"\.", "x", False), (r"\-", "-", True), (r"\_", "_", True), (r"\e", "e", True),
        (r"\A", "A", True), (r"\z", "z", True), (r"\Q.\E", "QxE", True), (r"\Q.\E", ".", False), (r"\p{L}", "p{L}", True),
        ("a{2}", "aa", True), ("a{2,}", "aaa", True), ("a{,2}", "a{,2}", True), ("a{", "a{", True), ("}", "}", True),
        ("]", "]", True), ("[[:alpha:]]", ":]", True), ("[[:alpha:]]", "b", False), ("[a-c]", "b", True),
        (r"[\w-.]", "-", True), (r"[\w-.]", "!", False), (r"[a-\d]", "-", True), (r"[\d-z]", "m", False), ("[-a]", "-", True),
        ("[a-]", "-", True), (r"[\b]", "\b", True), (r"[\]]", "]", True), ("[^a]", "a", False), ("[é-ü]", "ö", True),
        (r"\bfoo\b", "a foo b", True), (r"\Boo", "foo", True), ("", "", True), ("a|b", "b", True), ("a*?b", "aab", True),
    ],
)  # fmt: skip
def test_a_pattern_is_searched_as_javascript_searches(pattern: str, text: str, found: bool) -> None:
    assert searches(pattern, text) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", r"(?<x>a)\k<x>", "(", ")", "[a", "a**", "[b-a]", "\\", "(?i)a",
        "(?P<x>a)", "(?>a)", "(?<1>a)", "a{1001}", "(a{1000}){1000}", "\ud800", "(?#c)",
    ],
)  # fmt: skip
def test_an_unsupported_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(UnsupportedRegex) as caught:
        compiled(pattern)
    assert caught.value.message.startswith(("The pattern", "A '['"))
    assert caught.value.fix


def test_a_pattern_that_blocks_other_engines_is_fast_here() -> None:
    assert not searches("^(a+)+$", "a" * 100_000 + "b")
    assert not searches(r"^(\w+\s?)*$", "word " * 20_000 + "!")


def test_invalid_unicode_is_searched_nevertheless() -> None:
    assert searches("b", "\ud800b")


@given(st.text(st.sampled_from(list("ab01.\\[]()^$|*+?{},-:<>=!dDwWsSbBkux &&éP")), max_size=14), st.text(max_size=10))
def test_any_pattern_searches_or_is_refused(pattern: str, text: str) -> None:
    try:
        found = searches(pattern, text)
    except UnsupportedRegex:
        return
    assert found in (True, False)
