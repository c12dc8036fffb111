"""Listings: their control flow, the text of their lines, and their defects."""

from __future__ import annotations

import pytest

from cuebook.dialects.program.check.listing import CODES, lint
from cuebook.dialects.program.listing import (
    END,
    Listing,
    Position,
    call_named,
    ends_program,
    jump_of,
    says_return,
    yield_of,
)
from cuebook.dialects.program.model import ListingLine, Param, Playbook


def listing(*lines: str, **about: object) -> Listing:
    rows = []
    for line in lines:
        number, _, rest = line.partition(":")
        code, _, text = rest.partition(" ")
        rows.append((number, code, text))
    return Listing.of_rows("Main", rows, **about)


def follows(listing: Listing, number: str) -> set[str]:
    """The numbers of the lines that may follow one; `end` if the listing may end."""
    nodes = listing.reached(listing.by_number[number])
    return {"end" if node == END else listing.line_at(node).number for node in nodes}


def test_lines_follow_each_other() -> None:
    made = listing("01:EXE a", "02:QUE b", "03:RET")
    assert [follows(made, number) for number in ("01", "02", "03")] == [{"02"}, {"03"}, set()]


def test_a_loop_is_entered_left_and_repeated() -> None:
    made = listing("01:CND While so", "01.01:EXE a", "01.02:JMP 01", "02:RET")
    assert follows(made, "01") == {"01.01", "02"}
    assert follows(made, "01.01") == {"01.02", "01", "01.01", "02"}
    assert follows(made, "01.02") == {"01", "01.01", "02"}


def test_one_of_if_and_otherwise_is_taken() -> None:
    made = listing(
        "01:CND If so", "01.01:EXE a", "02:CND Else if so", "02.01:EXE b", "03:CND Otherwise", "03.01:EXE c", "04:RET"
    )
    assert follows(made, "01") == {"01.01", "02", "02.01", "03", "03.01"}
    assert follows(made, "01.01") == {"02", "03", "04"}
    assert follows(made, "02.01") == {"03", "04"}
    assert follows(made, "03") == {"03.01"}


def test_two_ifs_are_independent() -> None:
    made = listing("01:CND If a", "01.01:EXE a", "02:CND If b", "02.01:EXE b", "03:RET")
    assert follows(made, "01.01") == {"02", "02.01", "03"}


def test_an_inner_body_leads_out_to_the_outer_loop() -> None:
    made = listing("01:CND For each $x in $xs", "01.01:CND If so", "01.01.01:EXE a", "02:RET")
    assert follows(made, "01.01.01") == {"01", "01.01", "01.01.01", "02"}


def test_nothing_follows_the_end_of_the_program() -> None:
    made = listing("01:YLD for exit", "02:YLD for user", "03:YLD return", "04:EXE a")
    assert [follows(made, number) for number in ("01", "02", "03", "04")] == [set(), {"03"}, set(), {"end"}]


def test_a_repeated_line_number_refers_to_both_lines() -> None:
    made = listing("01:EXE a", "02:RET", "01:EXE b", "02:EXE c", "03:RET")
    assert follows(made, "01") == {"02"}
    assert follows(made, "02") == {"03"}


def test_a_frame_continues_at_the_line_or_after_it() -> None:
    made = listing("01:CND If so", "01.01:EXE a", "02:EXE b", "03:QUE Ask; YLD for user; done when told", "04:RET")
    assert [line.number for line in made.lines_of(made.resumes(None))] == ["01", "01.01", "02"]
    assert [line.number for line in made.lines_of(made.resumes(Position("02")))] == ["02"]
    assert [line.number for line in made.lines_of(made.resumes(Position("02", "done")))] == ["03"]
    assert [line.number for line in made.lines_of(made.resumes(Position("03", "done")))] == ["03", "04"]


def test_a_playbook_declares_its_variables() -> None:
    steps = (ListingLine("01", "EXE", "$total:float = $price * 2"), ListingLine("02", "RET", "$total and $order"))
    playbook = Playbook("Sum", "listing", params=(Param("price", "int"),), steps=steps, returns="float")
    assert Listing.of(playbook).declared == {"price": "int", "total": "float", "order": ""}
    assert Listing.of(playbook).returns == "float"


