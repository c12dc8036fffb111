"""The findings of the checker, and the cases in which it finds nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from cuebook.dialects.children import CODES as CHILDREN
from cuebook.dialects.markdown.check import CODES, Finding, check, sarif
from cuebook.dialects.markdown.parse import parse
from tests.dialects.markdown.strategies import TEXTS
from tests.support.sampling import many

INPUTS = "# Tea\n\n## INPUTS\n\n- `kind` (enum: green, black): Which\n- `hot` (boolean: true): Hot\n\n"
START = 8
"""The line of the step's heading below the inputs."""
USES = "Brew {{kind}}, {{hot}}.\n"
GREEN = '```if kind == "green"```'


def found(text: str, *, notes: bool = False) -> list[tuple[str, int | None]]:
    return [(one.code, one.line) for one in check(text, "tea.md") if notes or one.severity != "note"]


def in_step(*lines: str, notes: bool = False) -> list[tuple[str, int | None]]:
    """The findings in a step that uses both inputs; its first given line is line 1."""
    text = f"{INPUTS}## STEP 1: Brew\n\n{USES}" + "\n".join(lines)
    return [(code, line - START - 2 if line else line) for code, line in found(text, notes=notes)]


def the(text: str, code: str) -> Finding:
    (one,) = [finding for finding in check(text, "tea.md") if finding.code == code]
    return one


# --- what the parser says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", [("empty_document", None)]),
        ("x" * 200_001, [("too_large", None)]),
        ("# T\n\n## STEP 1: A\n\nhalf \ud800\n", [("not_text", 5)]),
        ("x", [("no_steps", None), ("no_title", None)]),
        ("# T\n\n## STEP 2: A\n\na\n", [("step_number", 3)]),
        ("# T\n\n## INPUTS\n\n- a\n\n## STEP 1: A\n\na\n", [("input_line", 5)]),
        ("# T\n\n## INPUTS\n\n- `a` (text)\n- `a` (text)\n\n## STEP 1: A\n\n{{a}}\n", [("duplicate_input", 6)]),
        ("# T\n\n## STEP 1: A\n\na\n\n## ARTIFACTS\n\ntype: x\n", [("artifact_type", 9)]),
        ('# T\n\n## STEP 1: A\n\na\n\n@elicit(x, "?")\n', [("elicit_type", 7)]),
        ('# T\n\n## STEP 1: A\n\n@elicit(select, "?", "a", default:"b")\n', [("elicit_default", 5), ("empty_step", 3)]),
        ('# T\n\n## STEP 1: A\n\nDo.\n\n@elicit(form, "?", 5)\n', [("elicit_form", 7)]),
        ('# T\n\n## STEP 1: A\n\nDo.\n\n@approve("?", vote:2)\n', [("approve", 7)]),
        ('# T\n\n## STEP 1: A\n\n@approve("?")\n@output(y)\n', [("approve_output", 6)]),
    ],
)
def test_problems_of_the_parser_are_included(text: str, codes: list[tuple[str, int | None]]) -> None:
    assert sorted(found(text)) == sorted(codes)


def test_a_document_that_was_read_before_is_not_read_again() -> None:
    text = f"{INPUTS}## STEP 2: Brew\n\n{USES}{{{{x}}}}\n"
    assert check(text, "tea.md", book=parse(text, "tea.md")) == check(text, "tea.md")


def test_a_good_playbook_has_no_findings() -> None:
    text = f"""\
{INPUTS}## STEP 1: Brew

{USES}
@output(pot: json, extract:"pot")

## STEP 2: Ask

@elicit(select, "More of {{{{pot}}}}?", "yes", "no", default:"no")
@output(more)

## STEP 3: Serve

```if more == "yes"```

### STEP 3a: Boil

@tool(kitchen, boil, {{"what": "{{{{pot}}}}", "cups": {{{{cups:number:2}}}}}})
@output(water)

### STEP 3b: Pour

Pour {{{{water}}}}.

```elif kind == "green"```

Headless, with {{{{__elicit_step_2}}}}.

```else```

@prompt(file:prompts/{{{{kind}}}}.md)

```endif```
"""
    assert check(text, "tea.md") == []


