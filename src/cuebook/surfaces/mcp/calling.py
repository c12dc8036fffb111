"""A tool: its name, what it takes, who may call it, and what it does. Everything that goes wrong is told in words."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, Tool, ToolAnnotations

from cuebook.gate.people import Role
from cuebook.kernel.errors import CuebookError
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.marking import brief, one_line
from cuebook.surfaces.mcp.shapes import Arguments
from cuebook.surfaces.mcp.telling import said

log = logging.getLogger("cuebook")


class Call(NamedTuple):
    """One call of a tool."""

    host: Host
    caller: Caller
    ctx: ServerRequestContext[Any, Any]
    params: CallToolRequestParams


Answer = CallToolResult | InputRequiredResult
Act = Callable[[Call, Any], Awaitable[Answer]]


class Hints(NamedTuple):
    """What a client may tell its user of a tool. They are as bad as it can get, and no better."""

    reads: bool = False
    destroys: bool = False
    repeats: bool = False
    """Whether calling it twice is the same as calling it once."""
    outside: bool = False
    """Whether it reaches out of this machine, as a model or a tool does."""


class Offered(NamedTuple):
    """A tool that is offered."""

    name: str
    title: str
    about: str
    takes: type[Arguments] | dict[str, Any]
    """A shape, or a JSON Schema where the shape is a playbook's."""
    act: Act
    needs: Role = "viewer"
    hints: Hints = Hints(reads=True, repeats=True)
    decides: bool = False
    """Whether it is for those alone who may decide approvals."""

    def is_for(self, caller: Caller) -> bool:
        return caller.may_decide if self.decides else caller.may(self.needs)


LOOKS = Hints(reads=True, repeats=True)
RUNS = Hints(destroys=True, outside=True)
"""A playbook may do anything that its policy lets it do."""


def listed(tool: Offered) -> Tool:
    hints = tool.hints
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=schema_of(tool.takes),
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


async def called(tool: Offered, call: Call) -> Answer:
    """What a tool answers. A mistake of the caller's, or of a playbook's, is an answer too."""
    arguments = call.params.arguments or {}
    try:
        shaped = arguments if isinstance(tool.takes, dict) else msgspec.convert(arguments, tool.takes)
        return await tool.act(call, shaped)
    except msgspec.ValidationError as error:
        return refusal("bad_arguments", f"{tool.name}: {error}.", "Nothing was done. tools/list says what it takes.")
    except CuebookError as error:
        return refusal(error.code, error.message, error.fix)
    except Exception as error:
        id = secrets.token_hex(4)
        log.error("The tool %s failed (%s).", tool.name, id, exc_info=error)
        return refusal("internal", "Something unexpected went wrong.", f"The server's log has it under {id}.")


def refusal(code: str, message: str, fix: str = "") -> CallToolResult:
    """What went wrong, on one line: it may repeat what others have written."""
    message, fix = for_assistants(brief(message)), for_assistants(fix)
    if "`cuebook " in fix or "--" in fix:
        fix = f"For a person at the command line: {fix}"
    error = {"code": code, "message": message, "fix": fix}
    return said(one_line(f"{message} {fix}", _LONGEST), {"error": error, "untrusted": ["error.message"]}, wrong=True)


_LONGEST = 6_000
_INSTEAD = (
    (r"`cuebook runs` lists", "list_playbook_executions lists"),
    (r"The library lists", "list_playbooks lists"),
    (r"`cuebook inbox` lists what waits", "get_playbook_execution tells what an execution waits for"),
    (r"`cuebook validate \S+` tells", "playbook_validate tells"),
    (r"`cuebook validate` names", "playbook_validate names"),
    (r"as `cuebook parse --json` prints it", "as playbook_convert gives it"),
    (r"use the embedded model with `--model local`", "take the embedded model: model_id local"),
    (r"start the run with --model (\S+)", r"start it with the model_id \1"),
    (r"Give each input as --input NAME=VALUE", "Give each input by its name"),
    (r"`cuebook show \S+` tells", "get_playbook_execution tells"),
    (r"`cuebook answer \S+ VALUE` answers", "respond_to_elicitation answers"),
    (r"`cuebook resume \S+` with a larger budget goes on", "resume_playbook_execution with a larger budget goes on"),
    (r"`cuebook resume \S+` goes on", "resume_playbook_execution goes on"),
    (r"`cuebook restart \S+ STEP` does", "restart_playbook_execution does"),
    (r"`cuebook retry \S+` (goes on|waits)", r"restart_playbook_execution at its last step \1"),
    (r"`cuebook fork \S+ STEP` changes", "restart_playbook_execution changes"),
)
"""The tool for each command or page that an error names to a person."""


def for_assistants(words: str) -> str:
    """What was said to a person at the command line or in the web app, with the tools that do the same."""
    for command, tool in _INSTEAD:
        words = re.sub(command, tool, words)
    return words
