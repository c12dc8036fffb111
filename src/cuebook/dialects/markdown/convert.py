"""Converts the document of a Markdown playbook to JSON, in the shape of the format's test vectors, and back to Markdown.

The Markdown is parsed again before it is returned, so that nothing is lost silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.markdown.model import Book, Branch, DeclaredInput, Elicitation, Output, Step, ToolUse
from cuebook.dialects.markdown.parse import SIZE_LIMIT, Parsed, directives, read
from cuebook.dialects.markdown.parse.branches import letters

Json = dict[str, Any]


class Unwritable(InvalidPlaybook):
    """A definition that the format cannot express."""

    code = "unwritable"


# --- to JSON ------------------------------------------------------------------------------------------


def result_object(parsed: Parsed) -> Json:
    """The result of parsing, in the shape of the vectors."""
    return {
        "valid": parsed.valid,
        "definition": None if parsed.definition is None else to_json(parsed.definition),
        "warnings": [_problem(problem) for problem in parsed.warnings],
        "errors": [_problem(problem) for problem in parsed.errors],
    }


def to_json(book: Book) -> Json:
    """The document in the shape of `definition` in the vectors."""
    return {
        "title": book.title,
        "description": book.description,
        "system_prompt": book.system,
        "inputs": [_input(declared) for declared in book.inputs],
        "steps": [_step(step) for step in book.steps],
        "artifact_type": book.artifact_type,
    }


def _problem(problem: Problem) -> Json:
    return {"line": problem.line, "message": problem.message} if problem.line else {"message": problem.message}


def _input(declared: DeclaredInput) -> Json:
    found: Json = {"name": declared.name, "type": declared.type}
    if declared.default is not None:
        found["default"] = declared.default
    if declared.options:
        found["options"] = list(declared.options)
    if declared.sensitive:
        found["sensitive"] = True
    return found | {"description": declared.description, "required": declared.required, "line": declared.line}


def _step(step: Step) -> Json:
    found: Json = {"number": step.number, "label": step.label, "title": step.title, "content": step.content}
    if step.prompt is not None:
        found["prompt_ref"] = {"prompt_id": step.prompt.argument}
    found |= _output(step.output or Output(""))
    if step.elicitation is not None:
        found["elicitation"] = _elicitation(step.elicitation)
    if step.tool is not None:
        found["tool_call"] = _tool(step.tool)
    if step.approval is not None:
        found["approval"] = step.approval.written
    found["is_branching"] = bool(step.branches)
    if step.branches:
        found["branches"] = [_branch(branch) for branch in step.branches]
    found["line"] = step.line
    return found


def _output(output: Output) -> Json:
    found: Json = {"output_var": output.name}
    if output.type:
        found |= {"output_type": output.type, "output_options": list(output.options) or None}
    return found | {"extract_field": output.extract}


def _elicitation(elicitation: Elicitation) -> Json:
    found: Json = {"type": elicitation.type, "prompt": elicitation.prompt}
    if elicitation.options:
        found["options"] = list(elicitation.options)
    if elicitation.default is not None:
        found["default"] = elicitation.default
    if elicitation.schema is not None:
        found["schema"] = elicitation.schema
    return found | {"by": list(elicitation.by)} if elicitation.by else found


def _tool(tool: ToolUse) -> Json:
    found: Json = {"connection_name": tool.connection, "tool_name": tool.tool}
    return found | {"arguments": tool.arguments} if tool.arguments else found


def _branch(branch: Branch) -> Json:
    condition = branch.condition
    return {
        "condition": None if condition is None else msgspec.to_builtins(condition),
        "steps": [_step(step) for step in branch.steps],
    }


# --- the schema of a definition -------------------------------------------------------------------------


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields are compared in order. None means that a field is absent or derived from others."""


class _Input(_Shape, frozen=True, kw_only=True):
    name: str
    type: str = "string"
    default: str | None = None
    options: list[str] | None = None
    description: str = ""
    required: bool | None = None
    sensitive: bool = False
    line: int = 0