# --- headings and sections --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "fix"),
    [
        ("## Step 2: Serve it", "Write it as '## STEP 2: Serve it'."),
        ("## STEP 2:Serve", "Write it as '## STEP 2: Serve'."),
        ("## STEP 2 - Serve", "Write it as '## STEP 2: Serve'."),
        ("##STEP 2: Serve", "Write it as '## STEP 2: Serve'."),
        ("  ## STEP 2: Serve", "Write it as '## STEP 2: Serve'."),
        ("# STEP 2: Serve", "Write it as '## STEP 2: Serve'."),
        ("### STEP 2: Serve", "Write it as '## STEP 2: Serve'."),
        ("## STEP 2", "Write it as '## STEP 2: Title'."),
        ("## STEP 2a: Serve", "Write it as '### STEP 2a: Serve'."),
        ("## STEPS 2: Serve", "Write it as '## STEP 2: Serve'."),
        ("## **STEP 2: Serve**", "Write it as '## STEP 2: Serve'."),
        ("## **Step 2**: Serve", "Write it as '## STEP 2: Serve'."),
        ("## STEP: Serve", "Number it, as in '## STEP 1: Serve'."),
        ("## STEP A: Serve", "Number it, as in '## STEP 1: Serve'."),
        ("## Step two: Serve", "Number it, as in '## STEP 1: Serve'."),
        ("## STEP NEXT: Serve", "Number it, as in '## STEP 1: Serve'."),
        (f"## STEP {'1' * 16}: Serve", f"Write it as '## STEP {'1' * 16}: Serve'."),
    ],
)
def test_a_heading_that_is_nearly_a_step(heading: str, fix: str) -> None:
    text = f"# Tea\n\n## STEP 1: Brew\n\nBrew.\n\n{heading}\n\nServe.\n"
    one = the(text, "step_heading")
    assert (one.severity, one.line, one.fix) == ("warning", 7, fix)


def test_a_heading_that_is_nearly_a_sub_step() -> None:
    assert in_step('```if kind == "green"```', "### Step 1a: A", "a", "```endif```") == [("step_heading", 2)]


@pytest.mark.parametrize(
    "heading",
    [
        "### Step 1: Gather",
        "### Steps",
        "## Stepping stones",
        "#### step by step",
        "## Steps 1 to 3",
        "## Step back: think",
    ],
)
def test_a_heading_of_the_authors_own(heading: str) -> None:
    assert found(f"# Step 1: A title\n\n## STEP 1: Brew\n\nBrew.\n\n{heading}\n") == []


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("## Inputs:", "## INPUTS"), ("## INPUT", "## INPUTS"), ("# INPUTS", "## INPUTS"), ("##SYSTEM", "## SYSTEM"),
        ("## System Prompts", "## SYSTEM"), ("## ARTIFACT", "## ARTIFACTS"), ("## Outputs", "## ARTIFACTS"),
        (" ## OUTPUT ##", "## ARTIFACTS"),
    ],
)  # fmt: skip
def test_a_heading_that_is_nearly_a_section(heading: str, wanted: str) -> None:
    one = the(f"# Tea\n\n## STEP 1: Brew\n\nBrew.\n\n{heading}\n\nx\n", "section_heading")
    assert (one.line, one.fix) == (7, f"Write it as '{wanted}'.")


def test_prose_has_headings_such_as_output() -> None:
    assert found("# Tea\n\n## STEP 1: Brew\n\n### Output\n\nBrew.\n", notes=True) == []


