"""Text as HTML: untrusted text runs nothing and fetches nothing."""

from __future__ import annotations

import re

import pytest

from cuebook.surfaces.web.pages import formatted
from cuebook.surfaces.web.pages.render import coded
from tests.surfaces.web.markup import TRICKS, Markup


@pytest.mark.parametrize("text", TRICKS)
def test_a_text_runs_nothing_and_fetches_nothing(text: str) -> None:
    for made in (
        formatted.markdown(text),
        formatted.output(text),
        formatted.output(text, is_markdown=False),
        formatted.preview(text),
        formatted.diff(text),
        formatted.code(text, "html"),
        formatted.json_html({text: [text]}),
    ):
        assert Markup(str(made)).dangers() == []


@pytest.mark.parametrize("text", [text for text in TRICKS if text.startswith("<script")])
def test_unexecuted_markup_is_shown(text: str) -> None:
    assert text in Markup(str(formatted.markdown(text))).words


def test_tricks_are_distinguished_from_harmless_markup() -> None:
    """The parser of these tests finds what it must find."""
    for text in TRICKS[:7]:
        assert Markup(text).dangers(), text
    assert Markup('<a href="https://example.com">x</a><a href="/runs">y</a>').dangers() == []


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[a page](https://example.com/x)", "example.com"),
        ("[a bank](https://bank.example@evil.example/)", "evil.example"),
        ("[a port](http://127.0.0.1:8080/)", "127.0.0.1:8080"),
        ("<https://example.org/y>", "example.org"),
        ("[a letter](mailto:ada@example.com)", "example.com"),
        ("![a picture](https://pictures.example/x.png)", "pictures.example"),
    ],
)
def test_a_link_shows_its_target(text: str, host: str) -> None:
    made = Markup(str(formatted.markdown(text)))
    [link] = [attributes for tag, attributes in made.elements if tag == "a"]
    assert f"({host})" in made.words
    assert link["rel"] == "noopener noreferrer nofollow"


def test_host_names_in_other_scripts_are_shown_in_punycode() -> None:
    assert "(xn--pple-43d.example)" in Markup(str(formatted.markdown("[x](https://аpple.example/)"))).words


def test_markdown_is_shown_as_such() -> None:
    made = str(formatted.markdown("# One\n\n- **two**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"))
    assert "<h1>One</h1>" in made
    assert "<strong>two</strong>" in made
    assert "<td>1</td>" in made
    assert re.search(r'<span class="hl-\w+">1</span>', made)


def test_long_text_is_shown_as_plain_text() -> None:
    text = "# x\n" * (formatted.LONGEST // 4 + 1)
    assert str(formatted.markdown(text)).startswith("<pre")


def test_objects_with_long_strings_are_shown_as_fields() -> None:
    made = str(formatted.output('{"summary": "A long **sentence** about what came of all this.", "score": 3}'))
    assert "<dt>summary</dt>" in made
    assert "<strong>sentence</strong>" in made
    assert "<dl" not in str(formatted.output('{"kind": "complaint"}'))
    assert "<dl" not in str(
        formatted.output('{"summary": "A long sentence about what came of all this."}', is_markdown=False)
    )


def test_text_that_quotes_a_diff_is_not_a_diff() -> None:
    quoted = "I changed *this*:\n\n```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n```\n"
    assert "<em>this</em>" in formatted.output(quoted, is_markdown=True)
    assert '<pre class="diff"' in formatted.output(quoted.partition("```diff\n")[2], is_markdown=True)


def test_direction_marks_are_shown_and_not_obeyed() -> None:
    sly = "user\u202e\u2066 txt"
    for text in (sly, f"`{sly}`", f"```\n{sly}\n```", f"--- a\n+++ b\n+{sly}", '["user\\u202e\\u2066 txt"]'):
        for made in (formatted.output(text), formatted.output(text, is_markdown=False), formatted.preview(text)):
            assert "\u202e" not in made
            assert "user[U+202E][U+2066] txt" in made or "\\u202e" in made, made


def test_a_diff_shows_the_status_of_each_line() -> None:
    made = Markup(str(formatted.preview("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same")))
    classes = [attributes.get("class") for tag, attributes in made.elements if tag == "span"]
    assert classes == ["diff-file", "diff-file", "diff-at", "diff-old", "diff-new", "diff-same"]
    assert "<span" not in str(formatted.preview("- a list\n- of things"))


def test_a_marker_of_three_ticks_can_be_copied_with_them() -> None:
    said = str(coded('Write ```if cta == "true"``` and run `cuebook validate`.'))
    assert "<code>```if cta == &#34;true&#34;```</code>" in said
    assert "<code>cuebook validate</code>" in said


def test_a_task_list_shows_what_is_done() -> None:
    made = formatted.markdown("- [ ] Boil\n- [x] Pour\n\nA [ ] in a line stays.")
    assert "<li>☐ Boil</li>" in made
    assert "<li>☑ Pour</li>" in made
    assert "A [ ] in a line stays." in made
