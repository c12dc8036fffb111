"""What the checker can say: the table of its codes, and findings as SARIF. Knows nothing of playbooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cuebook.dialects.findings import Finding, Severity, log_of

ERRORS = {
    # the format's own, fatal
    "no_title": "There is no level-1 heading before the first section. (F1)",
    "no_steps": "There is no step. (F2)",
    "duplicate_input": "Two inputs have the same name. (F3)",
    "too_large": "The document has more than 200,000 bytes. (F4)",
    "empty_document": "The document is empty. (F5)",
    "not_text": "The document is no UTF-8 text.",
    "elicit_default": "The default of a question is none of the answers it allows.",
    # what certainly runs otherwise than it is written
    "branch_marker": "A line looks like a branch marker and is none: it goes to the model, with every alternative.",
    "missing_endif": "A branch block is not closed.",
    "stray_marker": "A branch marker stands outside any block: it goes to the model as text.",
    "nested_if": "A branch block inside another one: it is read as one more alternative of the outer block.",
    "second_block": "A second branch block in a step: it is read as more alternatives of the first.",
    "enum_options": "An enum input has no options: no value fits.",
    "prompt_path": "A file prompt leaves the folder of the playbook: the step fails.",
    "tool_json": "The arguments of a tool are no JSON: the step fails.",
}

WARNINGS = {
    # the format's own
    "step_number": "Step numbers do not follow each other. (W1)",
    "input_line": "A bullet in INPUTS declares no input. (W2)",
    "artifact_type": "The type of the artifact is unknown, or may turn out to be. (W3)",
    "unknown_variable": "A variable that nothing declares: it stays as it is written, or is empty in a branch. (W4, W6)",
    "elicit_type": "A question is of an unknown type, and is not asked. (W5)",
    "shadowed_input": "An output has the name of an input, which hides it. (W7)",
    # headings and sections
    "step_heading": "A heading looks like a step and is none.",
    "section_heading": "A heading looks like SYSTEM, INPUTS or ARTIFACTS and is none.",
    "repeated_section": "A section stands twice; the last one counts.",
    "artifact_line": "ARTIFACTS names no type.",
    "inside_fence": "A heading, directive or marker inside a code fence counts, as everywhere.",
    # directives
    "malformed_directive": "A line looks like a directive and is none: it goes to the model.",
    "inline_directive": "A directive within a line of text: it goes to the model.",
    "misplaced_directive": "A directive outside a step: it does nothing.",
    "repeated_directive": "A directive of the same kind follows in the step, and replaces this one.",
    "select_options": "A question offers a choice and no options.",
    "elicit_prompt": "A question has no words.",
    "elicit_options": "A question that offers no choice has options.",
    "elicit_dropped": "Text of a question outside double quotes is left out.",
    "elicit_empty": "An option of a question is empty.",
    "unread_default": "The default of a question is not written where and as it is read.",
    "output_options": "Options of an output that is no enum, or an enum output without any.",
    "prompt_scheme": "A prompt comes from a place that nobody knows, and is left out.",
    "prompt_name": "The name of a prompt is malformed: it will not be found.",
    "tool_arguments": "A tool needs a connection and a name; without them the line does nothing.",
    "tool_connection": "A connection has a name that no tool server can have.",
    "tool_with_elicit": "A tool and a question in one step: only the tool is used.",
    "tool_with_prompt": "A tool and a prompt in one step: the prompt has no effect.",
    "tool_on_branching": "A tool on a step with branches: the branches are never reached.",
    # branches
    "substep_label": "The label of a sub-step does not begin with its step's number, or stands twice.",
    "substep_outside": "A sub-step outside a branch is text like any other.",
    "text_before_substep": "Text before the first sub-step of a branch is put before that sub-step's own.",
    "many_branches": "More than 26 sub-steps: there are no letters left to label them.",
    "unreachable_branch": "A branch that can never be chosen.",
    "unknown_option": "A condition compares with a value that is not among those of the variable.",
    "empty_branch": "A branch with nothing in it.",
    # values
    "used_before_set": "A variable is used before any step has set it.",
    "system_placeholder": "Placeholders in SYSTEM are not filled in.",
    "placeholder": "Nearly a placeholder: it stays as it is written.",
    "input_default": "The default of an input does not fit its type.",
    "empty_step": "A step with nothing to do.",
}

NOTES = {
    "ignored_section": "A section that no reader of the format knows: nobody sees it.",
    "front_matter": "Front matter is not read.",
    "input_type": "An unknown type of input, read as string.",
    "output_type": "An unknown type of output, read as string.",
    "tool_text": "The text of a step that calls a tool goes nowhere.",
    "unused_input": "An input that nothing uses.",
    "unused_output": "An output that nothing uses by its name.",
    "duplicate_output": "An output replaces one of the same name.",
}

CODES: dict[str, tuple[Severity, str]] = {
    **{code: ("error", text) for code, text in ERRORS.items()},
    **{code: ("warning", text) for code, text in WARNINGS.items()},
    **{code: ("note", text) for code, text in NOTES.items()},
}
"""Every code with its severity and meaning. A code is never given another meaning."""


def shown(text: str) -> str:
    """A line of the playbook as a message quotes it."""
    text = text.strip()
    return text if len(text) <= 80 else text[:80] + "…"


def found(code: str, message: str, line: int | None = None, column: int | None = None, fix: str = "") -> Finding:
    return Finding(code, CODES[code][0], message, line, column if line else None, fix)


def sarif(findings: Iterable[Finding], place: str) -> dict[str, Any]:
    """The findings in one file as a SARIF 2.1.0 log. `place` is a relative path, or a URI that begins with `file:///`."""
    return log_of(findings, place, CODES)