def test_an_ignored_section_is_noted() -> None:
    one = the("# Tea\n\n## STEP 1: Brew\n\nBrew.\n\n## Context\n\nx\n", "ignored_section")
    assert (one.severity, one.line, one.fix) == (
        "note", 7, "If it belongs to the step above, use three '#'."
    )  # fmt: skip


def test_front_matter_is_noted() -> None:
    assert found("---\na: b\n---\n# Tea\n\n## STEP 1: Brew\n\nBrew.\n", notes=True) == [("front_matter", 1)]


def test_a_section_that_appears_twice() -> None:
    text = "# T\n\n## SYSTEM\n\na\n\n## SYSTEM\n\nb\n\n## STEP 1: A\n\na\n\n## OUTPUT\n\ntype: json\n\n## ARTIFACTS\n\ntype: json\n"
    assert found(text) == [("repeated_section", 3), ("repeated_section", 15)]


def test_an_artifact_without_a_type() -> None:
    assert found("# T\n\n## STEP 1: A\n\na\n\n## ARTIFACTS\n\n- type: json\n") == [("artifact_line", 7)]


def test_an_artifact_whose_type_may_be_invalid() -> None:
    text = f"{INPUTS}## STEP 1: A\n\n{USES}\n## ARTIFACTS\n\n  type: {{{{kind}}}}\n"
    one = the(text, "artifact_type")
    assert (one.line, one.column, one.message) == (14, 9, "'kind' may be green, black, which is not an artifact type.")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("```", "## STEP 2: Not meant", "a", "```", "b"), 2),
        (("```text", "@output(x)", "```", "{{kind}}"), 2),
        (("~~~", '```if kind == "green"```', "a", "```endif```", "~~~"), 2),
    ],
)
def test_what_counts_inside_a_code_fence(lines: tuple[str, ...], line: int) -> None:
    assert ("inside_fence", line) in in_step(*lines)


def test_what_does_not_count_inside_a_code_fence() -> None:
    assert in_step("```", "# Comment", "### Heading", "```", "", "~~~~", "```", "~~~", "~~~~") == []
    assert in_step('```if kind == "green"```', "a", "```else```", "b", "```endif```") == []


def test_a_fence_that_swallows_sections_is_named_once() -> None:
    lines = ("```", "## STEP 2: A", "a", "## STEP 3: B", "b", "```")
    assert in_step(*lines) == [("inside_fence", 2)]


def test_placeholders_in_system() -> None:
    text = "# T\n\n## SYSTEM\n\nBe brief.\nBe {{kind}}.\n\n## STEP 1: A\n\na\n"
    one = the(text, "system_placeholder")
    assert (one.line, one.column) == (6, 4)


@pytest.mark.parametrize(
    ("line", "code", "severity"),
    [
        ("- `x` (enum): X", "enum_options", "error"),
        ("- `x` (number: five): X", "input_default", "warning"),
        ("- `x` (boolean: perhaps): X", "input_default", "warning"),
        ("- `x` (strng): X", "input_type", "note"),
        ("- `x` (string: tea, sensitive): X", "sensitive_mark", "warning"),
        ("- `x` (string, sensitve): X", "sensitive_mark", "warning"),
        ("- `x` (sensitive): X", "sensitive_mark", "warning"),
        ("- `x` (json): X", "input_type", "note"),
    ],
)
def test_an_invalid_input_is_reported(line: str, code: str, severity: str) -> None:
    one = the(f"# T\n\n## INPUTS\n\n{line}\n\n## STEP 1: A\n\n{{{{x}}}}\n", code)
    assert (one.line, one.column, one.severity) == (5, 7, severity)


