"""Drawings as Mermaid: a label shows its text, whatever the text contains."""

from __future__ import annotations

import re

from cuebook.dialects.presentation.drawing import LONGEST, escaped

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


def test_a_label_reads_as_the_text_does() -> None:
    label = escaped('Say "hi" [now]: 100% & <b>')
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label) == 'Say "hi" [now]: 100% & <b>'
    assert len(re.sub(r"#\d+;", "x", escaped("word " * 1000))) <= LONGEST
