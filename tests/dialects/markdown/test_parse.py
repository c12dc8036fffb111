"""Reading a Markdown playbook."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.model import Book
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.registry import InvalidPlaybook, Problem, detect
from cuebook.kernel.errors import BadInput

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


def book_or_problems(text: str) -> Book | tuple[Problem, ...]:
    try:
        return book(text)
    except InvalidPlaybook as invalid:
        return invalid.problems


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "tea.md")
    return caught.value.problems


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


def test_an_empty_document_is_refused() -> None:
    assert [p.message for p in problems(" \n\t\r\n")] == ["Document is empty"]


def test_the_size_limit_counts_bytes() -> None:
    head = "# Tea\n\n## STEP 1: Brew\n\n"
    room = 200_000 - len(head)
    assert book(head + "é" * (room // 2)).steps[0].content
    assert [p.message for p in problems(head + "é" * (room // 2 + 1))] == ["Document exceeds 200KB size limit"]


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


def test_a_heading_that_is_nearly_a_step_is_named_when_there_is_no_other() -> None:
    (found,) = problems("# Tea\n\n## Step 1: Brew\n\nBrew.\n")
    assert found.message.startswith("No steps found")
    assert found.fix == "Line 3 looks like one: write it as '## STEP 1: Title'."


def test_a_heading_that_is_nearly_a_step_gives_a_warning() -> None:
    read = book("# Tea\n\n## STEP 1: Brew\n\nBrew.\n\n## STEP 2:Serve\n\nServe.\n")
    assert [(w.line, w.code) for w in read.warnings] == [(7, "step_heading")]


def test_steps_keep_their_numbers_and_their_order() -> None:
    read = book("# Tea\n\n## STEP 1: A\n\n## STEP 3: B\n\n## STEP 5: C\n")
    assert [step.label for step in read.steps] == ["1", "3", "5"]
    assert [(w.line, w.message) for w in read.warnings] == [
        (5, "Non-sequential step number: expected 2, got 3"),
        (7, "Non-sequential step number: expected 4, got 5"),
    ]


def test_sections_that_nobody_knows_are_skipped() -> None:
    assert len(book("# Tea\n\n## Notes\n\nNothing.\n\n## STEP 1: Brew\n\nBrew.\n").steps) == 1


def test_blank_lines_of_the_author_stay() -> None:
    assert book("# Tea\n\n## STEP 1: A\n\none  \n\n\n\ntwo\n").steps[0].content == "one\n\n\n\ntwo"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("@output(result)", "@output"),
        ('  @elicit(confirm, "Go on?")', "@elicit"),
        ("@prompt(library:brew)", "@prompt"),
        ('@tool(shop, buy, {"tea": 1})', "@tool"),
        ('```if kind == "green"```', "A branch (```if```)"),
        ("```if include_cta```", "A branch (```if```)"),
        ("```else```", "A branch (```else```)"),
        ("```endif```", "A branch (```endif```)"),
        ("### STEP 1a: Warm the pot", "A sub-step ('### STEP 1a: Warm the pot')"),
    ],
)
def test_what_cannot_be_run_yet_is_refused_with_its_line(line: str, what: str) -> None:
    (found,) = problems(f"# Tea\n\n## STEP 1: Brew\n\nBrew.\n{line}\n")
    assert (found.message, found.line) == (f"{what} is not supported yet.", 6)
    assert found.fix


@pytest.mark.parametrize("heading", ["## ARTIFACTS", "## Output"])
def test_an_artifact_section_is_refused_with_its_line(heading: str) -> None:
    (found,) = problems(f"# Tea\n\n## STEP 1: Brew\n\nBrew.\n\n{heading}\n\ntype: json\n")
    assert (found.line, found.code) == (7, "unsupported")


def test_a_code_block_is_no_branch() -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\n```python\nif tea:\n    pour()\n```\n\nMail me@output(now).\n"
    assert book(text).steps[0].content.startswith("```python")


def test_a_section_inside_an_open_fence_is_warned_of() -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\n```\n## STEP 2: Not meant\n```\n"
    assert [(w.line, w.code) for w in book(text).warnings] == [(6, "fence")]


def test_every_problem_is_told_at_once() -> None:
    found = problems("# Tea\n\n## INPUTS\n\n- `a` (string): x\n- `a` (text): y\n\n## STEP 1: Brew\n\n@output(tea)\n")
    assert [(p.line, p.code) for p in found] == [(6, "F3"), (10, "unsupported")]
    assert found[0].message == 'Duplicate input name: "a"'


def test_an_error_names_the_file_and_the_line() -> None:
    with pytest.raises(InvalidPlaybook, match=r"^tea\.md:5: @tool is not supported yet\. "):
        parse("# Tea\n\n## STEP 1: Brew\n\n@tool(a, b)\n", "tea.md")


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


def test_several_input_sections_are_one() -> None:
    text = "# Tea\n\n## INPUTS\n\n- `a` (string): x\n\n## INPUTS\n\n- `b` (string): y\n\n## STEP 1: Brew\n"
    assert [declared.name for declared in book(text).inputs] == ["a", "b"]


# --- anything at all ----------------------------------------------------------------------------------

PIECES = [
    "# Title\n", "## STEP 1: A\n", "## STEP 2: B\n", "## SYSTEM\n", "## INPUTS\n", "## Step 3\n", "### STEP 1a: C\n",
    "- `a` (string): x\n", "- `b` (enum: x, y)\n", "* c\n", "```\n", "```if a == \"b\"```\n", "@output(x)\n", "\ufeff", "\r",
    "{{a}}", "text\n", "\n",
]  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    read = book_or_problems(text)
    if not isinstance(read, Book):
        assert read
        return
    assert read.title
    assert read.steps
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert all("STEP" in lines[step.line - 1] for step in read.steps)


# --- recognition --------------------------------------------------------------------------------------


def test_a_playbook_is_recognised_by_its_name_or_its_headings() -> None:
    assert MARKDOWN.recognises("", "tea.playbook.md")
    assert MARKDOWN.recognises(SMALL, "tea.txt")
    assert MARKDOWN.recognises("\ufeff" + SMALL.replace("\n", "\r\n"), "tea")
    assert not MARKDOWN.recognises("steps:\n  - one\n", "tea.yaml")


def test_what_no_dialect_knows_is_refused() -> None:
    with pytest.raises(BadInput, match=r"tea\.yaml: this is no playbook"):
        detect("steps:\n", "tea.yaml")
