"""Finds malformed, incomplete and conflicting directives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuebook.dialects.findings import Finding
from cuebook.dialects.markdown.check.codes import found, shown
from cuebook.dialects.markdown.check.source import Material, Unit
from cuebook.dialects.markdown.model import Elicitation, Output, PromptUse, ToolUse
from cuebook.dialects.markdown.parse.declarations import OUTPUT_TYPES
from cuebook.dialects.markdown.parse.directives import SCHEMES, Directive, variable_of
from cuebook.dialects.markdown.run.placeholders import placeholders
from cuebook.dialects.markdown.run.tools import BUILT_IN_CONNECTION, OWN_CONNECTIONS, fill
from cuebook.formats.suggestions import meant
from cuebook.kernel.errors import BadInput
from cuebook.kernel.tool_names import BUILT_IN, HOW_NAMED, INTERNAL, SERVER_NAME

FORMS = {
    "output": '@output(name), @output(name: type) or @output(name, extract:"field")',
    "elicit": '@elicit(input, "question"), @elicit(confirm, "question") or @elicit(select, "question", "one", "two")',
    "prompt": "@prompt(library:name), @prompt(file:path), @prompt(mcp:server/name) or @prompt({{variable}})",
    "tool": '@tool(connection, tool, {"name": "value"})',
    "approve": '@approve("question", show:"name", by:"alice, role:admin", votes:2, changes:"1")',
}

_NEARLY = re.compile(r"@(output|elicit|prompt|tool|approve)s?\s*[(:]", re.ASCII | re.IGNORECASE)
_INLINE = re.compile(r"(?<=\s)@(output|elicit|prompt|tool|approve)\(", re.ASCII | re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_BY = re.compile(r',\s*by:"[^"]*"\s*$', re.ASCII)
_DEFAULT = re.compile(r"\bdefault\s*[:=]", re.ASCII)
_DEFAULTED = re.compile(r'default:"(?:[^"\\]|\\.)*"\s*$', re.ASCII)
_IN_QUOTES = "Put every string in double quotes; inside it, use single quotes."
_TYPED = re.compile(r"@output\(\w+\s*:\s*(\w+)", re.ASCII)
_LIBRARY = re.compile(r"[a-zA-Z0-9\-]+")
_DRIVE = re.compile(r"[a-zA-Z]:")


def directives(material: Material) -> Iterator[Finding]:
    for unit in material.all_units():
        for directive in unit.directives():
            yield from _one(directive, material)
        yield from _repeated(unit, material)
        yield from _together(unit, material)
    yield from _nearly(material)


def _one(directive: Directive, material: Material) -> Iterator[Finding]:
    index = directive.line - 1
    row = material.rows[index]
    at = (directive.line, material.column(index))
    match directive.flaw:
        case "malformed":
            yield found("malformed_directive", f"Malformed directive: {shown(row)}", *at, _form(directive.kind))
        case "prompt_scheme":
            message = f"Unknown prompt scheme '{shown(directive.said)}:': the prompt is left out."
            yield found("prompt_scheme", message, *at, f"Use {', '.join(f'{s}:' for s in SCHEMES)} or a bare name.")
        case "tool_arguments":
            message = f"@tool needs a connection and a tool, got only '{shown(directive.said)}', so it has no effect."
            yield found("tool_arguments", message, *at, _form("tool"))
    match directive.use:
        case Output():
            yield from _output(directive.use, row, at)
        case Elicitation():
            yield from _elicitation(directive.use, row, at)
        case PromptUse():
            yield from _prompt(directive.use, at)
        case ToolUse():
            yield from _tool(directive.use, at)


def _form(kind: str) -> str:
    return f"Write {FORMS[kind]}, alone on its line."


def _output(output: Output, row: str, at: tuple[int, int]) -> Iterator[Finding]:
    typed = _TYPED.search(row)
    if typed is not None and typed[1].lower() not in OUTPUT_TYPES:
        message = f"'{shown(typed[1])}' is not an output type, so '{output.name}' is a string."
        yield found("output_type", message, *at, "Use string, text, number, boolean, enum or json.")
    offered = len(_QUOTED.findall(row)) - bool(output.extract)
    if output.type == "enum" and not output.options:
        fix = f'List them: @output({output.name}: enum, "one", "two").'
        yield found("output_options", f"The enum output '{output.name}' has no options.", *at, fix)
    elif output.type != "enum" and offered:
        fix = f"Write @output({output.name}: enum, ...)."
        yield found(
            "output_options", f"Only an enum has options; the options of '{output.name}' are ignored.", *at, fix
        )


def _elicitation(asked: Elicitation, row: str, at: tuple[int, int]) -> Iterator[Finding]:
    if not asked.prompt.strip():
        single = " Single quotes do not count." if "'" in row else ""
        fix = f'Write @elicit({asked.type}, "Question?").{single}'
        yield found("elicit_prompt", "The question has no text.", *at, fix)
    if asked.type == "form":
        return
    if asked.type == "select" and not asked.options:
        fix = 'List them: @elicit(select, "Which?", "one", "two").'
        yield found("select_options", "The select question has no options.", *at, fix)
    elif any(not option.strip() for option in asked.options):
        yield found("elicit_empty", "One of the options is empty.", *at, _IN_QUOTES)
    if asked.prompt.strip() and (dropped := _outside_quotes(row)):
        message = f"Text outside double quotes is ignored: {shown(' '.join(dropped))}"
        yield found("elicit_dropped", message, *at, _IN_QUOTES)
    unread = asked.default is None and _DEFAULT.search(_QUOTED.sub('""', row))
    if unread:
        fix = 'Write it last, in double quotes and without a space: default:"value".'
        yield found("unread_default", "The default is ignored.", *at, fix)
    elif asked.type != "select" and asked.options:
        message = f"A question of type '{asked.type}' cannot have options: {shown(', '.join(asked.options))} will not be shown."
        yield found("elicit_options", message, *at, 'Use @elicit(select, "Which?", "one", "two").')


def _outside_quotes(row: str) -> list[str]:
    """The unquoted parts of an @elicit, apart from commas and the default."""
    inner = row.strip().removesuffix(")").partition(",")[2]
    pieces = _QUOTED.sub("\0", _DEFAULTED.sub("", _BY.sub("", inner))).replace(",", "\0").split("\0")
    return [piece.strip() for piece in pieces if piece.strip() and not _DEFAULT.match(piece.strip())]


def _prompt(prompt: PromptUse, at: tuple[int, int]) -> Iterator[Finding]:
    if variable_of(prompt.argument) is not None:
        return
    scheme, colon, name = prompt.argument.partition(":")
    if not colon:
        scheme, name = "", prompt.argument
    # The values of placeholders are unknown before a run.
    known = _without_placeholders(name, "x")
    if scheme in ("file", "") and (why := _leaves(known.strip())):
        message = f"@prompt({shown(prompt.argument)}) {why}, so the step fails."
        yield found(
            "prompt_path", message, *at, "Use a file in the playbook's folder or below, with '/' as the separator."
        )
    elif scheme == "file" and not known.strip():
        yield found(
            "prompt_name",
            "@prompt(file:) does not name a file.",
            *at,
            "Add a path, as in @prompt(file:prompts/tone.md).",
        )
    elif scheme == "library" and not _LIBRARY.fullmatch(known):
        message = f"'{shown(name)}' is not a valid prompt name."
        yield found("prompt_name", message, *at, "Use letters, digits and hyphens.")
    elif scheme == "mcp" and not all(part.strip() for part in (known.partition("/")[0], known.partition("/")[2])):
        message = f"'{shown(name)}' is not the name of a server's prompt."
        yield found("prompt_name", message, *at, "Write @prompt(mcp:server/prompt-name).")


def _leaves(path: str) -> str:
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        return "is not a path below the playbook's folder"
    if "\\" in path or "\0" in path:
        return "contains a character that is not allowed in a path"
    return "leaves the playbook's folder" if ".." in path.split("/") else ""


def _without_placeholders(text: str, instead: str) -> str:
    pieces: list[str] = []
    done = 0
    for placeholder in placeholders(text):
        pieces += (text[done : placeholder.start], instead)
        done = placeholder.end
    return "".join([*pieces, text[done:]])


def _tool(tool: ToolUse, at: tuple[int, int]) -> Iterator[Finding]:
    if not SERVER_NAME.fullmatch(tool.connection):
        message = f"A connection cannot be named '{shown(tool.connection)}', so the step fails."
        yield found("tool_connection", message, *at, HOW_NAMED)
    yield from _known_tool(tool, at)
    any_value = {placeholder.name: "1" for placeholder in placeholders(tool.arguments)}
    try:
        fill(tool.arguments, any_value, {})
    except BadInput as why:
        message = f"The arguments of '{shown(tool.tool)}' cannot be used: {why.message.rstrip('.')}. The step fails."
        yield found("tool_json", message, *at, why.fix)


def _known_tool(tool: ToolUse, at: tuple[int, int]) -> Iterator[Finding]:
    """Checks the names of tools that do not belong to a server. The functions of the configuration are not known here."""
    if tool.connection not in OWN_CONNECTIONS:
        return
    if tool.tool in INTERNAL:
        message = f"'{tool.tool}' serves Cuebook itself: a playbook cannot call it, so the step fails."
        yield found("internal_tool", message, *at, f"Use one of: {', '.join(BUILT_IN)}.")
    elif tool.connection == BUILT_IN_CONNECTION and tool.tool not in BUILT_IN:
        message = f"There is no built-in tool '{shown(tool.tool)}'."
        fix = f"{meant(tool.tool, BUILT_IN)} A function of your configuration is written @tool(python, NAME, ...)."
        yield found("unknown_tool", message, *at, fix)


def _repeated(unit: Unit, material: Material) -> Iterator[Finding]:
    last: dict[str, int] = {}
    for directive in unit.directives():
        if directive.use is None:
            continue
        if directive.kind in last:
            line = last[directive.kind]
            message = f"@{directive.kind} on line {directive.line} replaces this directive."
            yield found("repeated_directive", message, line, material.column(line - 1), "Keep one of them.")
        last[directive.kind] = directive.line


def _together(unit: Unit, material: Material) -> Iterator[Finding]:
    tool = unit.tool
    if tool is None:
        nothing = not (unit.content or unit.elicitation or unit.prompt or unit.branches or unit.approval)
        only_approves = unit.approval and not (unit.content or unit.elicitation or unit.prompt or unit.branches)
        if only_approves and unit.output is not None:
            message = f"Step {unit.label} only asks for an approval, so it has no output to store."
            at = (unit.output.line, material.column(unit.output.line - 1))
            yield found("approve_output", message, *at, "Ask a question with @elicit if the answer matters.")
        if nothing:
            message = f"Step {unit.label} is empty."
            yield found("empty_step", message, unit.line, 1, "Add instructions, or remove it.")
        return
    at = (tool.line, material.column(tool.line - 1))
    if unit.elicitation is not None:
        message = f"Step {unit.label} has a tool and a question; the question is not asked."
        yield found("tool_with_elicit", message, *at, "Ask in a separate step before this one.")
    if unit.prompt is not None:
        message = f"Step {unit.label} has a tool and a prompt; the prompt has no effect."
        yield found("tool_with_prompt", message, *at, "Use the prompt in the next step.")
    if unit.branches and not unit.branches_on_itself:
        message = f"Step {unit.label} calls a tool, so its branches are never reached."
        yield found("tool_on_branching", message, *at, "Call the tool in an earlier step.")
    elif unit.content and not unit.branches:
        message = f"Step {unit.label} calls a tool, so its text is ignored."
        yield found("tool_text", message, *at, "Move the instructions for a model to the next step.")


def _nearly(material: Material) -> Iterator[Finding]:
    """Finds lines that resemble a directive."""
    for draft in material.drafts:
        marks = set(draft.section.marks)
        for index in range(draft.section.start, draft.section.end):
            row = material.rows[index]
            if "@" not in row or index in marks:
                continue
            near = _NEARLY.match(row.strip())
            if near is not None:
                message = f"Malformed directive: {shown(row)}"
                column = material.column(index)
                yield found("malformed_directive", message, index + 1, column, _form(near[1].lower()))
            elif (inline := _INLINE.search(row)) is not None and row.endswith(")"):
                message = f"@{inline[1]} is not alone on its line, so it is plain text."
                fix = "Put it on a separate line."
                yield found("inline_directive", message, index + 1, inline.start() + 1, fix)