class _PromptRef(_Shape, frozen=True, kw_only=True):
    prompt_id: str


class _Elicitation(_Shape, frozen=True, kw_only=True):
    type: str
    prompt: str = ""
    options: list[str] | None = None
    default: str | None = None
    schema: dict[str, Any] | None = None
    by: list[str] | None = None


class _ToolCall(_Shape, frozen=True, kw_only=True):
    connection_name: str
    tool_name: str
    arguments: str | None = None


class _Condition(_Shape, frozen=True, kw_only=True):
    variable: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_]+\Z")]
    operator: Literal["==", "!="]
    value: Annotated[str, msgspec.Meta(pattern=r'^[^"\r\n]*\Z')]
    source: str | None = None


class _Branch(_Shape, frozen=True, kw_only=True):
    condition: _Condition | None
    steps: list[_Step] | None = None


class _Step(_Shape, frozen=True, kw_only=True):
    number: Annotated[int, msgspec.Meta(ge=0, lt=10**15)]
    label: str | None = None
    title: str
    prompt_ref: _PromptRef | None = None
    output_var: str | None = None
    output_type: str | None = None
    output_options: list[str] | None = None
    extract_field: str | None = None
    elicitation: _Elicitation | None = None
    tool_call: _ToolCall | None = None
    approval: Annotated[str, msgspec.Meta(pattern=r"^@approve\([^\r\n]*\)\Z")] | None = None
    is_branching: bool | None = None
    branches: list[_Branch] | None = None
    content: str | None = None
    line: int = 0


class _Definition(_Shape, frozen=True, kw_only=True):
    title: str
    description: str | None = None
    system_prompt: str | None = None
    inputs: list[_Input] | None = None
    steps: list[_Step]
    artifact_type: str | None = None


# --- back to Markdown -----------------------------------------------------------------------------------


def from_json(definition: Any, name: str = "definition") -> str:
    """The text of a playbook with this definition. Line numbers may differ. Raises `Unwritable`, which names the first
    field that cannot be written.

    A result object with a `definition` is also accepted.
    """
    given = _given(definition, name)
    _refuse_surrogates(msgspec.to_builtins(given), name)
    _refuse_branches(given, name)
    text = "\n\n".join(_sections(given)) + "\n"
    if len(text.encode("utf-8", "surrogatepass")) > SIZE_LIMIT:
        text = "\n".join(_sections(given, tight=True)) + "\n"
    parsed = read(text)
    if parsed.definition is None:
        raise Unwritable(name, [_explained(problem) for problem in parsed.errors])
    wanted, got = msgspec.to_builtins(given), to_json(parsed.definition)
    # A field that appears only after parsing came from the text of another field. The first comparison ignores it, so
    # that the problem names that other field.
    lost = _difference(wanted, got, given_only=True) or _difference(wanted, got)
    if lost is not None:
        raise Unwritable(name, [lost])
    return text


