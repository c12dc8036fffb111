"""The journal: places, long texts, the chain, and the records that a rewind voids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cuebook.kernel.context import EMPTY, INLINE_LIMIT, Context, Text, ToolCall
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import (
    AnyEvent,
    ArtifactMade,
    CancelRequested,
    Driven,
    ModelAsked,
    Rewound,
    RunFinished,
    ValueSet,
)
from cuebook.kernel.journal import (
    GENESIS,
    Codec,
    Entry,
    Place,
    Record,
    added_to_known,
    blocks_in,
    branch_path,
    parent_key,
    plain,
    purged,
    same_line,
    seal,
    spill_context,
    verify,
    without_void,
)


def records(*events: AnyEvent) -> list[Record]:
    codec, chain, made = Codec(str), GENESIS, []
    for seq, event in enumerate(events, 1):
        made.append(seal("run", seq, 1.0, 1, Place(), type(event).__name__, codec.encode(event, {}), chain))
        chain = made[-1].chain
    return made


def changed(record: Record, **fields: Any) -> Record:
    return msgspec.structs.replace(record, **fields)


# --- places -----------------------------------------------------------------------------------------------


def test_a_place_reads_as_a_person_would_say_it() -> None:
    assert str(Place("", "2", 3)) == "step 2 (visit 3)"
    assert str(Place("", "2", 1)) == "step 2"
    assert str(Place("p/", "2", 1)) == "step 2, branch p/"
    assert str(Place()) == "the beginning"


@pytest.mark.parametrize("step", ["1", "a/b", "x#2.3[4]", "100 %", "日本", ""])
def test_a_branch_knows_the_place_it_was_begun_at(step: str) -> None:
    outer = branch_path("", step, 2, 3, 4)
    inner = branch_path(outer, step, 1, 0, 0)
    assert parent_key(outer) == ("", step, 2, 3)
    assert parent_key(inner) == (outer, step, 1, 0)


def test_siblings_are_not_on_one_line() -> None:
    one, ten = branch_path("", "1", 1, 0, 1), branch_path("", "1", 1, 0, 10)
    below = branch_path(one, "2", 1, 0, 0)
    assert same_line(one, below)
    assert same_line(below, "")
    assert not same_line(one, ten)
    assert not same_line(ten, below)


# --- values and texts -------------------------------------------------------------------------------------


def test_a_long_text_leaves_its_record_and_comes_back() -> None:
    spilled: dict[str, str] = {}
    codec = Codec(spilled.__getitem__)
    long = Text("x" * 5000)
    body = codec.encode(ArtifactMade(long), spilled)
    assert len(body) < 200
    assert spilled == {long.digest: str(long)}
    back = codec.decode(body)
    assert isinstance(back, ArtifactMade)
    assert not back.content.loaded
    again: dict[str, str] = {}
    assert codec.encode(back, again) == body
    assert again == {}, "what was never loaded is stored already"
    assert str(back.content) == str(long)


def test_a_value_is_seen_as_the_journal_would_return_it() -> None:
    assert plain({"a": (1, 2), 3: Driven("d")}) == {"a": [1, 2], "3": {"is": "Driven", "driver": "d"}}
    with pytest.raises(CuebookError, match="plain values"):
        plain(object())


def test_a_value_that_is_not_plain_is_refused() -> None:
    with pytest.raises(TypeError, match="not a plain value"):
        Codec(str).encode(ValueSet("a", object()), {})


def test_each_block_of_a_context_is_spilled_once() -> None:
    known: set[str] = set()
    spilled: dict[str, str] = {}
    one = EMPTY.add("system", "Be brief.")
    spill_context(one, known, spilled)
    assert len(spilled) == 2, "the text and the block that holds it"
    more: dict[str, str] = {}
    spill_context(one.add("user", "Hi"), known, more)
    assert "Be brief." not in more.values()
    assert "Hi" in more.values()


def test_short_blocks_that_continue_a_known_context_belong_in_the_record() -> None:
    known: set[str] = set()
    one = EMPTY.add("system", "Be brief.")
    assert added_to_known(one, known) is None, "nothing is known yet"
    spill_context(one, known, {})
    assert added_to_known(one, known) == []
    two = one.add("user", "Hi")
    three = two.add("tool", "No.", call_id="c", is_error=True)
    assert added_to_known(three, known) == [two, three]
    blocks = tuple(node.block for node in (two, three) if node.block is not None)
    asked = ModelAsked("m", three.digest, Text(""), "AskModel", since=one.digest, added=blocks)
    assert list(blocks_in(asked)) == [two.digest, three.digest]


@pytest.mark.parametrize(
    "longer",
    [
        lambda context: context.add("user", "x" * (INLINE_LIMIT + 1)),
        lambda context: context.add("user", "x" * INLINE_LIMIT).add("user", "x"),
        lambda context: context.add("assistant", "", calls=(ToolCall("1", "look"),)),
    ],
    ids=["long", "long together", "with calls"],
)
def test_other_blocks_are_stored_as_texts(longer: Callable[[Context], Context]) -> None:
    known: set[str] = set()
    one = EMPTY.add("system", "Be brief.")
    spill_context(one, known, {})
    assert added_to_known(longer(one), known) is None


# --- the chain --------------------------------------------------------------------------------------------


def test_an_intact_chain_is_valid_and_has_a_head() -> None:
    whole = records(Driven("a"), Driven("b"), Driven("c"))
    verdict = verify(whole)
    assert (verdict.records, verdict.head, verdict.broken_at) == (3, whole[-1].chain.hex(), None)
    assert verify([]).records == 0


def test_a_purged_body_does_not_break_the_chain() -> None:
    first, second = records(Driven("a"), Driven("b"))
    assert verify([purged(first), second]).broken_at is None


@pytest.mark.parametrize(
    ("tamper", "at", "problem"),
    [
        (lambda r: [r[0], r[2]], 3, "record 2 is missing"),
        (lambda r: [r[1], r[2]], 2, "record 1 is missing"),
        (lambda r: [r[0], changed(r[1], body=b'{"is":"Driven","driver":"z"}'), r[2]], 2, "it was changed"),
        (lambda r: [r[0], changed(r[1], body=r[1].body.decode()), r[2]], 2, "it was changed"),
        (lambda r: [r[0], changed(r[2], seq=2), changed(r[1], seq=3)], 2, "it was changed"),
        (lambda r: [r[0], changed(r[1], path="x/"), r[2]], 2, "moved"),
        (lambda r: [r[0], changed(r[1], kind="Suspended"), r[2]], 2, "moved"),
        (lambda r: [r[0], changed(r[1], body=purged(r[2]).body), r[2]], 2, "chain"),
        (lambda r: [changed(r[0], chain=r[1].chain), *r[1:]], 1, "chain"),
        (lambda r: [r[0], changed(r[1], head=r[1].head.replace(b"1.0", b"2.0")), r[2]], 2, "it was changed"),
    ],
)
def test_every_change_is_found_where_it_is(tamper: Any, at: int, problem: str) -> None:
    verdict = verify(tamper(records(Driven("a"), Driven("b"), Driven("c"))))
    assert verdict.broken_at == at
    assert problem in verdict.problem


# --- rewinds ----------------------------------------------------------------------------------------------


def entry(seq: int, event: AnyEvent, path: str = "") -> Entry:
    return Entry("run", seq, 1.0, Place(path), event)


def test_a_rewind_voids_its_line_and_leaves_siblings() -> None:
    one, other = "1#1.0[0]/", "1#1.0[1]/"
    entries = [
        entry(1, Driven("start")),
        entry(2, Driven("one"), one),
        entry(3, Driven("other"), other),
        entry(4, Driven("one again"), one),
        entry(5, CancelRequested()),
        entry(6, RunFinished("cancelled")),
        entry(7, Rewound(4, one)),
        entry(8, Driven("goes on"), one),
    ]
    assert [e.seq for e in without_void(entries)] == [1, 2, 3, 8]
    whole = [*entries, entry(9, Rewound(2, ""))]
    assert [e.seq for e in without_void(whole)] == [1]
