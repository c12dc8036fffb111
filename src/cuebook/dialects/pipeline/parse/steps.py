"""Parses one step of a pipeline: its fields, and which of them go together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cuebook.dialects.pipeline.model import (
    EXPECTED,
    Child,
    CommandHolds,
    Condition,
    Constant,
    DomContains,
    Each,
    ExitCode,
    FileHolds,
    Http,
    HttpStatus,
    JsonPath,
    Llm,
    Output,
    OutputContains,
    Postcondition,
    Secret,
    Step,
    Web,
    Words,
    references_of,
)
from cuebook.dialects.pipeline.parse import access, commands, contracts, files, flow, people, run_values, undo
from cuebook.dialects.pipeline.parse.conditions import condition
from cuebook.dialects.pipeline.parse.flow import FLOW
from cuebook.dialects.pipeline.parse.places import namespace_of
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value
from cuebook.kernel.effects import AGENTS
from cuebook.kernel.tool_names import BUILT_IN

OF_THE_FORMAT = (
    "id", "name", "command", "stdin", "condition", "approval", "output", "llm", "postcondition", "rollback_hint",
)  # fmt: skip
ADDED = (
    *FLOW,
    "with", "timeout_ms", "retry", "on_error", "env", "cwd", "effect", "network", "credentials", "reads", "files", "takes", "state",
    "input", "rollback", "node", "idempotent",
)  # fmt: skip
CHILD = "playbook"
OF_CHILDREN = ("with", "name", "condition", "approval", "output", "postcondition", "rollback_hint", "retry", "on_error")
"""The other fields of a step that starts a playbook."""
ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ALL = ("cli", "http", "web", "mcp", "node", "llm")
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "stdin": ("cli", "http", "llm"),
    "env": ("cli",),
    "cwd": ("cli",),
    "network": ("cli",),
    "credentials": ("cli",),
    "files": ("cli",),
    "takes": ("cli",),
    "reads": ("cli",),
    "effect": ("cli", "http", "mcp", "node"),
    "node": ("node",),
    "idempotent": ("node",),
    "with": ("cli", "http", "web", "mcp", "node"),
    "llm": ("llm",),
    "input": ("input",),
    **dict.fromkeys(("approval", "output", "postcondition", "rollback_hint", "timeout_ms", "retry"), ALL),
    "rollback": ("cli", "http", "mcp", "node", "llm"),
}
"""The namespaces that allow a field; unlisted fields are allowed in all of them."""
TOOLS = {
    **{name.lower(): name for name in BUILT_IN},
    **{"tool.exec": "Bash", "tool.fs.read": "Read", "tool.fs.write": "Write", "tool.http.fetch": "WebFetch"},
}
"""Maps the format's tool names to Cuebook's."""
_GROUPS = {"tool.fs.*": ("Read", "Write", "Edit", "Glob", "Grep")}
_WEB_OF_THE_FORMAT = ("navigate", "click", "fill", "snapshot")
_LLM_ADDED = ("max_tokens", "max_repairs")

MOST_REPAIRS = 5


def listed(scope: Scope, value: Value, at: str) -> tuple[Step, ...]:
    """Parses a list of steps. `scope` is that of the part around them."""
    found = []
    for number, one in enumerate(value.items if value.kind == "seq" else ()):
        id = one.fields["id"].text.strip() if one.kind == "map" and "id" in one.fields else ""
        found.append(step(scope.at(id), one, f"{at}.{id}" if id else f"{at}[{number}]"))
    return tuple(one for one in found if one is not None)


def step(scope: Scope, value: Value, at: str) -> Step | None:
    """Parses a step. If it has no valid action, reports the problem and returns None."""
    shape = scope.shape
    if value.kind == "map" and "playbook" in value.fields:
        return _child(scope, value, at)
    fields = shape.closed(value, at, (*OF_THE_FORMAT, *ADDED), ("id",))
    if value.kind != "map":
        return None
    loop = flow.each(scope, fields, at) if "for_each" in fields else None
    scope = flow.inside(scope, loop)
    kind = flow.structure(shape, value, at)
    if kind:
        return _structure(scope, value, kind, loop, at)
    if "input" in fields and "command" not in fields:
        return _question(scope, value, loop, at)
    if "command" not in fields:
        shape.needs(value, at, ("command",))
        return None
    text = trimmed(shape, fields["command"], f"{at}.command")
    more = fields.get("with")
    command = commands.written(scope, text, fields["command"].line, f"{at}.command", more) if text else None
    namespace = namespace_of(text)
    read = {**_common(scope, fields, namespace, at), "each": loop}
    read |= flow.reactions(scope, fields, at, listed)
    if namespace in commands.NAMESPACES:
        _belonging(shape, value, namespace, at)
    if command is None:
        return None
    if namespace == "llm":
        _rest(shape, command)
        action: Any = _llm(scope, value, read.get("output"), at)
    else:
        action = commands.action(scope, command)
    if action is None:
        return None
    made = Step(
        scope.here,
        action,
        command=text,
        beyond=_beyond(fields, action, read.get("postcondition")),
        line=value.line,
        **read,
    )
    _check_stdin(shape, made, fields, at)
    _check_evidence(shape, made, at)
    return flow.waiting(scope, made, fields, at) if "wait" in fields else made


def _question(scope: Scope, value: Value, loop: Each | None, at: str) -> Step | None:
    """A step that asks a person."""
    fields = value.fields
    read = _common(scope, fields, "input", at)
    _belonging(scope.shape, value, "input", at)
    read |= flow.reactions(scope, fields, at, listed)
    action = people.question(scope, fields["input"], f"{at}.input")
    if action is None:
        return None
    return Step(scope.here, action, each=loop, beyond=_beyond(fields), line=value.line, **read)


def _child(scope: Scope, value: Value, at: str) -> Step | None:
    """Parses a step that starts another playbook: `playbook` in place of `command`, and its inputs in `with`."""
    shape = scope.shape
    fields = shape.closed(value, at, ("id", "playbook", *OF_CHILDREN, *flow.OF_COMMANDS), ("id", "playbook"))
    loop = flow.each(scope, fields, at) if "for_each" in fields else None
    scope = flow.inside(scope, loop)
    flow.structure(shape, value, at)
    name = trimmed(shape, fields["playbook"], f"{at}.playbook")
    if not name or not scope.fixed(name, fields["playbook"].line, f"{at}.playbook"):
        return None
    inputs = {}
    for one, field, line in shape.named(fields["with"], f"{at}.with") if "with" in fields else ():
        scope.name(one, line, f"{at}.with")
        inputs[one] = scope.field(field, f"{at}.with.{one}", secrets=True)
    read = {**_common(scope, fields, CHILD, at), "each": loop, **flow.reactions(scope, fields, at, listed)}
    made = Step(scope.here, Child(name, inputs), beyond=(CHILD, *_beyond(fields)), line=value.line, **read)
    _check_evidence(shape, made, at)
    return made


def _structure(scope: Scope, value: Value, kind: str, loop: Each | None, at: str) -> Step | None:
    """Parses a step that contains others or waits."""
    action = flow.action(scope, value, kind, at, listed)
    read = _common(scope, value.fields, kind, at)
    if action is None:
        return None
    return Step(scope.here, action, each=loop, beyond=_beyond(value.fields), line=value.line, **read)


def _common(scope: Scope, fields: Mapping[str, Value], namespace: str, at: str) -> dict[str, Any]:
    """Parses the fields that all actions share."""
    shape = scope.shape
    read: dict[str, Any] = {}
    for name in ("name", "rollback_hint"):
        if name in fields:
            read[name] = trimmed(shape, fields[name], f"{at}.{name}")
            if name == "rollback_hint" and scope.names_only_arguments(read[name]):
                read["undo"] = scope.words(read[name], fields[name].line, f"{at}.{name}")
            else:
                scope.warn_unreplaced(read[name], fields[name].line, f"{at}.{name}")
    if "stdin" in fields:
        # A model's stdin is part of its prompt.
        taken = scope.words if namespace == "llm" else scope.words_or_secret
        read["stdin"] = taken(shape.text(fields["stdin"], f"{at}.stdin"), fields["stdin"].line, f"{at}.stdin")
    if "condition" in fields:
        read["condition"], read["condition_text"] = _condition(scope, fields["condition"], f"{at}.condition")
    if "approval" in fields:
        if fields["approval"].kind == "map":
            read["approval"], read["asked"] = True, people.approval(scope, fields["approval"], f"{at}.approval")
        else:
            read["approval"] = _approval(shape, fields["approval"], f"{at}.approval")
    if "output" in fields:
        scope.literal(fields["output"], f"{at}.output", but=contracts.REMARKS)
        read["output"] = contracts.output(shape, fields["output"], f"{at}.output")
    if "postcondition" in fields:
        checked = fields["postcondition"].fields.get("assertions", fields["postcondition"])  # other fields are metadata
        scope.literal(checked, f"{at}.postcondition", but=("command", "path", *EXPECTED))
        read["postcondition"] = contracts.postcondition(scope, fields["postcondition"], f"{at}.postcondition")
    if "rollback" in fields:
        read["rollback"] = undo.rollback(scope, fields["rollback"], f"{at}.rollback", _common)
    if "timeout_ms" in fields:
        read["timeout"] = _timeout(shape, fields["timeout_ms"], f"{at}.timeout_ms")
    if "retry" in fields:
        read["retry"] = contracts.retry(shape, fields["retry"], f"{at}.retry")
    if "on_error" in fields:
        read["on_error"] = shape.choice(fields["on_error"], f"{at}.on_error", ("stop", "continue", "skip_rest"))
    if "env" in fields:
        read["env"] = _env(scope, fields["env"], f"{at}.env")
    if "cwd" in fields:
        read["cwd"] = _folder(scope, fields["cwd"], f"{at}.cwd")
    if "effect" in fields:
        read["effect"] = shape.choice(fields["effect"], f"{at}.effect", ("write", "read"))
    if "network" in fields:
        read["network"] = access.hosts(scope, fields["network"], f"{at}.network")
    if "credentials" in fields:
        reached = read.get("network", ())
        read["credentials"] = access.credentials(scope, fields["credentials"], reached, f"{at}.credentials")
    if "reads" in fields:
        read["reads"] = access.paths(scope, fields["reads"], f"{at}.reads")
    if "files" in fields:
        read["files"] = files.produced(scope, fields["files"], f"{at}.files")
    if "takes" in fields:
        read["takes"] = files.taken(scope, fields["takes"], f"{at}.takes")
    if "node" in fields:
        read["node"] = scope.words(trimmed(shape, fields["node"], f"{at}.node"), fields["node"].line, f"{at}.node")
    if "idempotent" in fields:
        if fields["idempotent"].kind != "bool":
            shape.wrong(fields["idempotent"].line, f"{at}.idempotent must be true or false.", "Write true or false.")
        read["idempotent"] = fields["idempotent"].plain is True
    if "state" in fields:
        read["state"] = run_values.kept(scope, fields["state"], f"{at}.state")
    return read


def _belonging(shape: Shape, value: Value, namespace: str, at: str) -> None:
    for name, namespaces in _ONLY_FOR.items():
        if name in value.fields and namespace not in namespaces:
            fix = f"Remove it. Namespaces that allow it: {', '.join(namespaces)}."
            shape.wrong(value.lines[name], f"{at}: {namespace} steps have no '{name}'.", fix, "NOT_OF_THIS_STEP")


def _beyond(fields: Mapping[str, Value], action: Any = None, checks: Postcondition | None = None) -> tuple[str, ...]:
    found = [name for name in ADDED if name in fields]
    if "approval" in fields:
        found += [f"approval.{name}" for name in people.APPROVAL if name in fields["approval"].fields]
    if isinstance(action, Web) and action.command not in _WEB_OF_THE_FORMAT:
        found.append(f"web {action.command}")
    found += [f"llm.{name}" for name in _LLM_ADDED if "llm" in fields and name in fields["llm"].fields]
    if checks is not None:
        kinds = [str(one.__struct_config__.tag) for one in checks.assertions]
        found += [f"postcondition.{kind}" for kind in kinds if kind in contracts.OF_COMMANDS]
        found += [f"postcondition.{name}" for one in checks.assertions for name in references_of(one)]
    if "output" in fields:
        found += [f"output.{name}" for name in contracts.ADDED if name in fields["output"].fields]
    return tuple(found)


def _check_stdin(shape: Shape, made: Step, fields: Mapping[str, Value], at: str) -> None:
    if "stdin" not in fields or not isinstance(made.action, Http):
        return
    line = fields["stdin"].line
    if made.action.has_content:
        shape.wrong(line, f"{at} has two bodies: stdin and one in `with`.", "Remove one of them.", commands.CODE)
    elif made.action.method in commands.WITHOUT_BODY:
        commands.no_body(shape, line, f"{at}.stdin", made.action.method)


def _check_evidence(shape: Shape, made: Step, at: str) -> None:
    """Warns about assertions without evidence: only responses have a status and a page, and no step can see a page's
    elements except in the browser."""
    if made.postcondition is None:
        return
    if isinstance(made.action, Web):
        if made.action.command != "navigate" and any(
            isinstance(one, HttpStatus) for one in made.postcondition.assertions
        ):
            message = f"{at}: only navigate has an HTTP status, so the user is asked."
            shape.odd(made.postcondition.line, message, "Use dom_contains.", "NO_EVIDENCE")
        return
    if any(isinstance(one, DomContains) and one.selector for one in made.postcondition.assertions):
        message = (
            f"{at}: only web steps see the elements of a page, so the user is always asked if there is a selector."
        )
        fix = "Remove the selector to search the whole page."
        shape.odd(made.postcondition.line, message, fix, "NO_EVIDENCE")
    if isinstance(made.action, Http):
        return
    for assertion in made.postcondition.assertions:
        general = isinstance(assertion, JsonPath | FileHolds | CommandHolds)
        of_command = isinstance(assertion, ExitCode | OutputContains) and made.namespace in ("cli", "node")
        if not general and not of_command:
            message = (
                f"{at}: {made.namespace} steps provide no {assertion.__struct_config__.tag}, so the user is asked."
            )
            fix = "Use json_path, or check it in an http step."
            shape.odd(made.postcondition.line, message, fix, "NO_EVIDENCE")


# --- fields -------------------------------------------------------------------------------------------------


def trimmed(shape: Shape, value: Value, at: str) -> str:
    text = shape.text(value, at).strip()
    if value.kind == "str" and value.text and not text:
        shape.wrong(value.line, f"{at} must not be empty.", "Write some text, or remove it.")
    return text


def _condition(scope: Scope, value: Value, at: str) -> tuple[Condition | None, str]:
    if value.kind == "bool":
        return Constant(value.plain), value.text
    text = trimmed(scope.shape, value, at)
    return (condition(scope, text, value.line, at) if text else None), text


def _approval(shape: Shape, value: Value, at: str) -> bool:
    if value.text == "required" and value.kind == "str":
        return True
    fix = "Write `approval: required`, or a table with text, show, by, votes or changes."
    shape.wrong(value.line, f"{at} can only be 'required' or a table.", fix)
    return False


def _timeout(shape: Shape, value: Value, at: str) -> float | None:
    most = shape.whole(value, at, 1)
    return most / 1000 if most is not None else None


def _env(scope: Scope, value: Value, at: str) -> dict[str, Words | Secret]:
    found: dict[str, Words | Secret] = {}
    for name, one, line in scope.shape.named(value, at):
        if not _VARIABLE.fullmatch(name):
            fix = "Use letters, digits and _, and begin with a letter or _."
            scope.shape.wrong(line, f"{at}: '{name[:60]}' is not a valid variable name.", fix)
        plain = one.kind in ("int", "float", "bool")
        text = one.text if plain else scope.shape.text(one, f"{at}.{name}", empty=True)
        if "\0" in text:
            fix = "Remove it: variables cannot contain it."
            scope.shape.wrong(one.line, f"{at}.{name} contains a NUL character.", fix)
        found[name] = scope.words_or_secret(text, one.line, f"{at}.{name}")
    return found


def _folder(scope: Scope, value: Value, at: str) -> str:
    """A folder below the workspace. Links that lead out of it are detected when the step runs."""
    folder = trimmed(scope.shape, value, at)
    flaw = folder_flaw(folder)
    if scope.fixed(folder, value.line, at) and flaw:
        scope.shape.wrong(value.line, f"{at} {flaw}.", "Write a path below the workspace.", "BAD_FOLDER")
    return folder


def folder_flaw(folder: str) -> str:
    """Why a path cannot be a folder below the workspace, as a clause; empty if it can."""
    if folder.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", folder):
        return f"'{folder[:60]}' is not below the workspace"
    if ".." in re.split(r"[/\\]", folder):
        return f"'{folder[:60]}' contains '..'"
    return "contains a character that paths cannot contain" if "\0" in folder or "${" in folder else ""


# --- llm ----------------------------------------------------------------------------------------------------


def _rest(shape: Shape, command: commands.Written) -> None:
    """Ignores one word after `llm`, as in `llm generate`; more words are probably a prompt."""
    if len(command.tokens) > 1 or any(re.search(r"[\s$]", token) for token in command.tokens):
        fix = "Write `command: llm`; the prompt belongs in `llm: prompt`."
        shape.wrong(command.line, f"{command.at}: text after llm is ignored.", fix, commands.CODE)


def _llm(scope: Scope, value: Value, output: Output | None, at: str) -> Llm | None:
    shape = scope.shape
    if output is None or output.type != "json":
        line = output.line if output is not None else value.line
        fix = "Add `output: json`, preferably with a schema."
        shape.wrong(line, f"{at}: an llm step must have JSON output.", fix, "BAD_LLM")
    if "llm" not in value.fields:
        shape.wrong(value.line, f"{at}: 'llm' is missing.", "Add it, with model and prompt.", "BAD_LLM")
        return None
    inside, where = value.fields["llm"], f"{at}.llm"
    known = ("model", "prompt", "max_tool_calls", "tools", *_LLM_ADDED)
    fields = shape.closed(inside, where, known, ("model", "prompt"))
    if "prompt" not in fields or "model" not in fields:
        return None
    numbers: dict[str, Any] = {}
    for name, least in (("max_tool_calls", 0), ("max_tokens", 1), ("max_repairs", 0)):
        if name in fields:
            number = shape.whole(fields[name], f"{where}.{name}", least)
            numbers |= {name: number} if number is not None else {}
    if numbers.get("max_repairs", 0) > MOST_REPAIRS:
        shape.wrong(fields["max_repairs"].line, f"{where}.max_repairs is above {MOST_REPAIRS}.", "Lower it.")
    tools = _tools(scope, fields["tools"], f"{where}.tools") if "tools" in fields else ()
    if bool(tools) != bool(numbers.get("max_tool_calls", 0)):
        fix = "Set both tools and max_tool_calls, or neither."
        shape.odd(inside.line, f"{where}: no tool can be called.", fix, "NO_TOOL_CALLS")
    prompt = scope.words(trimmed(shape, fields["prompt"], f"{where}.prompt"), fields["prompt"].line, f"{where}.prompt")
    model = trimmed(shape, fields["model"], f"{where}.model")
    scope.fixed(model, fields["model"].line, f"{where}.model")
    if model.startswith(AGENTS):
        shape.wrong(
            fields["model"].line,
            f"{where}.model: {model} is a coding agent. It has tools of its own, so the step's list of tools and its limit"
            " of calls would not hold.",
            "Use a model here, or a graph or a Markdown playbook for the agent.",
            "BAD_LLM",
        )
    return Llm(model, prompt, tools, **numbers)


def _tools(scope: Scope, value: Value, at: str) -> tuple[str, ...]:
    shape = scope.shape
    fields = shape.closed(value, at, ("allow",))
    if "allow" not in fields:
        return ()
    found: dict[str, None] = {}
    for one, text in zip(fields["allow"].items, shape.texts(fields["allow"], f"{at}.allow"), strict=False):
        for tool in _GROUPS.get(text.strip(), (text.strip(),)):
            found[_tool(scope, tool, one.line, at)] = None
    return tuple(found)


def _tool(scope: Scope, written: str, line: int, at: str) -> str:
    """Cuebook's name for a tool."""
    shape, name = scope.shape, TOOLS.get(written.lower())
    if name is not None:
        return name
    if not scope.fixed(written, line, at):
        return written
    if "*" in written:
        fix = "List the tools one by one."
        shape.wrong(line, f"{at}: '{written[:60]}' would allow more than the listed tools.", fix, "UNKNOWN_TOOL")
    elif not all(commands.tool_name(written).rpartition(".")[::2]):
        fix = f"{shape.meant(written, tuple(dict.fromkeys(TOOLS.values())))} Write a server's tool as SERVER.TOOL."
        shape.wrong(line, f"{at}: there is no tool '{written[:60]}'.", fix, "UNKNOWN_TOOL")
    return commands.tool_name(written)


def step_id(shape: Shape, value: Value, at: str) -> str:
    """The id of a step, usable in references."""
    id = trimmed(shape, value, at)
    if id and not ID.fullmatch(id):
        fix = "Use up to 64 letters, digits, - and _."
        shape.wrong(value.line, f"{at} '{id[:60]}' is not a valid step id.", fix, "BAD_ID")
    return id
