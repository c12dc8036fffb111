"""Parsing a Markdown playbook."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.model import Book, Condition, Elicitation, Output, PromptUse, Step, ToolUse
from cuebook.dialects.markdown.parse import Parsed, parse, read
from cuebook.dialects.markdown.parse.branches import letters
from cuebook.dialects.registry import detect
from cuebook.kernel.errors import BadInput
from tests.dialects.markdown.strategies import TEXTS
from tests.support.sampling import many

SMALL = """\
# Tea

For a rainy day.

## SYSTEM

Be brief.

## INPUTS

- `kind` (string: green): Which tea

## STEP 1: Brew

Brew {{kind}} tea.

## STEP 2: Serve

Serve it.
"""


def book(text: str) -> Book:
    return parse(text, "tea.md")


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "tea.md")
    return caught.value.problems


def step(*lines: str) -> Step:
    """The step that these lines make."""
    (made,) = book("\n".join(("# Tea", "", "## STEP 1: Brew", "", *lines))).steps
    return made


def test_a_playbook_is_read_with_its_lines() -> None:
    read = book(SMALL)
    assert (read.title, read.description, read.system) == ("Tea", "For a rainy day.", "Be brief.")
    assert [(step.label, step.title, step.content, step.line) for step in read.steps] == [
        ("1", "Brew", "Brew {{kind}} tea.", 13),
        ("2", "Serve", "Serve it.", 17),
    ]
    (kind,) = read.inputs
    assert (kind.name, kind.type, kind.default, kind.required, kind.line) == ("kind", "string", "green", False, 11)
    assert [(step.label, step.title) for step in read.plan] == [("1", "Brew"), ("2", "Serve")]
    assert read.warnings == ()


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_line_ends_and_a_byte_order_mark_make_no_difference(ending: str) -> None:
    assert book("\ufeff" + SMALL.replace("\n", ending)) == book(SMALL)


def test_only_line_feeds_end_a_line() -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\nOne\u2028two\x0cthree\n\n## STEP 2: Serve\n\nDone.\n"
    read = book(text)
    assert read.steps[0].content == "One\u2028two\x0cthree"
    assert read.steps[1].line == 7


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\ufeff\n", "\u00a0\n"])
def test_an_empty_document_is_refused(text: str) -> None:
    assert [p.message for p in problems(text)] == ["Document is empty"]


def test_the_size_limit_counts_bytes() -> None:
    head = "# Tea\n\n## STEP 1: Brew\n\n"
    room = 200_000 - len(head)
    assert book(head + "é" * (room // 2)).steps[0].content
    assert [p.message for p in problems(head + "é" * (room // 2 + 1))] == ["Document exceeds 200KB size limit"]
    assert book(head + "x" * room).steps[0].content
    assert [p.message for p in problems(head + "x" * (room + 1))] == ["Document exceeds 200KB size limit"]


def test_a_document_needs_a_title_before_its_first_section() -> None:
    wanted = "No title found: document must contain a level-1 heading (# Title)"
    found = problems("## STEP 1: Brew\n\n# Not a title\n")
    assert [(p.message, p.line) for p in found] == [(wanted, None)]


def test_front_matter_without_a_title_is_explained() -> None:
    (found,) = problems("---\nname: Tea\n---\n## STEP 1: Brew\n\nBrew.\n")
    assert "Front matter" in found.fix


def test_a_document_needs_a_step() -> None:
    wanted = "No steps found: document must contain at least one ## STEP heading"
    assert [p.message for p in problems("# Tea\n\n## Brew\n")] == [wanted]


def test_a_near_step_heading_is_named_if_there_are_no_steps() -> None:
    (found,) = problems("# Tea\n\n## Step 1: Brew\n\nBrew.\n")
    assert found.message.startswith("No steps found")
    assert found.fix == "Line 3 looks like a step heading: write it as '## STEP 1: Title'."


def test_steps_keep_their_numbers_and_their_order() -> None:
    read = book("# Tea\n\n## STEP 1: A\n\n## STEP 3: B\n\n## STEP 5: C\n")
    assert [step.label for step in read.steps] == ["1", "3", "5"]
    assert [(w.line, w.message) for w in read.warnings] == [
        (5, "Non-sequential step number: expected 2, got 3"),
        (7, "Non-sequential step number: expected 4, got 5"),
    ]


def test_a_repeated_number_gives_one_warning() -> None:
    read = book("# Tea\n\n## STEP 1: A\n\n## STEP 1: B\n\n## STEP 2: C\n")
    assert [w.message for w in read.warnings] == ["Non-sequential step number: expected 2, got 1"]


def test_a_number_that_is_too_large_does_not_make_a_step() -> None:
    text = f"# Tea\n\n## STEP {'9' * 5000}: A\n\n## STEP 1: B\n"
    assert [step.title for step in book(text).steps] == ["B"]


def test_unknown_sections_are_skipped() -> None:
    assert len(book("# Tea\n\n## Notes\n\nNothing.\n\n## STEP 1: Brew\n\nBrew.\n").steps) == 1


def test_blank_lines_of_the_author_stay() -> None:
    assert step("one  ", "", "", "", "two").content == "one\n\n\n\ntwo"


@pytest.mark.parametrize(
    ("lines", "content"),
    [
        (("a", "", "@output(x)", "", "b"), "a\n\nb"),
        (("a", "@output(x)", "b"), "a\nb"),
        (("a", "", "@output(x)", "b"), "a\n\nb"),
        (("a", "@output(x)", "", "", "b"), "a\n\n\nb"),
        (("a", "", "", "@output(x)", "", "", "b", "", "", "c"), "a\n\nb\n\n\nc"),
        (("a", "", "@output(x)", "", '@elicit(confirm, "?")', "", "b"), "a\n\nb"),
        (("@output(x)", "", "", "a"), "a"),
        (("a", "", "", "@output(x)", ""), "a"),
    ],
)
def test_a_directive_that_is_taken_out_leaves_one_blank_line(lines: tuple[str, ...], content: str) -> None:
    assert step(*lines).content == content


def test_all_problems_are_reported_together() -> None:
    text = "## INPUTS\n\n- `a` (string): x\n- `a` (text): y\n- b\n\n## STEP 1: Brew\n\n"
    found = problems(text + '@elicit(confirm, "?", default:"perhaps")\n')
    assert [(p.line, p.code) for p in found] == [(None, "F1"), (4, "F3"), (9, "elicit_default")]
    assert found[1].message == 'Duplicate input name: "a"'
    assert [w.code for w in read(text).warnings] == ["W2"]


def test_an_error_names_the_file_and_the_line() -> None:
    with pytest.raises(
        InvalidPlaybook, match=r"^tea\.md:5: Invalid elicit default: \"x\"\. Use yes or no for a confirm"
    ):
        parse('# Tea\n\n## STEP 1: Brew\n\n@elicit(confirm, "?", default:"x")\n', "tea.md")


def test_valid_and_invalid_documents_have_the_same_form() -> None:
    good, bad = read(SMALL), read("# Tea\n")
    assert (good.valid, good.definition, good.errors) == (True, book(SMALL), ())
    assert (bad.valid, bad.definition, len(bad.errors)) == (False, None, 1)


# --- inputs -------------------------------------------------------------------------------------------


def inputs(*lines: str) -> Book:
    return book("# Tea\n\n## INPUTS\n\n" + "\n".join(lines) + "\n\n## STEP 1: Brew\n\nBrew.\n")


@pytest.mark.parametrize(
    ("spec", "type_", "default", "required"),
    [
        ("string", "string", None, True),
        ("TEXT", "text", None, True),
        ("num: 5", "number", "5", False),
        ("int", "number", None, True),
        ("float", "number", None, True),
        ("Bool: yes", "boolean", "yes", False),
        ("json", "string", None, True),
        ("whatever", "string", None, True),
        ("string:", "string", None, True),
        ("string: a: b", "string", "a: b", False),
    ],
)
def test_types_and_defaults(spec: str, type_: str, default: str | None, required: bool) -> None:
    (declared,) = inputs(f"- `x` ({spec}): It").inputs
    assert (declared.type, declared.default, declared.required) == (type_, default, required)


@pytest.mark.parametrize("kind", ["enum", "select", "choice"])
def test_a_choice_has_options_and_no_default(kind: str) -> None:
    (declared,) = inputs(f"- `x` ({kind}: red, , green tea ): It").inputs
    assert (declared.type, declared.options, declared.default, declared.required) == (
        "enum",
        ("red", "green tea"),
        None,
        True,
    )


def test_malformed_input_lines_give_a_warning_and_other_lines_none() -> None:
    read = inputs("Some words.", "* `a` (string): x", "- b (string): y", "- `c` (string: :-)): z")
    assert [(w.line, w.message) for w in read.warnings] == [
        (6, 'Malformed input line: "* `a` (string): x"'),
        (7, 'Malformed input line: "- b (string): y"'),
        (8, 'Malformed input line: "- `c` (string: :-)): z"'),
    ]


def test_several_input_sections_are_merged() -> None:
    text = "# Tea\n\n## INPUTS\n\n- `a` (string): x\n\n## STEP 1: Brew\n\n## INPUTS\n\n- `b` (string): y\n"
    assert [declared.name for declared in book(text).inputs] == ["a", "b"]


# --- artifacts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        ("## ARTIFACTS\n\ntype: json", "json"),
        ("## artifacts\n\nWords.\n  TYPE:HTML_CSS  ", "html_css"),
        ("## OUTPUT\n\ntype: mermaid\ntype: json", "mermaid"),
        ("## ARTIFACTS\n\ntype: json\n\n## Output\n\ntype: markdown", "markdown"),
        ("## ARTIFACTS\n\ntype: {{form}}", "{{form}}"),
        ("## ARTIFACTS\n\ntype: {{form:string:json}}", "{{form:string:json}}"),
        ("## ARTIFACTS\n\ntype: two words", ""),
        ("## ARTIFACTS", ""),
    ],
)
def test_an_artifact_has_a_type(section: str, kept: str) -> None:
    read = book(f"# Tea\n\n## STEP 1: Brew\n\n{section}\n")
    assert (read.artifact_type, read.warnings) == (kept, ())


@pytest.mark.parametrize("said", ["pdf", "x{{form}}", "{{form}}.md"])
def test_an_unknown_artifact_type_is_left_out_with_a_warning(said: str) -> None:
    read = book(f"# Tea\n\n## STEP 1: Brew\n\n## ARTIFACTS\n\ntype: {said}\n")
    (warning,) = read.warnings
    assert (read.artifact_type, warning.line) == ("", 7)
    assert warning.message == (
        f'Unknown artifact type: "{said}". '
        "Valid types: markdown, json, mermaid, chartjs, html_css, javascript, typescript"
    )


# --- directives ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("@output(tea)", Output("tea")),
        ("   @output(tea: NUM)   ", Output("tea", "number")),
        ("@output(tea:whatever)", Output("tea", "string")),
        ("@output(tea: json)", Output("tea", "json")),
        ('@output(tea, extract:"leaf")', Output("tea", extract="leaf")),
        ('@output(tea: enum, "green", "black, strong")', Output("tea", "enum", ("green", "black, strong"))),
        ('@output(tea: select,"a",extract:"leaf")', Output("tea", "enum", ("a",), "leaf")),
        ('@output(tea: string, "a")', Output("tea", "string")),
        ('@output(tea, "a")', Output("tea")),
    ],
)
def test_an_output(line: str, output: Output) -> None:
    made = step(line)
    assert (made.content, made.output) == ("", Output(output.name, output.type, output.options, output.extract, 5))


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("@elicit(input)", Elicitation("input")),
        ('@elicit(Confirm, "Go on?")', Elicitation("confirm", "Go on?")),
        ('@elicit(select, "Which?", "a, b","c")', Elicitation("select", "Which?", ("a, b", "c"))),
        ("@elicit(input, 'Single quotes')", Elicitation("input")),
        ('@elicit(input, "", default:"")', Elicitation("input", "", (), "")),
        ('@elicit(input, "?", default:"a \\"b\\" \\\\ \\n")', Elicitation("input", "?", (), 'a "b" \\ \\n')),
        ('@elicit(confirm, "?", default:"YES")', Elicitation("confirm", "?", (), "yes")),
        ('@elicit(select, "?", "a", "b",default:"b")', Elicitation("select", "?", ("a", "b"), "b")),
        ('@elicit(input, default:"x")', Elicitation("input", "", (), "x")),
    ],
)
def test_a_question(line: str, asked: Elicitation) -> None:
    made = step(line)
    wanted = Elicitation(asked.type, asked.prompt, asked.options, asked.default, 5)
    assert (made.content, made.elicitation) == ("", wanted)


def test_a_question_of_an_unknown_type_is_left_out_with_a_warning() -> None:
    read = book('# Tea\n\n## STEP 1: Brew\n\na\n\n@elicit(Ask, "?")\n\nb\n')
    assert (read.steps[0].content, read.steps[0].elicitation) == ("a\n\nb", None)
    assert [(w.line, w.message) for w in read.warnings] == [(7, 'Invalid elicit type: "ask"')]


@pytest.mark.parametrize("rest", ['select, "?", "a", default:"A"', 'select, "?", default:""', 'confirm, default:""'])
def test_a_default_that_is_not_a_valid_answer_is_refused(rest: str) -> None:
    (found,) = problems(f"# Tea\n\n## STEP 1: Brew\n\n@elicit({rest})\n")
    assert (found.line, found.code) == (5, "elicit_default")


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ("@tool(shop, buy)", ToolUse("shop", "buy")),
        ('@tool(shop,buy,{"a": [1, 2]} )', ToolUse("shop", "buy", '{"a": [1, 2]}')),
        ('@tool("my, shop", \'buy "it"\', {})', ToolUse("my, shop", 'buy "it"', "{}")),
        ("@tool(O'Brien, buy)", ToolUse("O'Brien", "buy")),
        ('@tool("a" b, c)', ToolUse('"a" b', "c")),
    ],
)
def test_a_tool(line: str, tool: ToolUse) -> None:
    made = step(line)
    assert (made.content, made.tool) == ("", ToolUse(tool.connection, tool.tool, tool.arguments, 5))


@pytest.mark.parametrize("line", ["@tool(shop)", "@tool(shop, )", "@tool(, buy)", "@tool( )", '@tool("", "")'])
def test_a_tool_without_a_name_does_nothing(line: str) -> None:
    made = step("a", line)
    assert (made.content, made.tool) == ("a", None)


@pytest.mark.parametrize(
    "argument", ["library:brew", "file:a/b.md", "mcp:server/name", "{{kind}}", "brew", "library:{{kind}}-tea"]
)
def test_a_prompt_keeps_its_whole_argument(argument: str) -> None:
    made = step(f"@prompt( {argument} )")
    assert (made.content, made.prompt) == ("", PromptUse(argument, 5))


def test_a_prompt_with_an_unknown_scheme_is_left_out() -> None:
    text = "# T\n\n## STEP 1: A\n\na\n\n@prompt(bare)\n\n@prompt(https://example.org)\n\nb\n"
    parsed = read(text)
    assert parsed.definition is not None
    (made,) = parsed.definition.steps
    assert (made.content, made.prompt) == ("a\n\nb", PromptUse("bare", 7)), "what is left out replaces nothing"
    assert [(problem.line, problem.message) for problem in parsed.warnings] == [(9, 'Unknown prompt scheme: "https"')]


@pytest.mark.parametrize(
    "line",
    [
        "@output()", "@output(a b)", "@output(a", "@output(a) and more", "@output(a, extract:b)", "@output(a, 'b')",
        "@output(ä)", "@elicit()", "@elicit(input,)", "@elicit(input x)", '@elicit(input "x")', "@prompt()", "@prompt( )",
        "@tool()", "@Output(a)", "@output (a)", "@outputs(a)",
    ],
)  # fmt: skip
def test_a_malformed_directive_stays_in_the_text(line: str) -> None:
    made = step("a", line)
    assert (made.content, made.output, made.elicitation, made.prompt, made.tool) == (f"a\n{line}", *[None] * 4)


def test_the_last_directive_of_a_kind_counts() -> None:
    made = step("@output(a)", '@elicit(input, "?")', "@output(b: json)", "@elicit(nonsense)", "@output()")
    assert (made.output, made.elicitation) == (Output("b", "json", line=7), Elicitation("input", "?", line=6))


# --- branches -----------------------------------------------------------------------------------------

BRANCHES = """\
Before.