@pytest.mark.parametrize(
    ("code", "text", "target", "repeats"),
    [
        ("YLD", "for call", "call", False),
        ("YLD", "user", "user", False),
        ("YLD", "ForUserInput(\"x\")", "user", False),
        ("YLD", "ForCallComplete(\"x\")", "call", False),
        ("YLD", "for agent Desk", "agent", False),
        ("YLD", "Ask the user for a name", None, False),
        ("QUE", "Say(user, Which?); YLD for user; done when told", "user", True),
        ("QUE", "Rate(); YLD call", "call", False),
    ],
)  # fmt: skip
def test_a_line_says_for_what_it_yields(code: str, text: str, target: str | None, repeats: bool) -> None:
    found = yield_of(ListingLine("01", code, text))  # type: ignore[arg-type]
    assert found is not None
    assert (found.target, found.repeats) == (target, repeats)


def test_a_line_that_does_not_yield() -> None:
    assert yield_of(ListingLine("01", "QUE", "Tell the user; do not yield")) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Say(user, Hello)", "Say"),
        ("$seat:dict = Desk.FindSeat(date=$date)", "Desk.FindSeat"),
        ("$xs:list[str] = Find()", "Find"),
        ("Call Rate($x)", "Rate"),
        ("Ask the user (politely)", ""),
        ("Say(meeting, Show the board if not already shown)", ""),
        ("Say(user, Ask if they want more)", "Say"),
    ],
)
def test_a_line_names_its_call(text: str, name: str) -> None:
    assert call_named(ListingLine("01", "QUE", text)) == name


def test_lines_in_plain_words_are_interpreted() -> None:
    assert jump_of(ListingLine("01", "JMP", "to 3.2 again")) == "03.02"
    assert ends_program(ListingLine("01", "EXE", "End the program"))
    assert not ends_program(ListingLine("01", "EXE", "End the meeting"))
    assert says_return(ListingLine("01", "EXE", "Return an unusual fact"))
    assert not says_return(ListingLine("01", "EXE", "Note the return"))


# --- what is wrong with them ------------------------------------------------------------------------------------


def codes(*lines: str) -> list[str]:
    return [finding.code for finding in lint(listing(*lines))]


def test_a_sound_listing_has_no_findings() -> None:
    assert codes("01:CND While $x < 3", "01.01:EXE $x = $x + 1", "01.02:JMP 01", "02:RET $x") == []
    assert codes("01:QUE Say(user, Hello)", "02:YLD for user") == []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("01:EXE a", "01:EXE b", "02:RET"), "DUPLICATE_LINE"),
        (("01:EXE a", "02:JMP 07"), "DANGLING_JUMP"),
        (("01:EXE a", "02:JMP somewhere"), "DANGLING_JUMP"),
        (("01:INT a", "02:RET"), "UNKNOWN_CODE"),
        (("01:EXE a", "03.01:EXE b", "04:RET"), "ORPHAN_LINE"),
        (("01:EXE a", "02:JMP 01", "03:RET"), "UNREACHABLE_LINE"),
        (("01:CND While so", "01.01:EXE a", "02:RET"), "LOOP_WITHOUT_JUMP"),
        (("01:EXE a", "02:QUE b"), "MISSING_RETURN"),
        (("01:CND While so", "01.01:EXE a", "01.02:JMP 01", "02:EXE a", "03:RET"), "REPEATED_BODY"),
        (("01:CND Otherwise", "01.01:EXE a", "02:RET"), "OTHERWISE_ALONE"),
        (("01:CND If so", "02:RET"), "EMPTY_CONDITION"),
        ((), "NO_LINES"),
    ],
)
def test_a_defect_is_found(lines: tuple[str, ...], code: str) -> None:
    assert codes(*lines) == [code]


def test_every_finding_has_its_line_and_a_fix() -> None:
    lines = (ListingLine("01", "EXE", "a", line=7), ListingLine("02", "JMP", "9", line=8))
    (finding,) = lint(Listing("Main", lines))
    assert (finding.line, finding.severity) == (8, CODES["DANGLING_JUMP"][0])
    assert "02 jumps to 09" in finding.message
    assert finding.fix
