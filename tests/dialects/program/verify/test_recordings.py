"""Replies of real models and listings of a real compiler, stored next to the project: parsed, verified and linted."""

from __future__ import annotations

from collections import Counter

from cuebook.dialects.program.check.listing import lint
from cuebook.dialects.program.reply.reader import Reply, ReplyError
from cuebook.dialects.program.verify.verifier import verify_reply
from tests.dialects.program.recordings import beside, listing_for, listings, read, replies

pytestmark = beside


def test_almost_all_replies_are_parsed_and_the_rest_have_an_error_position() -> None:
    read_, all_ = Counter[str](), Counter[str]()
    for reply, found in zip(replies(), read(), strict=True):
        text = reply["text"]
        all_[reply["yield_spelling"]] += 1
        read_[reply["yield_spelling"]] += isinstance(found, Reply)
        if isinstance(found, ReplyError):
            assert 0 <= found.position <= len(text)
            assert found.line == text.count("\n", 0, found.position) + 1
            assert found.message.startswith(f"line {found.line}, column {found.column}: ")
            assert found.fix
    assert read_["for"] >= 0.98 * all_["for"]
    assert read_.total() >= 0.96 * all_.total()


def test_items_appear_in_the_order_of_the_text() -> None:
    for reply, found in zip(replies(), read(), strict=True):
        if isinstance(found, Reply):
            last = 0
            for item in found.items:
                assert last <= item.start <= item.end <= len(reply["text"])
                last = item.start
            assert found.terminator is not None


def test_illegal_jumps_are_found_in_a_few_percent() -> None:
    known, broken, refused = 0, Counter[str](), 0
    for found in read():
        listing = listing_for(found) if isinstance(found, Reply) else None
        if listing is None or not isinstance(found, Reply):
            continue
        known += 1
        verdicts = verify_reply(listing, None, None, found)  # where the reply before stopped is not recorded
        broken.update({verdict.rule for verdict in verdicts.verdicts if verdict.policy == "R"})
        refused += not verdicts.ok
    assert known > 3000
    assert 0.005 * known < broken["C5"] < 0.05 * known
    assert broken["C4"] == 0
    assert broken["C8"] + broken["V6"] == 0  # nothing is refused for what could be computed: it is repaired
    assert 0.02 * known < refused < 0.10 * known


def test_every_listing_is_linted() -> None:
    found, defective = Counter[str](), 0
    for many in listings().values():
        for listing in many:
            codes = {finding.code for finding in lint(listing)}
            defective += bool(codes)
            found.update(codes)
    assert sum(len(many) for many in listings().values()) == 1041
    assert {"DUPLICATE_LINE", "LOOP_WITHOUT_JUMP", "MISSING_RETURN", "REPEATED_BODY", "UNREACHABLE_LINE"} <= set(found)
    assert found["DANGLING_JUMP"] == 0
    assert defective < 500


def test_the_loop_whose_body_was_compiled_twice_is_found() -> None:
    codes = [{finding.code for finding in lint(listing)} for listing in listings()["Validation2"]]
    assert any("REPEATED_BODY" in found for found in codes)
    assert any(not found for found in codes)
