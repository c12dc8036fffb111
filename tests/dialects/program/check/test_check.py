"""Findings in a program, by line and code."""

from __future__ import annotations

import pytest

from cuebook.dialects.children import CODES as CHILDREN
from cuebook.dialects.graph.check import CODES as GRAPH_CODES
from cuebook.dialects.markdown.check import CODES as MARKDOWN_CODES
from cuebook.dialects.program.check.program import CODES, check, sarif
from tests.dialects.program.samples import DESK, SOURCE, line_of


def found(text: str, name: str = "desk.pbasm") -> list[tuple[int | None, str]]:
    return [(finding.line, finding.code) for finding in check(text, name)]


def listing(*lines: str) -> str:
    """A program with one listing, which begins on line 6."""
    return "\n".join(["# A", "## Main", "### Triggers", "- T1:BGN At the beginning", "### Steps", *lines])


def test_a_sound_program_has_no_findings() -> None:
    assert found(DESK.replace("{Joke()}", "{Price(2)}")) == []


@pytest.mark.parametrize(
    ("lines", "findings"),
    [
        (["- 01:QUE Say(user, hi)", "- 01:RET"], [(7, "DUPLICATE_LINE")]),
        (["- 01:JMP 07"], [(6, "DANGLING_JUMP")]),
        (["- 01:FLY away", "- 02:RET"], [(6, "UNKNOWN_CODE")]),
        (["- 01:CND While $x", "  - 01.01:EXE $x = 1", "- 02:RET"], [(6, "LOOP_WITHOUT_JUMP")]),
        (["- 01:RET", "- 02:EXE $x = 1", "- 03:RET"], [(7, "UNREACHABLE_LINE"), (8, "UNREACHABLE_LINE")]),
        (["- 01:EXE $x = 1"], [(6, "MISSING_RETURN")]),
        (["- 01:QUE $x = Fetch(1)", "- 02:CHK N2", "- 03:RET"], [(6, "UNKNOWN_PLAYBOOK"), (7, "UNKNOWN_NOTE")]),
    ],
)
def test_listings_are_linted_by_the_lines_of_the_file(lines: list[str], findings: list[tuple[int, str]]) -> None:
    assert found(listing(*lines)) == findings


PYTHON = "```python\n@playbook\nasync def X(a: int) -> int:\n    return a\n```\n"
"""Five lines."""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("- 01:QUE Nobody.Foo()", "UNKNOWN_AGENT"),
        ("- 01:YLD for nobody", "UNKNOWN_AGENT"),
        ("- 01:EXE $z:wibble = 1", "UNKNOWN_TYPE"),
        ("- 01:QUE Say(user, hello", "OPEN_CALL"),
        ("- 01:QUE $x = X(b=1)", "UNFIT_ARGUMENTS"),
        ("- 01:QUE $x = X()", "UNFIT_ARGUMENTS"),
        ("- 01:QUE $x = X(a=1)", ""),
        ("- 01:QUE X(the number of days)", ""),
        ("- 01:EXE $z:list[str] | None = []", ""),
        ("- 01:YLD for A", ""),
    ],
)
def test_names_in_a_line_must_exist_and_match(line: str, code: str) -> None:
    text = listing(line, "- 02:RET").replace("## Main", f"{PYTHON}## Main")
    assert found(text) == ([(11, code)] if code else [])


@pytest.mark.parametrize(
    ("returns", "text", "findings"),
    [
        ("int", "$never", [(7, "UNKNOWN_VARIABLE")]),
        ("int", "$n + $_", []),
        ("None", "5", [(7, "UNFIT_RETURN")]),
        ("int", '"5"', []),
        ("int", "the sum of it all", []),
        ("Nun", "$n", [(2, "UNKNOWN_TYPE")]),
        ("Any", "5", []),
    ],
)
def test_a_returned_value_must_exist_and_have_the_declared_type(
    returns: str, text: str, findings: list[tuple[int, str]]
) -> None:
    made = listing("- 01:EXE $n = 1", f"- 02:RET {text}").replace("## Main", f"## Main() -> {returns}")
    assert found(made) == findings