```if kind == "green"```

### STEP 1a: Warm

Warm the pot.

@output(pot)

### STEP 1b: Pour

Pour.

```elif kind != ""```

Headless.

@elicit(confirm, "Go on?")

```else```
```endif```

After.

@output(done)
"""


def branching(block: str) -> Step:
    (made,) = book(f"# Tea\n\n## INPUTS\n\n- `kind` (string)\n\n## STEP 1: Brew\n\n{block}").steps
    return made


def test_branches_have_conditions_and_sub_steps() -> None:
    made = branching(BRANCHES)
    assert (made.content, made.output) == ("Before.\n\nAfter.", Output("done", line=34))
    first, second, last = made.branches
    assert (first.condition, first.line) == (Condition("kind", "==", "green", "input"), 11)
    assert first.steps == (
        Step(1, "1a", "Warm", "Warm the pot.", 13, output=Output("pot", line=17)),
        Step(1, "1b", "Pour", "Pour.", 19),
    )
    assert (second.condition, second.line) == (Condition("kind", "!=", "", "input"), 23)
    (headless,) = second.steps
    assert (headless.label, headless.title, headless.content, headless.line) == ("1d", "Branch d", "Headless.", 23)
    assert headless.elicitation == Elicitation("confirm", "Go on?", line=27)
    assert (last.condition, last.steps, last.line) == (None, (), 29)


def test_text_before_the_first_sub_step_belongs_to_it() -> None:
    made = branching('```if kind == "a"```\nFirst.\n@output(x)\n### STEP 1a: A\nSecond.\n```endif```\n')
    (sub,) = made.branches[0].steps
    assert (sub.content, sub.output, sub.line) == ("First.\n\nSecond.", Output("x", line=11), 12)


def test_text_after_the_block_keeps_its_indent() -> None:
    made = branching('  a\n```if kind == "a"```\nx\n```endif```\n\n    ## code\n  more\n')
    assert made.content == "a\n\n    ## code\n  more"


@pytest.mark.parametrize(
    "marker",
    [
        "```if kind```", "```if kind = \"a\"```", "```if kind == 'a'```", "```if kind == a```", '```if "a" == kind```',
        '```If kind == "a"```', "```else ```", "``` else```", '```if kind == "a"', '``if kind == "a"``', '`if kind == "a"`',
        "```elif kind == \"a\"```", "```else```", "```endif```", "### STEP 1a: A", "### STEP 1: A", "#### STEP 1a: A",
    ],
)  # fmt: skip
def test_an_invalid_marker_stays_in_the_text(marker: str) -> None:
    made = branching(f"a\n{marker}\nb\n")
    assert (made.content, made.branches) == (f"a\n{marker}\nb", ())


@pytest.mark.parametrize("marker", ['```if  kind=="a"```', '  ```if kind == "a"  ```', '```if kind== "a"```'])
def test_blanks_in_a_marker_make_no_difference(marker: str) -> None:
    assert branching(f"{marker}\nb\n  ```endif```  \n").branches[0].condition == Condition("kind", "==", "a")


def test_a_block_that_is_not_closed_ends_with_its_step() -> None:
    read = book('# Tea\n\n## STEP 1: A\n\n```if x == ""```\n\nIn.\n\n## STEP 2: B\n\nOut.\n')
    first, second = read.steps
    assert [sub.content for sub in first.branches[0].steps] == ["In."]
    assert (second.content, second.branches) == ("Out.", ())


def test_a_second_block_continues_the_first() -> None:
    made = branching('a\n```if kind == "1"```\nb\n```endif```\nc\n```if kind == "2"```\nd\n```endif```\ne\n')
    assert (made.content, [branch.steps[0].label for branch in made.branches]) == ("a\n\nc\n\ne", ["1a", "1b"])


def test_after_z_come_two_letters() -> None:
    block = "\n".join(f'```{"elif" if n else "if"} kind == "{n}"```\nx' for n in range(28))
    assert [branch.steps[0].label for branch in branching(block).branches[24:]] == ["1y", "1z", "1aa", "1ab"]
    assert [letters(n) for n in (0, 25, 26, 51, 52, 701, 702)] == ["a", "z", "aa", "az", "ba", "zz", "aaa"]


def sources(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    read = book(text)
    conditions = [branch.condition for step in read.steps for branch in step.branches if branch.condition is not None]
    return [(one.variable, one.source) for one in conditions], [w.message for w in read.warnings if w.code == "W4"]


def test_a_condition_says_where_its_value_comes_from() -> None:
    text = """\
