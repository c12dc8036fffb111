"""Skills as playbooks: their numbered steps are steps, and the text around them is context."""

from __future__ import annotations

import pytest

from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.parse import read
from cuebook.dialects.playbook import Playbook

FRONT = "---\nname: tidy-notes\ndescription: Tidies notes. Use it when notes are untidy.\n---\n\n"
LIST = f"""{FRONT}# Tidy notes

You keep notes in order.

## Steps

1. **Read the notes**: read `notes.md`.

   ```
   2. this is not a step
   ```
2. Sort them. Keep every word.
   - by date
   - by topic
3. Write them back

Then stop.

## Examples

1. An example.
"""
HEADINGS = f"""{FRONT}Be careful.

## Step 1: Read

Read it.

### Details

All of it.

## Step 2 - Write

## Notes

Nothing else.
"""


def test_the_numbered_list_becomes_steps_with_the_lines_of_the_file() -> None:
    book = read(LIST).definition
    assert book is not None
    assert (book.title, book.description) == ("Tidy notes", "Tidies notes. Use it when notes are untidy.")
    assert [(step.label, step.title) for step in book.steps] == [
        ("1", "Read the notes"),
        ("2", "Sort them"),
        ("3", "Write them back"),
    ]
    lines = LIST.split("\n")
    assert [lines[step.line - 1][:3] for step in book.steps] == ["1. ", "2. ", "3. "]
    assert book.steps[0].content == "**Read the notes**: read `notes.md`.\n\n```\n2. this is not a step\n```"
    assert book.steps[1].content == "Sort them. Keep every word.\n- by date\n- by topic"
    assert book.steps[2].content == "Write them back"


def test_the_text_around_the_steps_is_context() -> None:
    book = read(LIST).definition
    assert book is not None
    assert book.system == ("You keep notes in order.\n\n## Steps\n\nThen stop.\n\n## Examples\n\n1. An example.")


def test_numbered_headings_become_steps() -> None:
    book = read(HEADINGS).definition
    assert book is not None
    assert [(step.title, step.content) for step in book.steps] == [
        ("Read", "Read it.\n\n### Details\n\nAll of it."),
        ("Write", "Write"),
    ]
    assert (book.title, book.system) == ("tidy-notes", "Be careful.\n\n## Notes\n\nNothing else.")


def test_a_skill_without_numbered_steps_is_one_step() -> None:
    book = read(f"{FRONT}# Tidy\n\nTidy them, and say {{{{what}}}} you did.\n").definition
    assert book is not None
    assert [(step.title, step.content, step.line) for step in book.steps] == [
        ("Tidy", "Tidy them, and say {{what}} you did.", 6)
    ]


def test_items_may_all_have_the_number_one() -> None:
    parsed = read(f"{FRONT}1. A\n1. B\n")
    assert parsed.definition is not None
    assert ([step.label for step in parsed.definition.steps], parsed.warnings) == (["1", "2"], ())


def test_a_number_out_of_order_is_reported_at_its_line() -> None:
    (finding,) = MARKDOWN.check(f"{FRONT}1. A\n3. B\n", "SKILL.md", Surroundings())
    assert (finding.code, finding.line) == ("step_number", 7)


@pytest.mark.parametrize("colon", ["Use it: always.", "'Use it: always.'"])
def test_a_description_may_have_a_colon(colon: str) -> None:
    book = read(f"---\nname: a\ndescription: {colon}\n---\n1. A\n").definition
    assert book is not None
    assert book.description == "Use it: always."


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n1. A\n",
        "---\nname: a\n---\n1. A\n",
        "---\nname: a\ndescription: b\n1. A\n",
        f"{FRONT}# Title\n\n## STEP 1: A\n\nDo it.\n",
    ],
)
def test_other_texts_are_not_skills(text: str) -> None:
    found = read(text)
    assert found.definition is None or found.definition.steps[0].content == "Do it."
    assert found.definition is not None or [one.code for one in found.errors] in (["F2"], ["F1", "F2"])


def test_a_skill_is_claimed_by_its_name_and_run_like_any_playbook() -> None:
    assert MARKDOWN.claims(LIST, "skills/tidy/SKILL.md")
    assert not MARKDOWN.claims("# Notes\n", "SKILL.md")
    assert not MARKDOWN.claims(LIST, "notes.md")
    playbook = Playbook.from_text(LIST, "SKILL.md")
    assert (playbook.dialect.name, playbook.labels) == ("markdown", ("1", "2", "3"))