# --- directives -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("@output(a b)", "malformed_directive"),
        ("@output(a", "malformed_directive"),
        ("@Output(a)", "malformed_directive"),
        ("@output (a)", "malformed_directive"),
        ("@outputs(a)", "malformed_directive"),
        ("@output: a", "malformed_directive"),
        ("@elicit()", "malformed_directive"),
        ("Then @output(a)", "inline_directive"),
        ("- @output(a)", "inline_directive"),
        ('@elicit(select, "?")', "select_options"),
        ("@elicit(input)", "elicit_prompt"),
        ("@elicit(input, 'What?')", "elicit_prompt"),
        ('@elicit(confirm, "?", "a")', "elicit_options"),
        ('@elicit(select, "Which?", "one", two)', "elicit_dropped"),
        ('@elicit(select, "Which?", "one", "")', "elicit_empty"),
        ("@tool(what/ever, list)", "tool_connection"),
        ("@tool(builtin, agent_write)", "internal_tool"),
        ("@tool(python, worktree_merge)", "internal_tool"),
        ("@tool(builtin, Golb)", "unknown_tool"),
        ('@elicit(select, "?", default:"a", "a")', "unread_default"),
        ('@elicit(input, "?", default: "a")', "unread_default"),
        ('@output(kept: string, "a")', "output_options"),
        ("@output(kept: enum)", "output_options"),
        ("@prompt(http://x)", "prompt_scheme"),
        ("@prompt(Library:x)", "prompt_scheme"),
        ("@prompt(library:a b)", "prompt_name"),
        ("@prompt(library:)", "prompt_name"),
        ("@prompt(mcp:server)", "prompt_name"),
        ("@prompt(mcp:/x)", "prompt_name"),
        ("@prompt(file:)", "prompt_name"),
        ("@prompt(file:../x.md)", "prompt_path"),
        ("@prompt(file:a/../../x.md)", "prompt_path"),
        ("@prompt(file:/etc/x)", "prompt_path"),
        ("@prompt(file:~/x)", "prompt_path"),
        ("@prompt(file:C:/x)", "prompt_path"),
        ("@prompt(file:a\\b)", "prompt_path"),
        ("@prompt(../x)", "prompt_path"),
        ("@tool(a)", "tool_arguments"),
    ],
)
def test_an_invalid_directive_is_reported(line: str, code: str) -> None:
    codes = [one for one in in_step(line) if one[0] != "inline_directive" or code == one[0]]
    assert codes == [(code, 1)]
    assert all(one.fix for one in check(f"# T\n\n## STEP 1: A\n\na\n{line}\n", "t.md") if one.code == code)


@pytest.mark.parametrize(
    "line",
    [
        "Mail me@output(now).", "@mention", "@tool", "@Tools are fun.", "@prompt the user", "```python\n@tool\ndef f(): ...\n```", "Ask @tooling(x) for it.", '@elicit(input, "Say default: x")',
        "@prompt(file:prompts/{{kind}}.md)", "@prompt(library:{{kind}}-tea)", "@prompt(mcp:s/{{kind}})", "@prompt(bare)",
        "@prompt(file:a..b/c.md)", "@prompt({{kind}})",
    ],
)  # fmt: skip
def test_a_line_that_may_be_intended_is_not_reported(line: str) -> None:
    assert in_step(line) == []


@pytest.mark.parametrize(
    "call", ["builtin, Glob", "builtin, WebSearch", "python, golb", "github, golb", "files, agent_write"]
)
def test_tools_that_may_exist_are_not_reported(call: str) -> None:
    assert in_step(f"@tool({call})") == []


def test_a_misspelt_tool_gets_a_suggestion() -> None:
    (one,) = check("# T\n\n## STEP 1: A\n\n@tool(builtin, Golb)\n", "t.md")
    assert one.line == 5
    assert one.fix.startswith("Did you mean 'Glob'?")


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ("", []),
        (', {"a": "{{kind}}", "b": {{hot}}, "c": [1]}', []),
        (", {a: 1}", [("tool_json", 1)]),
        (", [1]", [("tool_json", 1)]),
        (', {"a": 1', [("tool_json", 1)]),
        (", " + "[" * 3000, [("tool_json", 1)]),
    ],
)
def test_arguments_of_a_tool(arguments: str, codes: list[tuple[str, int]]) -> None:
    assert in_step(f"@tool(a, b{arguments})") == codes


