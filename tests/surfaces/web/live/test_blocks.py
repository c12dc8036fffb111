"""Streaming Markdown in blocks: they are complete, do not change, and do not depend on how the text came in."""

from __future__ import annotations

import pytest

from cuebook.surfaces.web.live.blocks import Blocks, blocks_of
from cuebook.surfaces.web.pages.formatted import markdown
from tests.surfaces.web.markup import TRICKS, Markup

TEXT = """\
# Heading

A paragraph
over two lines.

- one

  more of one

- two

Lead-in:
```python
def f():

    return 1
```
~~~
a fence of another kind
```

still it
~~~

> quoted

| a | b |
|---|---|
| 1 | 2 |

    indented

    code

1. first

2. second

The end
"""


def test_blocks_are_complete_and_their_html_is_that_of_the_whole() -> None:
    blocks, rest = blocks_of(TEXT)
    assert "".join(blocks) + rest == TEXT
    assert rest == "The end\n"
    whole = "".join(map(str, map(markdown, [*blocks, rest])))
    assert whole.split() == str(markdown(TEXT)).split()
    assert [block.strip().partition("\n")[0] for block in blocks] == [
        "# Heading",
        "A paragraph",
        "- one",
        "Lead-in:",
        "~~~",
        "> quoted",
        "| a | b |",
        "indented",
        "1. first",
    ]


def test_later_text_changes_no_block() -> None:
    whole, growing = blocks_of(TEXT)[0], Blocks()
    for end in range(len(TEXT) + 1):
        blocks, rest = blocks_of(TEXT[:end])
        assert blocks == whole[: len(blocks)]
        assert "".join(blocks) + rest == TEXT[:end]
        assert len(growing.read(TEXT[:end])) == len(blocks), "it is the same in pieces and at once"
    assert growing.read("Another text\n\n") == [14], "a text that starts again is read from its beginning"


@pytest.mark.parametrize(
    "text", ['{\n"a": 1\n\n}\n\n', "[1,\n\n2]\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n\n-a\n", "one line"]
)
def test_what_is_formatted_as_a_whole_has_no_blocks(text: str) -> None:
    assert blocks_of(text) == ([], text)


@pytest.mark.parametrize("trick", TRICKS)
def test_a_block_runs_and_fetches_nothing(trick: str) -> None:
    blocks, rest = blocks_of(f"Before.\n\n{trick}\n\nAfter.\n\nThe end")
    assert [danger for block in (*blocks, rest) for danger in Markup(str(markdown(block))).dangers()] == []
