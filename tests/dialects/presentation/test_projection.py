"""Projections: the default one, and those of all dialects."""

from __future__ import annotations

import pytest

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect
from cuebook.dialects.presentation.projection import NOTHING, Projection, seen
from cuebook.kernel.events import Noted, RunStarted, TextChunk
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.run import Settings
from tests.support.programs import new_row

STARTED = Entry("r", 1, 0.0, Place(), RunStarted({}, {}, "", "", 1))


def test_a_format_without_its_own_terms_leaves_a_run_unchanged() -> None:
    projection = Projection()
    assert projection.see(STARTED) == NOTHING
    assert projection.see(TextChunk("r", 1, "a", 0, "hello")) == NOTHING
    assert (projection.values(), projection.trace(), projection.conversation) == (None, None, None)
    assert projection.state(new_row("x"), [], "", Settings()) is None
    assert projection.panel("anything") is None


@pytest.mark.parametrize("dialect", registry.dialects(), ids=lambda dialect: dialect.name)
def test_a_note_that_a_dialect_does_not_know_is_shown_by_its_fields(dialect: Dialect) -> None:
    note = dialect.note("unheard_of", {"count": 2, "empty": ""})
    assert (note.words, note.live, note.lasting) == ("count 2", "", False)


def test_only_a_dialect_that_talks_follows_a_run_without_its_document() -> None:
    talking = [dialect for dialect in registry.dialects() if dialect.talks]
    assert talking
    for dialect in talking:
        told = seen(
            dialect.observe(None),
            [Entry("r", 1, 0.0, Place(), Noted("called", {"agent": "A", "playbook": "B", "arguments": {}}))],
        )
        assert told.conversation is not None
        assert [frame.playbook for frame in told.conversation.stack] == ["B"]