def test_directives_that_do_not_go_together() -> None:
    tool = "@tool(a, b)"
    assert in_step(tool, notes=True) == [("tool_text", 1)]
    assert in_step(tool, '@elicit(input, "?")') == [("tool_with_elicit", 1)]
    assert in_step(tool, "@prompt(x)") == [("tool_with_prompt", 1)]
    block = ('```if kind == "green"```', "a", "```endif```")
    assert in_step(tool, *block) == [("tool_on_branching", 1)]
    assert in_step(tool, "@output(x)", '```if x == "green"```', "a", "```endif```", notes=True) == []


def test_a_directive_that_is_replaced() -> None:
    assert in_step("@output(x)", "@output(y)", "@output()", "{{y}}") == [
        ("repeated_directive", 1), ("malformed_directive", 3), ("used_before_set", 4)
    ]  # fmt: skip


def test_a_directive_outside_a_step() -> None:
    assert found("# T\n\n## SYSTEM\n\n@output(x)\n\n## STEP 1: A\n\na\n") == [("misplaced_directive", 5)]


def test_an_unknown_output_type_is_noted() -> None:
    assert ("output_type", 1) in in_step("@output(x: strng)", notes=True)


@pytest.mark.parametrize("body", ["", "@output(x)", "@elicit(ask)", "@tool(a)"])
def test_a_step_with_nothing_to_do(body: str) -> None:
    assert ("empty_step", 3) in found(f"# T\n\n## STEP 1: A\n\n{body}\n")


# --- variables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("Brew {{knd}}.", 6, 'Step 1 references undeclared variable "{{knd}}"'),
        ('@tool(a, b, {"x": "{{knd}}"})', 20, 'Step 1 @tool argument references undeclared variable "{{knd}}"'),
        ("@prompt({{knd}})", 9, 'Step 1 @prompt references undeclared variable "{{knd}}"'),
        ('@elicit(input, "{{knd}}?")', 17, 'Step 1 @elicit references undeclared variable "{{knd}}"'),
        ('```if knd == "a"```', 1, 'Undeclared branch variable: "knd"'),
        ('  ```if knd == "a"```', 3, 'Undeclared branch variable: "knd"'),
    ],
)
def test_a_variable_that_nothing_declares(line: str, column: int, message: str) -> None:
    end = "\nx\n```endif```" if "`" in line else ""
    one = the(f"{INPUTS}## STEP 1: A\n\n{line}{end}\n", "unknown_variable")
    assert (one.line, one.column, one.message, one.fix) == (START + 2, column, message, "Did you mean 'kind'?")
    assert one.severity == "warning"


def test_a_variable_in_a_sub_step_is_reported_with_its_label() -> None:
    text = f"{INPUTS}## STEP 1: A\n\n{GREEN}\n### STEP 1a: A\n\n a {{{{xyz}}}}\n```endif```\n"
    one = the(text, "unknown_variable")
    assert (one.message, one.line, one.column) == ('Step 1a references undeclared variable "{{xyz}}"', 13, 4)
    assert one.fix == "Declare it in INPUTS, or set it with @output(xyz)."


def test_a_variable_in_the_type_of_the_artifact() -> None:
    one = the("# T\n\n## STEP 1: A\n\na\n\n## ARTIFACTS\n\ntype: {{x}}\n", "unknown_variable")
    assert (one.message, one.line, one.column) == ('Artifact type references undeclared variable "{{x}}"', 9, 7)


