"""A pipeline as a Mermaid flowchart: stable, with the state of a run, and safe from any name in it."""

from __future__ import annotations

import json
import re

import pytest

from cuebook.dialects.pipeline.drawing import drawing
from cuebook.dialects.presentation.drawing import Progress, mermaid
from cuebook.kernel.events import StepStatus
from cuebook.kernel.run import StepRow
from tests.dialects.pipeline.samples import FULL, MINIMAL, pipeline
from tests.dialects.presentation.test_drawing import HOSTILE

LABEL = r'"(?:[^"<>`\\%{}\[\]|;&#]|#\d+;|<br/>)*"'
BOX = r"(?:start|finish|s\d+(?:_if|_ask)?)"
LINE = re.compile(
    rf"    (?:{BOX}(?:\(\[{LABEL}\]\)|\[{LABEL}\]|\[\[{LABEL}\]\]|\[/{LABEL}/\]|\{{{LABEL}\}})"
    rf"|{BOX} (?:-->(?:\|{LABEL}\|)?|-\.->) {BOX}"
    r"|classDef \w+ [\w:#,\- ]+|class [s\d,]+ \w+)"
)


def so_far(states: dict[str, StepStatus]) -> Progress:
    """A run whose steps have this progress."""
    return Progress(tuple(StepRow("", label, 1, status=status) for label, status in states.items()), ())


def test_a_pipeline_before_it_has_run() -> None:
    assert mermaid(drawing(pipeline(MINIMAL))) == (
        "flowchart TD\n"
        '    start(["Say hello"])\n'
        '    s1["hello<br/>cli echo hello"]\n'
        '    finish(["end"])\n'
        "    start --> s1\n"
        "    s1 --> finish\n"
    )


def test_conditions_approvals_and_data_flow_are_drawn() -> None:
    lines = mermaid(drawing(pipeline(FULL))).splitlines()
    for line in (
        '    s1["test: Run the tests<br/>cli make #39;unit tests#39; VERSION=#36;#123;version#125;"]',
        '    s2_if -->|"yes"| s2',
        "    s2 --> s3_ask",
        '    s2_if -->|"no"| s3_ask',
        '    s3_ask[/"approval"/]',
        "    s3_ask --> s3",
        '    s4["post<br/>http POST https#58;//api.example.com/hook<br/>continues if it fails"]',
        '    s5[["tell<br/>mcp chat.say<br/>ends the run early if it fails"]]',
        "    s1 -.-> s2",
        "    s2 -.-> s4",
        '    s5_if -->|"no"| finish',
    ):
        assert line.replace("#39;", "'") in lines, line
    assert all(LINE.fullmatch(line) for line in lines[1:])


def test_the_progress_of_a_run_is_shown() -> None:
    states: dict[str, StepStatus] = {
        "test": "completed",
        "notes": "skipped",
        "tag": "awaiting_approval",
        "post": "failed",
        "tell": "pending",
    }
    lines = mermaid(drawing(pipeline(FULL), so_far(states)), titled=True).splitlines()
    assert lines[:4] == ["---", 'title: "Release it"', "---", "flowchart TD"]
    assert [line.strip() for line in lines if line.startswith("    class ")] == [
        "class s3 current", "class s1 success", "class s4 failed", "class s2 skipped",
    ]  # fmt: skip
    assert all(LINE.fullmatch(line) for line in lines[4:])


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_escapes_its_box(text: str) -> None:
    words = text.strip() or "x"
    steps = [
        {
            "id": "a",
            "name": words,
            "command": "cli",
            "with": {"argv": ["x", text.replace("$", "$$").replace("\0", "\1")]},
        },
        {"id": "b", "command": "cli x", "condition": f"$a.stdout == {json.dumps(text)}"},
    ]
    made = pipeline(json.dumps({"name": words, "steps": steps}))
    drawn = mermaid(drawing(made, so_far({"a": "failed"})), titled=True).splitlines()
    assert all(LINE.fullmatch(line) for line in drawn[4:]), drawn
