"""The texts that a journal refers to: found through every block of a context, and compared with their digests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import EMPTY, digest_of
from cuebook.kernel.effects import AskModel, Program
from cuebook.kernel.errors import NotFound
from cuebook.kernel.fold.verify import texts_behind, unchanged
from cuebook.kernel.journal import Record, purged, verify
from cuebook.stores.memory import MemoryStore
from tests.support.programs import PROGRAMS, begin, engine_on

LONG = "tea " * 1000
ODD = '["not a digest","user","not a digest either","",[]]'
"""A text that looks like a block, and is none."""


class Told:
    """A journal and its texts, as plain values that a test can change."""

    def __init__(self, records: list[Record], store: MemoryStore) -> None:
        self.records = records
        self.texts = {found.digest: found.text for found in texts_behind(records, store.text) if found.text is not None}

    def load(self, digest: str) -> str:
        if digest not in self.texts:
            raise NotFound("It is gone.")
        return self.texts[digest]


def _talk(state: Any) -> Program[Any]:
    context = EMPTY.add("system", "Be brief.").add("user", ODD)
    first = yield AskModel(LONG, context)
    second = yield AskModel("go on", context.add("user", LONG).add("assistant", first.content))
    return second.text


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Told]:
    PROGRAMS["talk"] = lambda inputs: _talk
    store = MemoryStore()
    engine = engine_on(store, tmp_path)
    row = await engine.drive(await begin(engine, "talk"))
    assert row.status == "completed"
    yield Told([record async for record in store.records("run")], store)
    await engine.close()
    await store.close()


def test_the_input_of_a_model_is_found_through_its_context(told: Told) -> None:
    assert {"Be brief.", ODD, LONG, f"echo {LONG}"} < set(told.texts.values())
    assert len(told.texts) == 8, "four texts, and four blocks of the longer context"


def test_a_journal_with_unchanged_texts_has_no_missing_ones(told: Told) -> None:
    verdict = verify(told.records)
    assert unchanged(told.records, verdict, told.load) == verdict


def test_a_changed_text_is_reported_with_the_first_record_that_refers_to_it(told: Told) -> None:
    asked = [record.seq for record in told.records if record.kind == "ModelAsked"]
    verdict = verify(told.records)
    for digest, text in list(told.texts.items()):
        told.texts[digest] = text + "!"
        found = unchanged(told.records, verdict, told.load)
        assert found.problem == "a text that it refers to was changed", text
        assert found.broken_at in range(asked[0], asked[1] + 1)
        told.texts[digest] = text
    told.texts[digest_of("Be brief.")] = "Be long."
    assert unchanged(told.records, verdict, told.load).broken_at == asked[0]


def test_a_missing_text_is_listed_and_breaks_nothing(told: Told) -> None:
    del told.texts[digest_of("Be brief.")]
    verdict = unchanged(told.records, verify(told.records), told.load)
    assert (verdict.broken_at, verdict.missing) == (None, (digest_of("Be brief."),))


def test_purged_records_refer_to_no_texts(told: Told) -> None:
    assert list(texts_behind(map(purged, told.records), told.load)) == []
