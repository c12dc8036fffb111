"""A node's prompt. The conformance cases cover more; these are the corner cases."""

from __future__ import annotations

from cuebook.dialects.graph.run.visit import assemble


def test_a_base_without_sections_has_no_heading() -> None:
    assert assemble(" Do it.\n", [], [], [], {}) == " Do it.\n"


def test_empty_texts_make_no_section() -> None:
    assert assemble("Do it.", ["", ""], [""], [], {}) == "Do it."


def test_a_skill_does_not_keep_older_context_away() -> None:
    told = assemble("Do it.", [], [], [("Pen", "Write.")], {"additionalContext": "Be kind."})
    assert told == "## Additional Context & Rules\n\nBe kind.\n\n---\n\n## Skill: Pen\n\nWrite.\n\n---\n\nDo it."


def test_older_context_that_is_not_text_is_ignored() -> None:
    assert assemble("Do it.", [], [], [], {"additionalContext": ["x"]}) == "Do it."
