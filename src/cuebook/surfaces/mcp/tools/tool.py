"""A tool: its name, its arguments, who may call it and what it does. Every failure becomes an answer."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, Tool, ToolAnnotations

from cuebook.gate.roles import Role
from cuebook.kernel.errors import CuebookError
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.run_report import text_result
from cuebook.surfaces.mcp.tools.schemas import Arguments
from cuebook.surfaces.mcp.untrusted_text import brief, one_line

log = logging.getLogger("cuebook")


class Call(NamedTuple):
    """One call to a tool."""

    host: Host
    caller: Caller
    ctx: ServerRequestContext[Any, Any]
    params: CallToolRequestParams


Answer = CallToolResult | InputRequiredResult
Act = Callable[[Call, Any], Awaitable[Answer]]


class Hints(NamedTuple):
    """Information about a tool that a client may show its user. Hints describe the worst case."""

    reads: bool = False
    destroys: bool = False
    repeats: bool = False
    """Whether calling it twice has the same effect as calling it once."""
    outside: bool = False
    """Whether it reaches beyond this machine, as models and tools do."""


class Offered(NamedTuple):
    """A tool as the server offers it."""

    name: str
    title: str
    about: str
    takes: type[Arguments] | dict[str, Any]
    """A struct, or a JSON Schema for a playbook's inputs."""
    act: Act
    needs: Role = "viewer"
    hints: Hints = Hints(reads=True, repeats=True)
    decides: bool = False
    """Whether it is offered only to callers who may decide on approvals."""
    choices: Mapping[str, Callable[[], Iterable[str]]] = {}
    """Allowed values of an argument that are known only when the tool is listed."""

    def is_for(self, caller: Caller) -> bool:
        return caller.may_decide if self.decides else caller.may(self.needs)


LOOKS = Hints(reads=True, repeats=True)
RUNS = Hints(destroys=True, outside=True)
"""A playbook may do anything that its policy allows."""


def listed(tool: Offered) -> Tool:
    hints = tool.hints
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=_with_choices(schema_of(tool.takes), tool.choices),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=hints.reads,
            destructive_hint=hints.destroys,
            idempotent_hint=hints.repeats,
            open_world_hint=hints.outside,
        ),
    )


def schema_of(takes: type[Arguments] | dict[str, Any]) -> dict[str, Any]:
    if isinstance(takes, dict):
        return takes
    (_,), parts = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    schema = dict(parts.pop(takes.__name__))
    schema.pop("title", None)
    schema.pop("description", None)
    return {**schema, **({"$defs": parts} if parts else {})}


def _with_choices(schema: dict[str, Any], choices: Mapping[str, Callable[[], Iterable[str]]]) -> dict[str, Any]:
    properties = dict(schema.get("properties", {}))
    for name, values in choices.items():
        properties[name] = {**properties[name], "enum": list(values())}
    return {**schema, "properties": properties} if choices else schema


async def perform_call(tool: Offered, call: Call) -> Answer:
    """Call the tool. Mistakes by the caller or in a playbook also become answers."""
    arguments = call.params.arguments or {}
    try:
        shaped = arguments if isinstance(tool.takes, dict) else msgspec.convert(arguments, tool.takes)
        return await tool.act(call, shaped)
    except msgspec.ValidationError as error:
        return refusal("bad_arguments", f"{tool.name}: {error}.", "Nothing was done. tools/list shows its arguments.")
    except CuebookError as error:
        return refusal(error.code, error.message, error.fix)
    except Exception as error:
        id = secrets.token_hex(4)
        log.error("The tool %s failed (%s).", tool.name, id, exc_info=error)
        return refusal("internal", "Unexpected internal error.", f"The server's log has the details under {id}.")


def refusal(code: str, message: str, fix: str = "") -> CallToolResult:
    """An error answer, on one line, because it may quote untrusted text."""
    message, fix = for_assistants(brief(message)), for_assistants(fix)
    if "`cuebook " in fix or "--" in fix:
        fix = f"For a person at the command line: {fix}"
    error = {"code": code, "message": message, "fix": fix}
    return text_result(
        one_line(f"{message} {fix}", _LONGEST), {"error": error, "untrusted": ["error.message"]}, wrong=True
    )


_LONGEST = 6_000
_WAITS_FOR = "get_playbook_execution shows what an execution is waiting for"
_INSTEAD = (
    (r"`cuebook runs`", "list_playbook_executions"),
    (r"The library (lists|shows)", r"list_playbooks \1"),
    (r"`cuebook inbox` (?:lists|shows) (?:what waits|(?:all |the )*(?:open|pending) waits)", _WAITS_FOR),
    (r"`cuebook validate(?: [^`]+)?`", "playbook_validate"),
    (r"as `cuebook parse --json` prints it", "as playbook_convert returns it"),
    (r"use the embedded model with `--model local`", "use the embedded model: model_id local"),
    (r"start the run with --model (\S+)", r"start it with the model_id \1"),
    (r"Pass each input as --input NAME=VALUE", "Pass each input by name"),
    (r"`cuebook show \S+`", "get_playbook_execution"),
    (r"`cuebook answer \S+ VALUE`", "respond_to_elicitation"),
    (r"`cuebook resume \S+`", "resume_playbook_execution"),
    (r"`cuebook restart \S+ STEP`", "restart_playbook_execution"),
    (r"`cuebook retry \S+`", "restart_playbook_execution at its last step"),
    (r"`cuebook restart \S+ STEP --set NAME=VALUE`", "restart_playbook_execution"),
)
"""Patterns for the commands and pages that errors mention, each with the tool that does the same."""


def for_assistants(words: str) -> str:
    """Replace the commands and pages in a message with the tools that do the same."""
    for command, tool in _INSTEAD:
        words = re.sub(command, tool, words)
    return words
