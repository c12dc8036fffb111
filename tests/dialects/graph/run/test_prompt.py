"""A node's instruction as a model gets it. The conformance cases say more; here are the corners."""

from __future__ import annotations

from cuebook.dialects.graph.run.visit import assemble


def test_nothing_is_put_before_a_base_that_stands_alone() -> None:
    assert assemble(" Do it.\n", [], [], [], {}) == " Do it.\n"


def test_empty_texts_make_no_section() -> None:
    assert assemble("Do it.", ["", ""], [""], [], {}) == "Do it."


def test_a_skill_does_not_keep_older_context_away() -> None:
    told = assemble("Do it.", [], [], [("Pen", "Write.")], {"additionalContext": "Be kind."})
    assert told == "## Additional Context & Rules\n\nBe kind.\n\n---\n\n## Skill: Pen\n\nWrite.\n\n---\n\nDo it."


def test_older_context_that_is_no_text_is_passed_over() -> None:
    assert assemble("Do it.", [], [], [], {"additionalContext": ["x"]}) == "Do it."
