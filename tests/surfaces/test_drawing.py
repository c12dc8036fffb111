"""A playbook as a Mermaid flowchart: stable, and out of reach for whatever a title says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from cuebook.dialects.mermaid import LONGEST, escaped
from cuebook.surfaces.cli.drawing import mermaid
from tests.surfaces.desk import Desk
from tests.surfaces.test_authoring import TRIAGE

_NAME = r"(?:start|finish|s\d+(?:_\d+_\d+)?(?:_[qb])?)"
_LABEL = r'"[^"<>`\\%{}\[\]|;&]*(?:(?:#\d+;|<br/>)[^"<>`\\%{}\[\]|;&]*)*"'
LINE = re.compile(
    rf"    (?:{_NAME}(?:\(\[{_LABEL}\]\)|\[{_LABEL}\]|\[\[{_LABEL}\]\]|\[/{_LABEL}/\]|\{{{_LABEL}\}})"
    rf"|{_NAME} -->(?:\|{_LABEL}\|)? {_NAME})"
)
HOSTILE = [
    '"]; click s1 "javascript:alert(1)" ["',
    "`code` end",
    '%%{init: {"theme": "dark"}}%%',
    "<img src=x onerror=alert(1)>",
    "a --> b",
    "#quot;#35;",
    "x|y|z",
    "]] /] }}",
    "@{ shape: x }",
    "line one\nsubgraph two",
    "\x1b[31mred\x00",
    "&lt;script&gt;",
    "fa:fa-ban",
    "1. list",
]


def test_the_flowchart_of_a_playbook(bare_desk: Desk) -> None:
    bare_desk.write("triage.md", TRIAGE)
    ran = bare_desk.call("graph", "triage.md")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "flowchart TD\n"
        '    start(["Triage<br/>inputs: report, depth"])\n'
        '    s1["Step 1: Sort<br/>begins with library#58;criteria<br/>gives kind"]\n'
        "    start --> s1\n"
        '    s2_b{"Step 2: Route<br/>which kind?<br/>gives result"}\n'
        "    s1 --> s2_b\n"
        '    s2_1_1[["Step 2a: Fetch<br/>calls tracker.find"]]\n'
        '    s2_b -->|"kind == #34;bug#34;"| s2_1_1\n'
        '    s2_2_1[/"Step 2b: Ask<br/>asks: Who decides?<br/>one of: Ada, Bob"/]\n'
        '    s2_b -->|"otherwise"| s2_2_1\n'
        '    s3["Step 3: Report"]\n'
        "    s2_1_1 --> s3\n"
        "    s2_2_1 --> s3\n"
        '    finish(["artifact: markdown"])\n'
        "    s3 --> finish\n"
    )
    assert bare_desk.call("graph", "triage.md", "--format", "mermaid").out == ran.out


def test_a_step_that_no_branch_fits_is_passed_by() -> None:
    text = '# A\n\n## STEP 1: B\n\nx\n\n```if v == "1"```\n\nyes\n\n```endif```\n\n## STEP 2: C\n\ny\n'
    drawn = mermaid(parse(text, "a.md"))
    assert '    s1_b -->|"otherwise"| s2\n' in drawn
    assert "    s1_1_1 --> s2\n" in drawn


def test_a_step_that_branches_on_itself_is_drawn_before_its_choice() -> None:
    text = '# A\n\n## STEP 1: B\n\nGood?\n\n@output(v)\n\n```if v == "no"```\n\nBetter.\n\n```endif```\n'
    drawn = mermaid(parse(text, "a.md"))
    assert '    s1["Step 1: B<br/>gives v"]\n' in drawn
    assert '    s1_b{"which v?"}\n    s1 --> s1_b\n' in drawn


def test_a_question_beside_a_text_comes_first() -> None:
    drawn = mermaid(parse('# A\n\n## STEP 1: B\n\n@elicit(input, "Why?")\n\nExplain.\n', "a.md"))
    assert "    s1_q --> s1\n" in drawn


@pytest.mark.parametrize("words", HOSTILE)
def test_no_words_break_out_of_their_box(words: str) -> None:
    drawn = mermaid(book_saying(words))
    head, *lines = drawn.rstrip("\n").split("\n")
    assert head == "flowchart TD"
    assert [line for line in lines if not LINE.fullmatch(line)] == []


@given(st.text(max_size=200))
def test_no_text_at_all_does(words: str) -> None:
    drawn = mermaid(book_saying(words))
    assert [line for line in drawn.rstrip("\n").split("\n")[1:] if not LINE.fullmatch(line)] == []


def test_a_label_reads_as_the_text_does() -> None:
    label = escaped('Say "hi" [now]: 100% & <b>')
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label) == 'Say "hi" [now]: 100% & <b>'
    assert len(re.sub(r"#\d+;", "x", escaped("word " * 1000))) <= LONGEST


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
