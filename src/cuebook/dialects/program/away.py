"""Agents that live elsewhere, while a program runs: what they can do, and calling it. All of it is effects.

An agent is a tool server, whose tools are called as playbooks, or another Cuebook server, whose playbooks run there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import tool_of
from cuebook.dialects.program.executions import EXECUTE, KEY, execute, playbooks_of
from cuebook.dialects.program.model import Agent, Playbook, Remote
from cuebook.dialects.program.remotes import CARRIED
from cuebook.kernel.effects import CallTool, Program, ReadSource, ServerSpec
from cuebook.kernel.outcomes import EffectFailed, Failed, Source, ToolResult


class Away(msgspec.Struct, frozen=True):
    """An agent that lives elsewhere, and how it is spoken to."""

    name: str
    remote: Remote

    @property
    def server(self) -> ServerSpec:
        auth = self.remote.auth
        return ServerSpec(
            self.name, self.remote.command, self.remote.url, secret_headers=() if auth is None else (auth,)
        )

    def tool(self, tool: str, arguments: dict[str, Any], **how: Any) -> Program[Any]:
        """What a tool gives; `EffectFailed` for one that fails."""
        called = CallTool(f"{self.name}.{tool}", arguments, server=self.server, timeout=self.remote.timeout, **how)
        came: ToolResult = yield called
        if came.is_error:
            words = came.value if isinstance(came.value, str) else msgspec.json.encode(came.value).decode()
            raise EffectFailed(Failed("tool_error", words))
        return came.value


def look(agent: Agent, remote: Remote) -> Program[list[Playbook]]:
    """What an agent can do. `EffectFailed` if it cannot be asked."""
    if remote.transport not in CARRIED:
        raise EffectFailed(Failed("transport", f"The transport '{remote.transport}' is not carried here."))
    away = Away(agent.name, remote)
    found: Source = yield ReadSource(f"tools:{agent.name}.*", away.server)
    tools = msgspec.json.decode(str(found.content))
    if remote.type == "mcp":
        return [tool_of(tool, agent.name) for tool in tools]
    schemas = {str(tool["name"]).removeprefix(f"{agent.name}."): tool.get("parameters") or {} for tool in tools}
    if EXECUTE not in schemas:
        raise EffectFailed(Failed("no_cuebook", f"It has no tool {EXECUTE}: it is no Cuebook server."))
    keyed = KEY in (schemas[EXECUTE].get("properties") or {})
    return playbooks_of((yield from away.tool("list_playbooks", {}, reads_only=True)), keyed=keyed)


def call(agent: Agent, remote: Remote, playbook: Playbook, given: dict[str, Any]) -> Program[Any]:
    """What a playbook of an agent comes to. `EffectFailed` if it fails."""
    away = Away(agent.name, remote)
    if remote.type == "mcp":
        return (yield from away.tool(playbook.name, given))
    return (yield from execute(away, playbook, given))
