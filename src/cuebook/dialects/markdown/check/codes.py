"""The codes of the checker's findings, and findings as SARIF."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cuebook.dialects.children import CODES as CHILD_CODES
from cuebook.dialects.findings import Finding, Severity, log_of

ERRORS = {
    # fatal errors that the format defines
    "no_title": "The document has no title: a level-1 heading before the first section. (F1)",
    "no_steps": "The document has no steps. (F2)",
    "duplicate_input": "Two inputs have the same name. (F3)",
    "too_large": "The document is larger than 200,000 bytes. (F4)",
    "empty_document": "The document is empty. (F5)",
    "not_text": "The document is not valid UTF-8.",
    "elicit_default": "The default of a question is not one of its allowed answers.",
    "elicit_form": "The schema, the default or the people of a question cannot be used.",
    "approve": "An approval has an unknown or invalid field, or its changes lead to no earlier step.",
    # the run will not do what the playbook says
    "branch_marker": "A branch marker is malformed, so it is sent to the model, with every alternative.",
    "missing_endif": "A branch block has no ```endif```.",
    "stray_marker": "A branch marker is outside a block, so it is sent to the model as text.",
    "nested_if": "A nested branch block is treated as another alternative of the outer block.",
    "second_block": "A step has a second branch block, which is treated as more alternatives of the first.",
    "enum_options": "An enum input has no options, so no value is valid.",
    "prompt_path": "The path of a file prompt is outside the playbook's folder, so the step fails.",
    "internal_tool": "A step calls a tool that serves Cuebook itself, so the step fails.",
    **{code.lower(): meaning for code, (_, meaning) in CHILD_CODES.items()},
    "tool_json": "The arguments of a tool are not valid JSON, so the step fails.",
}

WARNINGS = {
    # warnings that the format defines
    "step_number": "Step numbers are not sequential. (W1)",
    "input_line": "A bullet in INPUTS is not a valid input declaration. (W2)",
    "artifact_type": "The artifact type is unknown, or may be unknown at run time. (W3)",
    "unknown_variable": "A variable is undeclared: its placeholder is not replaced, and in a condition it is empty. (W4, W6)",
    "elicit_type": "A question has an unknown type and is not asked. (W5)",
    "shadowed_input": "An output has the same name as an input, so the input's value is used instead. (W7)",
    # headings and sections
    "step_heading": "A heading resembles a step heading but is not one.",
    "section_heading": "A heading resembles SYSTEM, INPUTS or ARTIFACTS but is not one.",
    "repeated_section": "A section appears twice; only the last section is used.",
    "artifact_line": "ARTIFACTS does not specify a type.",
    "inside_fence": "A heading, directive or marker inside a code fence takes effect.",
    # directives
    "malformed_directive": "A directive is malformed, so it is sent to the model as text.",
    "inline_directive": "A directive is not alone on its line, so it is sent to the model as text.",
    "misplaced_directive": "A directive outside a step has no effect.",
    "repeated_directive": "A later directive of the same kind replaces this directive.",
    "select_options": "A select question has no options.",
    "elicit_prompt": "A question has no text.",
    "elicit_options": "A question that is not a select has options.",
    "elicit_dropped": "Text outside double quotes in a question is ignored.",
    "elicit_empty": "An option of a question is empty.",
    "unread_default": "The default of a question is misplaced or malformed and is ignored.",
    "output_options": "An output that is not an enum has options, or an enum output has none.",
    "prompt_scheme": "A prompt has an unknown scheme and is left out.",
    "prompt_name": "A prompt name is malformed, so the prompt will not be found.",
    "tool_arguments": "A @tool without a connection and a tool name has no effect.",
    "tool_connection": "A connection name is not a valid name for a tool server.",
    "unknown_tool": "A step calls a built-in tool that does not exist.",
    "approve_output": "A step only asks for an approval, so it has no output.",
    "tool_with_elicit": "A step has both a tool and a question: only the tool is used.",
    "tool_with_prompt": "A step has both a tool and a prompt: the prompt has no effect.",
    "tool_on_branching": "A step with branches calls a tool, so the branches are never reached.",
    # branches
    "substep_label": "The label of a sub-step does not begin with its step's number, or is used twice.",
    "substep_outside": "A sub-step outside a branch is plain text.",
    "text_before_substep": "Text before the first sub-step of a branch becomes part of that sub-step.",
    "many_branches": "A step has more than 26 sub-steps, but there are only 26 letters to label them.",
    "unreachable_branch": "A branch can never be chosen.",
    "unknown_option": "A condition compares with a value that the variable cannot have.",
    "empty_branch": "A branch is empty.",
    # values
    "used_before_set": "A variable is used before any step has set it.",
    "system_placeholder": "Placeholders in SYSTEM are not replaced.",
    "placeholder": "A placeholder is malformed, so it is not replaced.",
    "input_default": "The default of an input does not match its type.",
    "sensitive_mark": "An input seems meant to be sensitive, but its mark is at a place where it has no effect.",
    "empty_step": "A step is empty.",
}

NOTES = {
    "ignored_section": "A section that the format does not define is ignored.",
    "front_matter": "Front matter is ignored.",
    "input_type": "An input type is unknown and treated as string.",
    "output_type": "An output type is unknown and treated as string.",
    "tool_text": "The text of a step that calls a tool is ignored.",
    "unused_input": "An input is never used.",
    "unused_output": "The name of an output is never used.",
    "duplicate_output": "An output replaces an earlier output of the same name.",
}

CODES: dict[str, tuple[Severity, str]] = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}
"""The severity and meaning of each code. A code never changes its meaning."""


def shown(text: str) -> str:
    """A line of the playbook, shortened for a message."""
    text = text.strip()
    return text if len(text) <= 80 else text[:80] + "…"


def found(code: str, message: str, line: int | None = None, column: int | None = None, fix: str = "") -> Finding:
    return Finding(code, CODES[code][0], message, line, column if line else None, fix)


def sarif(findings: Iterable[Finding], place: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log. `place` is a relative path or a `file:///` URI."""
    return log_of(findings, place, CODES)
