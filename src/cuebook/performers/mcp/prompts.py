"""The prompts of MCP servers as text: found by `server/name`, described for the gate, and read.

As with tools, a server is started only after the user has approved it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec

from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.tool_names import table_of
from cuebook.performers.mcp.client import McpTools, actions_of
from cuebook.performers.mcp.connection import Connection
from cuebook.performers.mcp.results import prompt_text

if TYPE_CHECKING:
    from mcp_types import GetPromptResult

_SHOWN = 20


class McpPrompts:
    """Reads prompts from the configured servers."""

    def __init__(self, servers: Mapping[str, McpTools]) -> None:
        self._servers = dict(servers)

    async def describe(self, given: str) -> Description | Failed:
        found = self._found(given)
        if isinstance(found, Failed):
            return found
        server, name = found
        trust = await server.trust()
        reading = Action("tool", f"{server.server.name}.prompt:{name}", reads_only=True)
        return Description(
            actions=(reading, *actions_of(server.server, reads_only=True)),
            summary=f"Read the prompt {name} of the tool server '{server.server.name}'",
            preview={"prompt": given},
            bound={"server": trust.digest},
            trusts=(trust,),
        )

    async def read(self, given: str, call: Call) -> str | Failed:
        """The text of the prompt's messages, within the time limit of the call."""
        found = self._found(given)
        if isinstance(found, Failed):
            return found
        server, name = found

        async def ask(connection: Connection, end: float) -> GetPromptResult | Failed:
            return await _asked(connection, given, name, end, call.given)

        answer = await server.asked(call.limits.seconds, ask)
        if isinstance(answer, Failed):
            return _without_doubt(answer)
        text, left_out = prompt_text(answer)
        if left_out:
            kinds = ", ".join(dict.fromkeys(left_out))
            call.warn(
                "prompt_cut", f"The prompt {given} contains parts that are not text, which were left out: {kinds}."
            )
        return text

    def _found(self, given: str) -> tuple[McpTools, str] | Failed:
        name, _, prompt = given.partition("/")
        if name in self._servers:
            return self._servers[name], prompt
        fix = _near(name, self._servers) or f"Add {table_of(name)} to your cuebook.toml."
        return Failed("not_found", f"There is no tool server {name[:200]!a} to read a prompt from.", fix=fix)


async def _asked(connection: Connection, given: str, name: str, end: float, allowed: float) -> GetPromptResult | Failed:
    """Servers report a missing prompt in many ways; only their own list is reliable."""
    clock = asyncio.get_running_loop().time
    listed = await connection.prompts(end - clock(), allowed)
    if isinstance(listed, Failed):
        return listed
    server = given.partition("/")[0]
    if name not in listed:
        known = ", ".join(sorted(listed)[:_SHOWN])
        fix = _near(name, listed) or (f"It has: {known}." if known else "It has no prompts at all.")
        return Failed("not_found", f"The tool server '{server}' has no prompt {name[:200]!a}.", fix=fix)
    needed = [one.name for one in listed[name].arguments or () if one.required]
    if needed:
        return Failed(
            "needs_arguments",
            f"The prompt {given} needs arguments ({', '.join(needed)}), but none can be passed here.",
            fix="Use a prompt without required arguments.",
            details={"server": server, "arguments": needed},
        )
    answer = await connection.prompt(name, end - clock(), allowed)
    if isinstance(answer, Failed) and answer.code == "tool_error":
        return Failed("prompt_refused", answer.message, "See the server's message.", details=answer.details)
    return answer


def _without_doubt(failed: Failed) -> Failed:
    """Reading a prompt changes nothing, so a failed request may be repeated."""
    if failed.code not in ("timeout", "dropped"):
        return failed
    return msgspec.structs.replace(failed, fix="Check what the server is doing, then retry the run.", retryable=True)


def _near(given: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(given[:200], list(known), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""
