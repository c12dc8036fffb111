"""Lists and calls the playbooks of remote agents while a program runs, through effects.

An agent is a tool server, whose tools are called as playbooks, or another Cuebook server, which runs its own playbooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import tool_of
from cuebook.dialects.program.machine.remote_executions import EXECUTE, KEY, execute, playbooks_of
from cuebook.dialects.program.model import Agent, Playbook, Remote
from cuebook.dialects.program.parse.remotes import CARRIED
from cuebook.dialects.program.parse.signatures import name_of
from cuebook.kernel.effects import CallTool, Program, ReadSource, RunPlaybook, ServerSpec
from cuebook.kernel.outcomes import EffectFailed, Failed, PlaybookResult, Source, ToolResult


class RemoteAgent(msgspec.Struct, frozen=True):
    """A remote agent and its connection."""

    name: str
    remote: Remote

    @property
    def server(self) -> ServerSpec:
        auth = self.remote.auth
        return ServerSpec(
            self.name, self.remote.command, self.remote.url, secret_headers=() if auth is None else (auth,)
        )

    def tool(self, tool: str, arguments: dict[str, Any], **how: Any) -> Program[Any]:
        """Call a tool and return its result. Raise `EffectFailed` if it fails."""
        called = CallTool(f"{self.name}.{tool}", arguments, server=self.server, timeout=self.remote.timeout, **how)
        result: ToolResult = yield called
        if result.is_error:
            words = result.value if isinstance(result.value, str) else msgspec.json.encode(result.value).decode()
            raise EffectFailed(Failed("tool_error", words))
        return result.value


def list_playbooks(agent: Agent, remote: Remote) -> Program[list[Playbook]]:
    """List the playbooks of an agent. Raise `EffectFailed` if it cannot be reached."""
    if remote.transport not in CARRIED:
        raise EffectFailed(Failed("transport", f"The transport '{remote.transport}' is not supported."))
    remote_agent = RemoteAgent(agent.name, remote)
    found: Source = yield ReadSource(f"tools:{agent.name}.*", remote_agent.server)
    tools = msgspec.json.decode(str(found.content))
    if remote.type == "mcp":
        return [tool_of(tool, agent.name) for tool in tools]
    schemas = {str(tool["name"]).removeprefix(f"{agent.name}."): tool.get("parameters") or {} for tool in tools}
    if EXECUTE not in schemas:
        raise EffectFailed(Failed("no_cuebook", f"It is not a Cuebook server: it has no tool {EXECUTE}."))
    keyed = KEY in (schemas[EXECUTE].get("properties") or {})
    return playbooks_of((yield from remote_agent.tool("list_playbooks", {}, reads_only=True)), keyed=keyed)


def call_remote(agent: Agent, remote: Remote, playbook: Playbook, given: dict[str, Any]) -> Program[Any]:
    """Call a playbook of an agent and return its result. Raise `EffectFailed` if it fails."""
    if remote.type == "playbook":
        return (yield from _run_child(str(playbook.metadata[CHILD]), given))
    remote_agent = RemoteAgent(agent.name, remote)
    if remote.type == "mcp":
        return (yield from remote_agent.tool(playbook.name, given))
    return (yield from execute(remote_agent, playbook, given))


CHILD = "child"
"""Key in the metadata of a playbook that runs as a child: the name that its author wrote."""


def local_playbooks(remote: Remote, playbooks: Mapping[str, Any]) -> list[Playbook]:
    """The playbooks of an agent that run as children. `playbooks` describes those that the run may start."""
    found: dict[str, Playbook] = {}
    for name in remote.playbooks:
        about = playbooks.get(name, {})
        made = tool_of({"name": name_of(_stem(name)), "parameters": about.get("inputs")}, "")
        words = str(about.get("description") or about.get("title") or "")
        found.setdefault(
            made.name, msgspec.structs.replace(made, description=words, metadata={"public": True, CHILD: name})
        )
    return list(found.values())


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _run_child(name: str, given: dict[str, Any]) -> Program[Any]:
    done: PlaybookResult = yield RunPlaybook(name, given)
    if done.type != "json":
        return str(done.text)
    try:
        return msgspec.json.decode(str(done.text))
    except msgspec.DecodeError:
        return str(done.text)
