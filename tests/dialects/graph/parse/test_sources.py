"""The kind of source that a string or a tagged object is, in a document and in the input of a run."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.graph.parse.sources import BadSource, classified, given_source, given_sources


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("./a.md", "file"), ("../a.md", "file"), ("/etc/a.md", "file"), ("/", "file"),
        ("http://a.b/c", "url"), ("https://a.b", "url"),
        ("a.md", "inline"), (".a", "inline"), (" ./a.md", "inline"), ("HTTP://a.b", "inline"), ("ftp://a.b", "inline"),
        ("https:/a", "inline"), ("See https://a.b", "inline"), ("~/a.md", "inline"), ("..", "inline"),
    ],
)  # fmt: skip
def test_the_prefix_of_a_string_decides_its_kind(text: str, kind: str) -> None:
    found = classified(text)
    assert (found.kind, found.value) == (kind, text)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"inline": "./a.md"}, "inline"),
        ({"file": "a.md"}, "file"),
        ({"url": "https://a.b"}, "url"),
        ({"url": "https://a.b", "type": "fetch"}, "url"),
        ("plain words", "inline"),
    ],
)
def test_a_tag_decides_over_the_text(value: Any, kind: str) -> None:
    assert given_source(value).kind == kind


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", "SOURCE_INVALID_SHAPE"),
        (5, "SOURCE_INVALID_SHAPE"),
        (None, "SOURCE_INVALID_SHAPE"),
        ({}, "SOURCE_INVALID_SHAPE"),
        ({"inline": ""}, "SOURCE_INVALID_SHAPE"),
        ({"file": 5}, "SOURCE_INVALID_SHAPE"),
        ({"inline": "a", "file": "b"}, "SOURCE_INVALID_SHAPE"),
        ({"file": "a", "type": "fetch"}, "SOURCE_INVALID_SHAPE"),
        ({"inline": "a", "note": "b"}, "SOURCE_INVALID_SHAPE"),
        ({"url": "a.b"}, "SOURCE_INVALID_SHAPE"),
        ({"url": ""}, "SOURCE_INVALID_SHAPE"),
        ({"url": "file:///etc/passwd"}, "SOURCE_INVALID_SHAPE"),
        ({"url": "https://a.b", "type": "git"}, "SOURCE_INVALID_TYPE"),
        ({"url": "https://a.b", "type": 5}, "SOURCE_INVALID_SHAPE"),
    ],
)
def test_an_invalid_source_is_refused_with_its_code(value: Any, code: str) -> None:
    with pytest.raises(BadSource) as caught:
        given_source(value)
    assert caught.value.kind == code
    assert caught.value.fix


def test_one_source_counts_as_a_list_of_one() -> None:
    assert [one.kind for one in given_sources("./a.md")] == ["file"]
    assert [one.kind for one in given_sources(["a", {"file": "b"}])] == ["inline", "file"]
    assert given_sources(None) == ()