_PATH = re.compile(r"\$\.?([^`]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _given(definition: Any, name: str) -> _Definition:
    if isinstance(definition, dict) and "definition" in definition and "title" not in definition:
        definition = definition["definition"]
    try:
        return msgspec.convert(definition, _Definition)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        path = _PATH.search(where)
        field = path[1] if path else "definition"
        problem = Problem(
            f"{field}: {message}.", fix="Write it as `cuebook parse --json` prints it.", code="unwritable"
        )
        raise Unwritable(name, [problem]) from None
    except RecursionError:
        raise Unwritable(name, [Problem("steps: branches are nested too deeply.", code="unwritable")]) from None


def _refuse_surrogates(value: Any, name: str, path: str = "") -> None:
    """Rejects lone surrogates such as `\\ud800`, which JSON can escape but a file cannot contain."""
    if isinstance(value, dict):
        for key, one in value.items():
            _refuse_surrogates(one, name, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _refuse_surrogates(one, name, f"{path}[{index}]")
    elif isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        message = f"{path} cannot be written: it contains a lone surrogate."
        raise Unwritable(name, [Problem(message, fix="Correct or remove it.", code="unwritable")])


def _refuse_branches(given: _Definition, name: str) -> None:
    """Rejects branches whose differences could not be traced to a field."""
    for number, step in enumerate(given.steps):
        for position, branch in enumerate(step.branches or []):
            where = f"steps[{number}].branches[{position}]"
            if not position and branch.condition is None:
                message = f"{where}.condition cannot be written: the first branch of a step must have a condition."
                raise Unwritable(name, [Problem(message, code="unwritable")])
            for place, sub in enumerate(branch.steps or []):
                if sub.branches:
                    message = f"{where}.steps[{place}].branches cannot be written: a sub-step cannot have branches."
                    raise Unwritable(name, [Problem(message, code="unwritable")])


def _sections(given: _Definition, tight: bool = False) -> Iterator[str]:
    """The parts of the text, to be joined by blank lines. `tight` omits headings that the format implies."""
    yield f"# {given.title}"
    if given.description:
        yield _prose(given.description)
    if given.system_prompt:
        yield "## SYSTEM"
        yield _prose(given.system_prompt)
    if given.inputs:
        yield "## INPUTS"
        yield "\n".join(map(_input_line, given.inputs))
    for step in given.steps:
        yield from _step_parts(f"## STEP {step.number}: {step.title}", step, tight)
    if given.artifact_type:
        yield "## ARTIFACTS"
        yield f"type: {given.artifact_type}"


def _prose(text: str) -> str:
    """The text, indented if it begins like a heading. Surrounding whitespace is not part of it."""
    return f" {text}" if text.startswith("#") else text


def _input_line(declared: _Input) -> str:
    values = ", ".join(declared.options or []) if declared.type == "enum" else declared.default
    kind = f"{declared.type}, sensitive" if declared.sensitive else declared.type
    spec = f"{kind}: {values}" if values else kind
    return f"- `{declared.name}` ({spec})" + (f": {declared.description}" if declared.description else "")


def _step_parts(heading: str, step: _Step, tight: bool) -> Iterator[str]:
    if heading:
        yield heading
    before = [line for line in (step.approval, _prompt_line(step), _tool_line(step), _elicit_line(step)) if line]
    if before:
        yield "\n".join(before)
    if step.content:
        yield _prose(step.content)
    if step.output_var or step.output_type or step.extract_field:
        yield _output_line(step)
    for position, branch in enumerate(step.branches or []):
        yield _marker(position, branch.condition)
        for sub in branch.steps or []:
            yield from _step_parts(_sub_heading(step, position, branch, sub, tight), sub, tight)
    if step.branches:
        yield "```endif```"


def _marker(position: int, condition: _Condition | None) -> str:
    if condition is None:
        return "```else```"
    word = "elif" if position else "if"
    return f'```{word} {condition.variable} {condition.operator} "{condition.value}"```'


def _sub_heading(step: _Step, position: int, branch: _Branch, sub: _Step, tight: bool) -> str:
    """The heading of a sub-step; empty if the format implies it. It must be empty beyond z."""
    letter = letters(position)
    synthetic = (f"{step.number}{letter}", f"Branch {letter}")
    said = sub.content or sub.prompt_ref or sub.output_var or sub.elicitation or sub.tool_call or sub.approval
    labels = [one.label for other in step.branches or () for one in other.steps or ()]
    optional = position >= 26 or (tight and said and labels.count(sub.label) == 1)
    if optional and len(branch.steps or []) == 1 and (sub.label, sub.title) == synthetic:
        return ""
    return f"### STEP {sub.label}: {sub.title}"


def _prompt_line(step: _Step) -> str:
    return f"@prompt({step.prompt_ref.prompt_id})" if step.prompt_ref is not None else ""


def _tool_line(step: _Step) -> str:
    call = step.tool_call
    if call is None:
        return ""
    parts = [_quoted_name(call.connection_name), _quoted_name(call.tool_name)]
    return f"@tool({', '.join([*parts, call.arguments] if call.arguments else parts)})"


def _quoted_name(name: str) -> str:
    """The name, quoted if needed."""
    for form in (name, f'"{name}"', f"'{name}'"):
        if directives.read_name(f"{form}, x") == (name, " x"):
            return form
    return name


def _elicit_line(step: _Step) -> str:
    asked = step.elicitation
    if asked is None:
        return ""
    parts = [asked.type]
    by = [f'by:"{", ".join(asked.by)}"'] if asked.by else []
    if asked.schema is not None:
        default = [] if asked.default is None else [f"default:{asked.default}"]
        parts += [f'"{asked.prompt}"', msgspec.json.encode(asked.schema).decode(), *default, *by]
        return f"@elicit({', '.join(parts)})"
    if asked.prompt or asked.options:
        parts += [f'"{text}"' for text in (asked.prompt, *(asked.options or []))]
    if asked.default is not None:
        escaped = asked.default.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'default:"{escaped}"')
    return f"@elicit({', '.join([*parts, *by])})"


def _output_line(step: _Step) -> str:
    named = f"{step.output_var or ''}: {step.output_type}" if step.output_type else step.output_var or ""
    parts = [named, *(f'"{option}"' for option in step.output_options or [])]
    if step.extract_field:
        parts.append(f'extract:"{step.extract_field}"')
    return f"@output({', '.join(parts)})"


# --- differences ----------------------------------------------------------------------------------------

_FATAL = {"F1": "title", "F2": "steps", "F3": "inputs", "elicit_default": "elicitation.default"}
_FOLLOWS = ("label", "required", "is_branching", "source")
"""Fields that may be absent, because they are derived from others."""
_PROSE = ("description", "system_prompt", "content")
_PLAIN = "It must be one line without surrounding whitespace"
_HINTS = {
    "title": f"{_PLAIN}.",
    "description": "No line in it may begin with '## '.",
    "system_prompt": "No line in it may begin with '## '.",
    "content": "No line in it may be a heading, a directive or a branch marker, or end in whitespace.",
    "default": f"{_PLAIN}; in an input, also without ')'.",
    "options": f"{_PLAIN}; without ',' and ')' in an input, without quotes in a directive.",
    "required": "It depends on the default: an input without a default is required, and so is an enum.",
    "label": "It must be the step's number; for a sub-step, the number and one letter.",
    "source": "It depends on the declarations of the playbook.",
    "is_branching": "It depends on the branches.",
    "output_options": "Only an enum has options.",
    "prompt_id": "It must be library:NAME, file:PATH, mcp:SERVER/NAME, {{variable}} or a bare name.",
}


def _explained(problem: Problem) -> Problem:
    field = _FATAL.get(problem.code, "definition")
    return Problem(f"{field}: {problem.message}", fix=problem.fix, code="unwritable")


def _difference(wanted: Any, got: Any, path: str = "", key: str = "", given_only: bool = False) -> Problem | None:
    """The first field that differs after parsing."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key, value in wanted.items():
            found = _difference(value, got.get(key), f"{path}.{key}" if path else key, key, given_only)
            if found is not None:
                return found
        return None
    if isinstance(wanted, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
            found = _difference(one, other, f"{path}[{index}]", key, given_only)
            if found is not None:
                return found
        if len(wanted) == len(got):
            return None
    if _same(wanted, got, path, key) or (given_only and not wanted and key not in _PROSE):
        return None
    shown = json.dumps(got, ensure_ascii=False)
    shown = shown if len(shown) <= 80 else shown[:80] + "…"
    return Problem(
        f"{path} cannot be written: it would be read as {shown}.", fix=_HINTS.get(key, ""), code="unwritable"
    )


def _same(wanted: Any, got: Any, path: str, key: str) -> bool:
    if key == "line" or (key in _FOLLOWS and wanted is None):
        return True
    if path.endswith("elicitation.default"):
        return bool(wanted == got)
    if key in _PROSE:
        return (wanted or "").strip() == (got or "")
    # The format's own tests treat absent and empty fields as equal.
    return wanted == got or (not wanted and not got)
