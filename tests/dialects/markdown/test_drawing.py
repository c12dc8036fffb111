"""Markdown playbooks as flowcharts: branches, questions and tools, and text that cannot break out of its box."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.markdown.drawing import drawing
from cuebook.dialects.markdown.model import (
    Book,
    Branch,
    Condition,
    DeclaredInput,
    Elicitation,
    Output,
    PromptUse,
    Step,
    ToolUse,
)
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.presentation.drawing import mermaid
from tests.dialects.presentation.test_drawing import HOSTILE

_NAME = r"(?:start|finish|s\d+(?:_\d+_\d+)?(?:_[qb])?)"
_LABEL = r'"[^"<>`\\%{}\[\]|;&]*(?:(?:#\d+;|<br/>)[^"<>`\\%{}\[\]|;&]*)*"'
LINE = re.compile(
    rf"    (?:{_NAME}(?:\(\[{_LABEL}\]\)|\[{_LABEL}\]|\[\[{_LABEL}\]\]|\[/{_LABEL}/\]|\{{{_LABEL}\}})"
    rf"|{_NAME} -->(?:\|{_LABEL}\|)? {_NAME})"
)


def test_a_step_without_a_matching_branch_is_skipped() -> None:
    text = '# A\n\n## STEP 1: B\n\nx\n\n```if v == "1"```\n\nyes\n\n```endif```\n\n## STEP 2: C\n\ny\n'
    drawn = mermaid(drawing(parse(text, "a.md")))
    assert '    s1_b -->|"otherwise"| s2\n' in drawn
    assert "    s1_1_1 --> s2\n" in drawn


def test_a_step_that_branches_on_itself_is_drawn_before_its_choice() -> None:
    text = '# A\n\n## STEP 1: B\n\nGood?\n\n@output(v)\n\n```if v == "no"```\n\nBetter.\n\n```endif```\n'
    drawn = mermaid(drawing(parse(text, "a.md")))
    assert '    s1["Step 1: B<br/>sets v"]\n' in drawn
    assert '    s1_b{"which v?"}\n' in drawn
    assert "    s1 --> s1_b\n" in drawn


def test_a_question_beside_a_text_comes_first() -> None:
    drawn = mermaid(drawing(parse('# A\n\n## STEP 1: B\n\n@elicit(input, "Why?")\n\nExplain.\n', "a.md")))
    assert "    s1_q --> s1\n" in drawn


@pytest.mark.parametrize("words", HOSTILE)
def test_no_words_break_out_of_their_box(words: str) -> None:
    drawn = mermaid(drawing(book_saying(words)))
    head, *lines = drawn.rstrip("\n").split("\n")
    assert head == "flowchart TD"
    assert [line for line in lines if not LINE.fullmatch(line)] == []


@given(st.text(max_size=200))
def test_no_text_at_all_does(words: str) -> None:
    drawn = mermaid(drawing(book_saying(words)))
    assert [line for line in drawn.rstrip("\n").split("\n")[1:] if not LINE.fullmatch(line)] == []


def book_saying(words: str) -> Book:
    sub = Step(1, "1a", words, "c", 1)
    branch = Branch(Condition("v", "==", words), (sub,))
    asked = Elicitation("select", words, (words, "b"))
    return Book(
        title=words,
        steps=(
            Step(1, "1", words, "c", 1, PromptUse(words), Output(words), asked, branches=(branch,)),
            Step(2, "2", words, "", 2, tool=ToolUse(words, words)),
            Step(3, "3", words, "", 3, elicitation=asked),
        ),
        inputs=(DeclaredInput(words),),
        artifact_type=words,
    )
