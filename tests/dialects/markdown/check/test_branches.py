"""The checker's findings about branches: markers, labels, and alternatives that are never chosen."""

from __future__ import annotations

import pytest

from cuebook.dialects.markdown.check import check
from tests.dialects.markdown.check.test_check import GREEN, INPUTS, START, USES, found, in_step, the

# --- markers and labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ((GREEN, "a"), [("missing_endif", 1)]),
        (("```else```",), [("stray_marker", 1)]),
        (("a", "```endif```"), [("stray_marker", 2)]),
        ((GREEN, "a", "```endif```", '```elif kind == "black"```'), [("stray_marker", 4)]),
        ((GREEN, "a", '```if hot == "true"```', "b", "```endif```", "```endif```"), [("nested_if", 3), ("stray_marker", 6)]),
        ((GREEN, "a", "```endif```", '```if hot == "true"```', "b", "```endif```"), [("second_block", 4)]),
        (("```if hot```", "a", "```else```", "b", "```endif```"), [("branch_marker", 1)]),
        (("```if hot```", "a", "```endif```", "```endif```"), [("branch_marker", 1), ("stray_marker", 4)]),
        ((GREEN, "a", "``` else ```", "b", "```endif```"), [("branch_marker", 3)]),
        ((GREEN, "a", "```end if```"), [("branch_marker", 3)]),
        (("### STEP 1a: A",), [("substep_outside", 1)]),
        ((GREEN, "### STEP 2a: A", "a", "```endif```"), [("substep_label", 2)]),
        ((GREEN, "### STEP 01a: A", "a", "```endif```"), []),
        ((GREEN, "### STEP 1a: A", "a", "```else```", "### STEP 1a: B", "b", "```endif```"), [("substep_label", 5)]),
        ((GREEN, "a", "### STEP 1a: A", "b", "```endif```"), [("text_before_substep", 1)]),
        ((GREEN, "```else```", "a", "```endif```"), [("empty_branch", 1)]),
        ((GREEN, "### STEP 1a: A", "", "```endif```"), [("empty_step", 2)]),
        ((GREEN, "### STEP 1aa: A", "a", "```endif```"), [("step_heading", 2)]),
        ((GREEN, "### STEP A: A", "a", "```endif```"), [("step_heading", 2)]),
        (('``if kind == "green"``', "a", "``else``", "b", "``endif``"), [("branch_marker", line) for line in (1, 3, 5)]),
        (('`if kind == "green"`', "a", "```endif```"), [("branch_marker", 1)]),
        ((GREEN, "a", "``else``", "b", "```endif```"), [("branch_marker", 3)]),
        ((GREEN, "a", "``endif``"), [("branch_marker", 3)]),
        (("```", 'if kind == "green"', "```", "a", "```", "endif", "```"), [("branch_marker", 2), ("branch_marker", 6)]),
    ],
)  # fmt: skip
def test_an_invalid_block_is_reported(lines: tuple[str, ...], codes: list[tuple[str, int]]) -> None:
    assert in_step(*lines) == codes


@pytest.mark.parametrize(
    "lines",
    [
        ("`else`", "``endif``"),
        ("```", "else", "```"),
        ("```python", 'if kind == "green"', "```"),
        ("```", 'if kind == "green":', "    brew()", "```"),
        ("```", 'if kind == "green"', "  brew", "end", "```"),
        ('Say `if kind == "green"` aloud.',),
    ],
)
def test_code_that_is_not_a_marker(lines: tuple[str, ...]) -> None:
    assert in_step(*lines) == []


def test_a_name_in_an_invalid_marker_counts_as_used() -> None:
    assert "unused_input" not in dict(in_step('``if kind == "green"``', "a", notes=True))


@pytest.mark.parametrize(
    ("marker", "fix"),
    [
        ("```if hot```", '```if hot == "true"```'),
        ("```if kind```", '```if kind == "green"```'),
        ("```if other```", '```if other == "value"```'),
        ("```if kind = 'black'```", '```if kind == "black"```'),
        ("```If kind == \"black\"```", '```if kind == "black"```'),
        ("```if kind == black", '```if kind == "black"```'),
        ("```elseif kind is not “black”```", '```elif kind != "black"```'),
        ("```else if kind != black```", '```elif kind != "black"```'),
        ("```if kind > 5```", '```if name == "value"```'),
        ("````else```", "```else```"),
    ],
)  # fmt: skip
def test_an_invalid_marker_is_corrected(marker: str, fix: str) -> None:
    one = the(f"{INPUTS}## STEP 1: A\n\n{USES}{marker}\nb\n", "branch_marker")
    assert (one.severity, one.line, one.fix) == ("error", START + 3, f"Write {fix}.")


@pytest.mark.parametrize(
    "marker",
    [
        '```if kind == "green" and hot == "true"```', "```if kind == green && hot == true```", "```if kind = a or kind = b```",
        '```if kind == "a" || "b"```', '```if hot and kind == "green"```', "```if a == b == c```",
    ],
)  # fmt: skip
def test_several_comparisons_in_a_marker_are_reported(marker: str) -> None:
    one = the(f"{INPUTS}## STEP 1: A\n\n{USES}{marker}\nb\n", "branch_marker")
    assert one.fix.startswith("A marker can contain only one comparison with one string")
    assert marker not in one.fix