def test_a_section_with_too_many_signs_is_still_a_section() -> None:
    assert found(listing("- 01:RET").replace("### Steps", "#### Steps")) == [(5, "SECTION_LEVEL")]


def test_a_trigger_with_an_unknown_code_is_an_error() -> None:
    text = listing("- 01:RET").replace("- T1:BGN At the beginning", "- T1:BGN At the beginning\n- T2:CNDD When $n > 0")
    assert [(one.line, one.code, one.severity) for one in check(text, "a.pbasm")] == [(5, "UNKNOWN_TRIGGER", "error")]


def test_unclosed_metadata_is_reported() -> None:
    text = listing("- 01:RET").replace("## Main", "## Main\n\nmetadata:\npublic: true\ncolour: red")
    assert found(text) == [(4, "OPEN_METADATA")]
    assert found(text.replace("colour: red", "colour: red\n---")) == []
    assert found(text.replace("public", "  public").replace("colour", "  colour")) == []


def test_a_private_playbook_of_another_agent_cannot_be_called() -> None:
    text = listing("- 01:QUE B.Help()", "- 02:QUE Help()", "- 03:QUE C.Go()", "- 04:RET", "# B", "## Help", "Help.")
    assert found(text) == [(6, "PRIVATE_PLAYBOOK"), (7, "PRIVATE_PLAYBOOK"), (8, "UNKNOWN_AGENT")]
    assert found(text.replace("## Help", "## Help\npublic: true")) == [(8, "UNKNOWN_AGENT")]


def test_a_program_that_nothing_starts_is_warned_about_unless_others_start_it() -> None:
    text = "# A\n## Main\n### Steps\n- 01:RET\n"
    assert found(text) == [(None, "NO_BEGINNING")]
    assert found(text.replace("# A\n", "# A\nstartup_mode: standby\n", 1)) == []


def test_a_source_is_noted_as_not_compiled() -> None:
    notes = [(line_of(SOURCE, heading), "NOT_COMPILED") for heading in ("## Check", "## Main", "## Wave")]
    assert found(SOURCE, "help.pb") == notes


def test_parse_errors_and_warnings_are_both_findings() -> None:
    assert found("words\n# A\n## P(*)\n") == [(1, "STRAY_TEXT"), (3, "SIGNATURE")]


def test_codes_mean_one_thing_in_all_dialects() -> None:
    assert CODES.keys() & GRAPH_CODES.keys() == CHILDREN.keys()
    assert not CODES.keys() & MARKDOWN_CODES.keys()


def test_findings_are_sarif_too() -> None:
    (result,) = sarif(check(listing("- 01:JMP 07"), "a.pbasm"), "a.pbasm")["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("DANGLING_JUMP", "error")


def test_a_mistake_in_the_first_number_is_reported_with_its_line() -> None:
    text = (
        "# A\n## Main() -> None\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 0l:EXE $a:int = 1\n- 02:RET $a\n"
    )
    found = {finding.code: finding for finding in check(text, "slip.pbasm")}
    assert (found["UNNUMBERED_STEP"].line, found["NOT_COMPILED"].line) == (6, 2)
    assert "UNNUMBERED_STEP" not in {finding.code for finding in check(text.replace("02:RET", "then"), "slip.pbasm")}


def test_an_overlong_code_is_reported_with_the_known_codes() -> None:
    text = "# A\n## Main() -> None\n### Triggers\n- T1:BGN At the beginning\n### Steps\n- 01:EXE $x:int = 1\n- 02:YLDD for exit\n"
    found = {finding.code: finding for finding in check(text, "slip.pbasm")}["UNNUMBERED_STEP"]
    assert (found.line, found.message) == (
        7,
        "This item has a number but no three-letter code, so it counts as part of the previous step.",
    )
    assert found.fix == "The codes are EXE, TNK, QUE, CND, JMP, CHK, RET and YLD."