def test_a_variable_with_its_own_default_needs_no_declaration() -> None:
    assert in_step("{{x:string:y}}") == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("## STEP 1: A\n\n{{x}}\n\n## STEP 2: B\n\nb\n\n@output(x)\n", [("used_before_set", 5)]),
        ("## STEP 1: A\n\n{{x}}\n\n@output(x)\n", [("used_before_set", 5)]),
        ('## STEP 1: A\n\n```if x == ""```\na\n```endif```\n\n## STEP 2: B\n\nb\n\n@output(x)\n', [("used_before_set", 5)]),
        ('## STEP 1: A\n\n@elicit(input, "{{__elicit_step_1}}")\n\n{{__elicit_step_1}}\n', [("used_before_set", 5)]),
        (
            '## STEP 1: A\n\na\n@output(x)\n\n```if x == ""```\n### STEP 1a: A\n{{x}}\n@output(y)\n### STEP 1b: B\n{{y}}\n```else```\n{{y}}\n```endif```\n',
            [("used_before_set", 15)],
        ),
        ("## STEP 1: A\n\n{{__elicit_step_2}}\n\n## STEP 2: B\n\n@elicit(input, \"?\")\n", [("used_before_set", 5)]),
    ],
)  # fmt: skip
def test_a_variable_that_is_used_before_it_is_set(text: str, codes: list[tuple[str, int]]) -> None:
    assert found(f"# T\n\n{text}") == codes


def test_a_variable_of_another_branch_is_reported() -> None:
    one = the(
        f"{INPUTS}## STEP 1: A\n\n{GREEN}\na\n@output(y)\n```else```\n{{{{y}}}}\n```endif```\n", "used_before_set"
    )
    assert one.message == "Step 1b uses 'y', which is set only in another branch (step 1a)."


def test_an_output_with_the_name_of_an_input() -> None:
    one = the(f"{INPUTS}## STEP 1: A\n\n{USES}\n  @output(kind)\n", "shadowed_input")
    assert (one.message, one.line, one.column) == ('@output variable "kind" in step 1 shadows an input name', 12, 3)


def test_outputs_of_the_same_name_are_noted_unless_only_one_of_them_runs() -> None:
    block = (GREEN, "a", "@output(x)", "```else```", "b", "@output(x)", "```endif```")
    assert "duplicate_output" not in dict(in_step(*block, notes=True))
    one = the(f"{INPUTS}## STEP 1: A\n\na\n@output(x)\n\n## STEP 2: B\n\nb\n@output(x)\n", "duplicate_output")
    assert (one.severity, one.line, one.message) == ("note", 16, "'x' replaces the value that step 1 sets.")
    within = (GREEN, "### STEP 1a: A", "a", "@output(x)", "### STEP 1b: B", "b", "@output(x)", "```endif```")
    assert ("duplicate_output", 7) in in_step(*within, notes=True)


def test_unused_names_are_noted() -> None:
    text = f"{INPUTS}## STEP 1: A\n\na\n@output(x)\n"
    assert found(text, notes=True) == [("unused_input", 5), ("unused_input", 6), ("unused_output", 11)]


def test_a_placeholder_that_is_nearly_one() -> None:
    one = the(f"{INPUTS}## STEP 1: A\n\n{USES}And {{{{ kind }}}} too, {{{{ mustache }}}} not.\n", "placeholder")
    assert (one.line, one.column, one.fix) == (11, 5, "Write {{kind}}.")


def test_a_placeholder_in_a_condition() -> None:
    text = f'{INPUTS}## STEP 1: A\n\n{USES}\n```if kind == "{{{{hot}}}}"```\n\nB\n\n```endif```\n'
    found = [one for one in check(text, "t.md") if one.code == "placeholder"]
    assert [(one.line, one.column, one.message) for one in found] == [
        (12, 16, "{{hot}} in a condition is not replaced.")
    ]


# --- the table, and SARIF ---------------------------------------------------------------------------------


def test_every_code_is_tested() -> None:
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    others = {code.lower() for code in CHILDREN}  # tested in all dialects together
    assert [code for code in CODES if code not in others and f'"{code}"' not in here] == []