def test_quotes_within_the_string_of_a_condition_are_reported() -> None:
    text = f'{INPUTS}## STEP 1: A\n\n{USES}{GREEN}\na\n```elif kind == "]\\")"```\nb\n```endif```\n'
    one = the(text, "branch_marker")
    assert one.fix == 'A string in a condition cannot contain quotes: write ```elif name == "value"```.'


def test_more_sub_steps_than_letters() -> None:
    block = [f'```{"elif" if n else "if"} kind != "{n}"```\nx' for n in range(27)]
    assert ("many_branches", -2) in in_step(*block, "```endif```")


def reach(*conditions: str) -> list[tuple[str, int | None]]:
    """The findings in a block with these conditions, by the number of the branch."""
    words = ["if", *["elif"] * len(conditions)]
    lines = [
        "```else```" if condition == "else" else f"```{word} {condition}```"
        for word, condition in zip(words, conditions, strict=False)
    ]
    return [(code, line) for code, line in in_step(*"\nx\n".join([*lines, "```endif```"]).split("\n"))]


@pytest.mark.parametrize(
    ("conditions", "codes"),
    [
        (('kind == "green"', "else"), []),
        (('kind == "green"', 'kind == "black"', "else"), [("unreachable_branch", 5)]),
        (('hot == "true"', 'hot == "false"', "else"), [("unreachable_branch", 5)]),
        (('hot == "true"', 'kind == "green"', 'hot == "false"', 'kind == "black"'), [("unreachable_branch", 7)]),
        (('kind == "green"', "else", 'kind == "black"'), [("unreachable_branch", 5)]),
        (('kind == "green"', 'kind == "green"'), [("unreachable_branch", 3)]),
        (('kind == "green"', 'kind != "green"', "else"), [("unreachable_branch", 5)]),
        (('kind != "green"', 'kind == "black"'), [("unreachable_branch", 3)]),
        (('kind != "green"', 'kind == "green"'), []),
        (('kind == "green"', 'kind == "black"', 'kind != "green"'), [("unreachable_branch", 5)]),
        (('kind == "red"', "else"), [("unknown_option", 1)]),
        (('kind != "red"', "else"), [("unknown_option", 1)]),
        (('hot == "yes"', "else"), [("unknown_option", 1)]),
        (('hot == "true"', 'kind == "green"'), []),
    ],
)
def test_a_branch_that_is_never_chosen(conditions: tuple[str, ...], codes: list[tuple[str, int]]) -> None:
    assert reach(*conditions) == codes


@pytest.mark.parametrize(
    ("line", "variable", "good", "bad"),
    [
        ('@output(x: enum, "a", "b")', "x", "a", "c"),
        ('@elicit(confirm, "?")', "__elicit_step_1", "yes", "true"),
        ('@elicit(select, "?", "a")', "__elicit_step_1", "a", "b"),
    ],
)
def test_the_values_of_an_output_are_known_too(line: str, variable: str, good: str, bad: str) -> None:
    text = f'# T\n\n## STEP 1: A\n\na\n\n{line}\n\n## STEP 2: B\n\n```if {variable} == "%s"```\nx\n```endif```\n'
    assert found(text % good) == []
    assert found(text % bad) == [("unknown_option", 11)]


SEVERITY = """\
# T

## INPUTS

- `k` (enum: a, b): K

## STEP 1: A

```if k == "a"```

Rate it.

@output(sev: enum, "low", "high")

```endif```

## STEP 2: B

%s
"""


@pytest.mark.parametrize(
    "conditions",
    [
        ('sev == ""',), ('sev != ""',), ('sev == "low"', 'sev == "high"', 'sev != "low"'), ('sev == "low"', 'sev == "high"', "else"),
        ('sev != "low"', "else"),
    ],
)  # fmt: skip
def test_an_output_may_be_empty_or_none_of_its_options(conditions: tuple[str, ...]) -> None:
    words = ["if", "elif", "elif"]
    markers = [
        "```else```" if one == "else" else f"```{word} {one}```" for word, one in zip(words, conditions, strict=False)
    ]
    assert found(SEVERITY % "\nx\n".join([*markers, "```endif```"])) == []


def test_an_unknown_option_of_an_output_is_reported() -> None:
    one = the(SEVERITY % '```if sev == "medium"```\nx\n```endif```', "unknown_option")
    assert (one.message, one.fix) == ("\"medium\" is not an option of 'sev'.", "Use one of: low, high.")


def test_options_that_are_known_only_during_a_run_may_be_anything() -> None:
    text = '# T\n\n## STEP 1: A\n\na\n@output(x)\n\n## STEP 2: B\n\n@elicit(select, "?", "{{x}}", "b")\n\n'
    assert found(text + '## STEP 3: C\n\n```if __elicit_step_2 == "c"```\nx\n```endif```\n') == []


def test_a_branch_is_found_at_its_column() -> None:
    text = f'{INPUTS}## STEP 1: A\n\n{USES}  ```if kind == "red"```\na\n    ```elif kind == "green"```\nb\n'
    text += ' ```elif kind == "green"```\nc\n```endif```\n'
    places = [(one.code, one.column) for one in check(text, "tea.md")]
    assert places == [("unknown_option", 3), ("unreachable_branch", 2)]


def test_the_output_of_a_step_that_only_asks_is_the_answer() -> None:
    text = '# T\n\n## STEP 1: A\n%s\n@elicit(confirm, "?")\n@output(x)\n\n## STEP 2: B\n\n```if x == "ok"```\nx\n```endif```\n'
    assert found(text % "") == [("unknown_option", 10)]
    assert found(text % "Words.") == []