# Tea

## INPUTS

- `kind` (string)

## STEP 1: A

@output(first)

## STEP 2: B

@elicit(input, "?")
@output(own)

```if kind == "a"```
@output(inner)
@elicit(confirm, "?")
```elif first == "a"```
```elif own == "a"```
```elif __elicit_step_2 == "a"```
```elif inner == "a"```
```elif later == "a"```
```endif```

## STEP 3: C

```if inner == "a"```
```elif __elicit_step_2a == "a"```
```elif __elicit_step_3 == "a"```
```endif```

@output(later)
"""
    wanted = [
        ("kind", "input"),
        ("first", "step_output"),
        ("own", "step_output"),
        ("__elicit_step_2", "step_output"),
        ("inner", "input"),
        ("later", "input"),
        ("inner", "step_output"),
        ("__elicit_step_2a", "step_output"),
        ("__elicit_step_3", "input"),
    ]
    undeclared = [f'Undeclared branch variable: "{name}"' for name in ("inner", "later", "__elicit_step_3")]
    assert sources(text) == (wanted, undeclared)


def test_an_input_comes_before_an_output_of_the_same_name() -> None:
    text = '# T\n\n## INPUTS\n\n- `x` (string)\n\n## STEP 1: A\n\n@output(x)\n\n```if x == ""```\n```endif```\n'
    assert sources(text) == ([("x", "input")], [])


# --- code fences --------------------------------------------------------------------------------------

FENCED = "# Tea\n\n## STEP 1: Brew\n\n```\n## STEP 2: Not meant\n@output(x)\n```\n\n## STEP 2: Serve\n\n~~~\n```\n~~~\n"


def test_a_code_block_is_not_a_branch() -> None:
    made = step("```python", "if tea:", "    pour()", "```", "", "Mail me@output(now).")
    assert made.content.startswith("```python")


def test_a_heading_counts_inside_a_code_fence() -> None:
    assert [(s.title, s.content) for s in book(FENCED).steps] == [
        ("Brew", "```"), ("Not meant", "```"), ("Serve", "~~~\n```\n~~~")
    ]  # fmt: skip


def test_code_fences_are_respected_on_request() -> None:
    read = parse(FENCED, "tea.md", fenced=True)
    assert [(s.title, s.output) for s in read.steps] == [("Brew", None), ("Serve", None)]
    assert read.steps[0].content == "```\n## STEP 2: Not meant\n@output(x)\n```"


def test_a_fence_that_is_never_closed_hides_nothing() -> None:
    text = '# Tea\n\n## STEP 1: Brew\n\n```text\n@output(x)\n\n## STEP 2: Serve\n\n```if x == ""```\nA.\n```endif```\n'
    assert parse(text, "tea.md", fenced=True) == book(text)


# --- anything at all ----------------------------------------------------------------------------------


@settings(max_examples=many(75, 300), deadline=None)
@given(TEXTS)
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    assert_read(text)


def assert_read(text: str) -> None:
    for fenced in (False, True):
        parsed = read(text, fenced=fenced)
        if parsed.definition is None:
            assert parsed.errors
            assert all(problem.message and problem.code for problem in parsed.errors)
        else:
            assert_sound(parsed.definition, text)


def assert_sound(read: Book, text: str) -> None:
    assert read.title
    assert read.steps
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert all("STEP" in lines[step.line - 1] for step in read.steps)
    for one in read.walk():
        assert one.content == one.content.strip()
        assert all(line == line.rstrip() for line in one.content.split("\n"))
        for use, word in ((one.output, "@output("), (one.tool, "@tool("), (one.prompt, "@prompt(")):
            assert use is None or lines[use.line - 1].lstrip().startswith(word)
        for branch in one.branches:
            assert lines[branch.line - 1].lstrip().startswith("```")


LONG = 60_000


@pytest.mark.parametrize(
    "line",
    [
        "@elicit(input," + " " * LONG + "x", "@elicit(input" + ', default:"' * (LONG // 10) + ")",
        "@elicit(input" + ', default:"\\' * (LONG // 10) + '")', "@elicit(input" + ", " * LONG + ')"',
        "@output(" + "a" * LONG + "!)", "@output(a" + " " * LONG + ":!)", "@output(a" + ',"b"' * LONG + "!)",
        "@output(a" + ', "' * LONG + ")", "@tool(" + '"a' * LONG + ")", "@tool(" + ", " * LONG + ")",
        "@prompt(" + "{{a:b:" * (LONG // 6) + ")", "```if a" + " " * LONG + '== "b"`', "```if " + "a" * LONG + "```",
        "##" + " " * LONG + "x", "## STEP" + " " * LONG + "x", "## STEP 2:" + " " * LONG + "x", "#" * LONG,
        " " * LONG + "@output(x)", " " * LONG + "x", "### STEP " + "1" * LONG, "## SYSTEM" + " " * LONG + "x",
        "## INPUTS\n- `a`" + " " * LONG + "x", "## INPUTS\n- `a` (" + "x" * LONG, "## ARTIFACTS\ntype:" + " " * LONG + "x y",
        "## ARTIFACTS\ntype: " + "{{a:b:" * (LONG // 6),
    ],
    ids=range(25),
)  # fmt: skip
def test_a_hostile_line_is_read_in_time(line: str) -> None:
    """In quadratic time, each of these would take minutes and exceed the test's time limit."""
    assert isinstance(read(f"# Tea\n\n## STEP 1: Brew\n\n{line}\n"), Parsed)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("", "## STEP 1: A\n"), ("## STEP 1: A\n", "@output(x)\n"), ("## STEP 1: A\n", "\n"), ("## INPUTS\n", "-\n"),
        ("## STEP 1: A\n", '```if a == "b"```\nx\n```endif```\n'), ('## STEP 1: A\n```if a == "b"```\n', "```else```\n"),
        ("## STEP 1: A\n", "```\n"), ('## STEP 1: A\n```if a == "b"```\n', "### STEP 1a: A\n@output(b)\n"),
    ],
)  # fmt: skip
def test_as_many_lines_as_fit_are_read(head: str, unit: str) -> None:
    head = f"# Tea\n{head}"
    parsed: Any = read(head + unit * ((200_000 - len(head)) // len(unit)))
    assert parsed.errors == () or re.match("No steps", parsed.errors[0].message)


# --- recognition --------------------------------------------------------------------------------------


def test_a_playbook_is_recognised_by_its_name_or_its_headings() -> None:
    assert MARKDOWN.recognises("", "tea.playbook.md")
    assert MARKDOWN.recognises(SMALL, "tea.txt")
    assert MARKDOWN.recognises("\ufeff" + SMALL.replace("\n", "\r\n"), "tea")
    assert not MARKDOWN.recognises("steps:\n  - one\n", "tea.yaml")


def test_a_text_that_no_dialect_recognises_is_refused() -> None:
    with pytest.raises(BadInput, match=r"tea\.yaml: this is not a playbook"):
        detect("steps:\n", "tea.yaml")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_lone_surrogate_is_reported_on_its_line_whatever_ends_a_line(end: str) -> None:
    (problem,) = read(end.join(["# Tea", "", "Serve \ud800."])).errors
    assert problem.line == 3