def test_findings_as_sarif() -> None:
    text = "# Tea\n\n## STEP 2: Brew\n\n{{x}} and {{y}}\n"
    findings = check(text, "tea.md")
    log = json.loads(json.dumps(sarif(findings, "my playbooks/tea.md")))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["step_number", "unknown_variable"]
    for finding, result in zip(findings, run["results"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["level"] == finding.severity
        assert result["message"]["text"].startswith(finding.message)
    place = run["results"][2]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "my%20playbooks/tea.md"},
        "region": {"startLine": 5, "startColumn": 11},
    }


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("100%.md", "100%25.md"),
        ("a%41.md", "a%2541.md"),
        ("a:b.md", "a%3Ab.md"),
        ("deep/ä?#.md", "deep/%C3%A4%3F%23.md"),
        ("\udcff.md", "%FF.md"),
        ("file:///tmp/a%20b.md", "file:///tmp/a%20b.md"),
    ],
)
def test_the_name_of_a_file_is_a_uri_in_sarif(path: str, uri: str) -> None:
    (result,) = sarif(check("", "tea.md"), path)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_a_finding_without_a_line_has_no_region_in_sarif() -> None:
    (result,) = sarif(check("", "tea.md"), "tea.md")["runs"][0]["results"]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "tea.md"}}}]


# --- anything at all --------------------------------------------------------------------------------------


@settings(max_examples=many(75, 300), deadline=None)
@given(TEXTS)
def test_any_text_is_checked(text: str) -> None:
    assert_checked(text)


def assert_checked(text: str) -> None:
    findings = check(text, "tea.md")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for one in findings:
        assert CODES[one.code][0] == one.severity
        assert one.message
        assert one.fix
        assert one.line is None or 1 <= one.line <= len(lines)
        assert (one.column is None) == (one.line is None)
        assert one.line is None or one.column is None or 1 <= one.column <= len(lines[one.line - 1])
    assert sarif(findings, "tea.md")["runs"][0]["results"] is not None


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("", "## STEP 1: A\n{{x}}\n@output(x)\n"), ("## STEP 1: A\n", '```if a == "b"```\nx\n```endif```\n'),
        ('## STEP 1: A\n```if a == "b"```\n', "```else```\nx\n@output(y)\n"), ("## STEP 1: A\n", "{{xyz}} {{ x }}\n"),
        ('## STEP 1: A\n```if a == "b"```\n', "### STEP 1a: A\n@output(b)\n"), ("## STEP 1: A\n", "```\n## A\n"),
        ("## STEP 1: A\n", "## INPUTS" + " " * 300 + "x\n"), ("## STEP 1: A\n", "```if a ==" + " " * 300 + "'x\n"),
    ],
)  # fmt: skip
def test_as_much_as_fits_is_checked(head: str, unit: str) -> None:
    head = f"# Tea\n{head}"
    assert check(head + unit * ((200_000 - len(head)) // len(unit)), "tea.md")


LONG = 60_000


@pytest.mark.parametrize(
    "line",
    [
        "## INPUTS" + " " * LONG + "x", "##" + " " * LONG, "## STEP 1" + "- " * LONG, "```if a ==" + " " * LONG + "'x'y```",
        "```if " + "a" * LONG + " is", "```" + "`" * LONG + "if", "@output(" + " " * LONG, "{{" * LONG, "{{ " * LONG,
        "@elicit(input, " + "default " * (LONG // 8) + ")", "@prompt(file:" + "../" * LONG + ")", "@tool(a, b, " + "[" * LONG + ")",
        "@tool(a, b, " + '{"a":' * (LONG // 5) + ")", "@tool(a, b, " + "{{a}}" * (LONG // 5) + ")",
    ],
    ids=range(14),
)  # fmt: skip
def test_a_hostile_line_is_checked_in_time(line: str) -> None:
    """In quadratic time, each of these would take minutes and exceed the test's time limit."""
    assert isinstance(check(f"# Tea\n\n## STEP 1: Brew\n\n{line}\n", "tea.md"), list)
