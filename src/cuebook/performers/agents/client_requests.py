"""What an agent asks of its client, as tools that pass the gate: permissions, files and commands.

Programs call them on an agent's behalf. Models never see them.
"""

from __future__ import annotations

import asyncio
import shlex
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import RunCommand, ToolSpec
from cuebook.kernel.outcomes import CommandResult, Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.files import FILE_LIMIT, Files, relative
from cuebook.performers.agent_tools.tool import Acts, within
from cuebook.performers.files.paths import name_inside, read_named_inside
from cuebook.performers.tools.toolbox import SimpleTool, Tool

_PATH = {"type": "string", "minLength": 1}
_WRITES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}
_WRITING = frozenset({"edit", "delete", "move"})
_READING = frozenset({"read", "search"})


def permission_digest(asked: dict[str, Any]) -> str:
    """The digest of what an agent asked permission for. It does not depend on the ids of the session."""
    return sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()


class ClientRequests:
    """The requests that agents may make of us in one workspace."""

    def __init__(self, workspace: Path, commands: Acts) -> None:
        self._workspace = workspace
        self._commands = commands
        self._files = {tool.spec.name: tool for tool in Files(workspace).tools()}

    def tools(self) -> list[Tool]:
        return [
            self._tool(
                "agent_permission",
                {"agent": _PATH, "title": {"type": "string"}, "digest": _PATH, "writes": _WRITES},
                self._permit,
                self._describe_permission,
                required=("agent", "title", "digest"),
                reads_only=True,
                more=True,
            ),
            self._tool(
                "agent_read",
                {"path": _PATH, "line": {"type": "integer"}, "limit": {"type": "integer"}},
                self._read,
                self._describe_read,
                required=("path",),
                reads_only=True,
            ),
            self._tool(
                "agent_write",
                {"path": _PATH, "content": {"type": "string"}},
                self._write,
                self._describe_write,
            ),
            self._tool(
                "agent_run",
                {
                    "command": _PATH,
                    "args": {"type": "array", "items": {"type": "string"}},
                    "cwd": {"type": "string"},
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                self._run,
                self._describe_run,
                required=("command",),
                needs=(SANDBOX,),
            ),
        ]

    def _tool(
        self,
        name: str,
        properties: dict[str, Any],
        run: Any,
        describe: Any,
        *,
        required: tuple[str, ...] = (),
        reads_only: bool = False,
        more: bool = False,
        needs: tuple[str, ...] = (),
    ) -> Tool:
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(required or properties),
            "additionalProperties": more,
        }
        spec = ToolSpec(name, "A request of a coding agent.", parameters)
        idempotent = reads_only or name == "agent_write"
        return SimpleTool(spec, run, describe, reads_only=reads_only, idempotent=idempotent, needs=needs, hidden=True)

    # --- permissions ---

    async def _describe_permission(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        agent, title, kind = arguments["agent"], arguments["title"], str(arguments.get("kind", ""))
        actions = await asyncio.to_thread(self._actions, arguments)
        shown = {
            "agent": agent,
            "asks for": title,
            "kind": kind,
            "paths": "\n".join(self._short(path) for path in arguments.get("paths", ())),
            "input": _shown(arguments.get("input")),
            "change": self._headed(str(arguments.get("change", "")), arguments),
            **self._not_in_change(arguments),
        }
        summary = f"Let {agent} do this: {title or kind or 'something it does not describe'}"
        return Description(actions, summary, {name: text for name, text in shown.items() if text})

    def _short(self, path: str) -> str:
        """A path as it is shown: below the workspace, if it is there."""
        return relative(self._workspace, path)

    def _headed(self, change: str, arguments: dict[str, Any]) -> str:
        """The agent's account of a change, with short paths in its headings."""
        for path in arguments.get("paths", ()):
            change = change.replace(f"--- {path}\n+++ {path}\n", f"--- {self._short(path)}\n+++ {self._short(path)}\n")
        return change

    def _not_in_change(self, arguments: dict[str, Any]) -> dict[str, str]:
        """The contents to be written that the agent's own account of the change does not show in full."""
        told = str(arguments.get("change", ""))
        found: dict[str, str] = {}
        for number, one in enumerate(arguments.get("writes", ()), 1):
            lines = "\n".join(f"+{line}" for line in one["content"].splitlines())
            if not lines or lines not in told:
                name = f"whole file {number}" if len(arguments["writes"]) > 1 else "whole file"
                found[name] = f"{self._short(one['path'])}\n\n{one['content'] or '(empty)'}"
        return found

    def _actions(self, arguments: dict[str, Any]) -> tuple[Action, ...]:
        """What it would do, in policy terms, as far as the agent says it. Without that, it is a tool of the agent."""
        kind, given = str(arguments.get("kind", "")), arguments.get("input")
        given = given if isinstance(given, dict) else {}
        paths = [name_inside(self._workspace, relative(self._workspace, path)) for path in arguments.get("paths", ())]
        # Whatever the agent calls it: what it may write through Cuebook later is decided here.
        found = [Action("file", target) for target in self._writes(arguments).values()]
        command = given.get("command")
        if kind == "execute" and command:
            line = command if isinstance(command, str) else shlex.join(map(str, command))
            found.append(Action("command", shlex.join(("bash", "-c", line))))
        elif kind in _WRITING:
            found += [action for path in paths if (action := Action("file", f"write:{path}")) not in found]
        elif kind in _READING:
            found += [Action("file", f"read:{path}", True) for path in paths]
        elif kind == "fetch" and isinstance(given.get("url"), str):
            found.append(Action("egress", f"GET {given['url']}"))
        return tuple(found) or (Action("tool", f"{arguments['agent']}:{kind or 'other'}"),)

    def _writes(self, arguments: dict[str, Any]) -> dict[str, str]:
        """The file actions of the edits that the agent shows, by path."""
        return {
            one["path"]: f"write:{name_inside(self._workspace, relative(self._workspace, one['path']))}"
            for one in arguments.get("writes", ())
        }

    async def _permit(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        writes = await asyncio.to_thread(self._writes, arguments)
        for target in writes.values():  # a link may have changed since
            refused = call.permits(Action("file", target))
            if refused is not None:
                return refused
        return ToolResult({"allowed": "once", **({"writes": writes} if writes else {})})

    # --- files ---

    async def _describe_read(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        name = await asyncio.to_thread(name_inside, self._workspace, self._relative(arguments))
        return Description((Action("file", f"read:{name}", True),), f"Read {name}", {"path": name})

    async def _read(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        given = self._relative(arguments)
        data, name = await asyncio.to_thread(read_named_inside, self._workspace, given, FILE_LIMIT)
        refused = call.permits(Action("file", f"read:{name}", True))
        if refused is not None:
            return refused
        text = call.masked(data.decode("utf-8", "replace"))
        first, most = arguments.get("line"), arguments.get("limit")
        if first is not None or most is not None:
            start = max(0, (first or 1) - 1)
            lines = text.splitlines(keepends=True)[start:]
            text = "".join(lines if most is None else lines[: max(0, most)])
        return ToolResult(text)

    async def _describe_write(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return await self._files["Write"].describe(self._written(arguments), settings)

    async def _write(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return await self._files["Write"].call(self._written(arguments), call)

    def _written(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"path": self._relative(arguments), "content": arguments["content"]}

    def _relative(self, arguments: dict[str, Any]) -> str:
        return relative(self._workspace, arguments["path"])

    # --- commands ---

    async def _describe_run(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return await self._commands.describe(self._command(arguments), settings)

    async def _run(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        outcome = await self._commands.perform(self._command(arguments), within(call))
        if isinstance(outcome, Failed):
            return outcome
        assert isinstance(outcome, CommandResult)
        outcome = call.masked(outcome)
        half = (call.limits.output - 500) // 4  # JSON may double it
        output = str(outcome.stdout) + (f"\n[...]\n{outcome.tail}" if str(outcome.tail) else "") + str(outcome.stderr)
        cut = outcome.truncated or outcome.stderr_truncated or len(output) > 2 * half
        if len(output) > 2 * half:
            output = f"{output[:half]}\n[...]\n{output[-half:]}"
        return ToolResult({"exit_code": outcome.exit_code, "signal": outcome.signal, "output": output, "cut": cut})

    def _command(self, arguments: dict[str, Any]) -> RunCommand:
        args = tuple(arguments.get("args", ()))
        # Agents send a whole command line as the command, or a program with its arguments.
        argv = (arguments["command"], *args) if args else ("/bin/sh", "-c", arguments["command"])
        cwd = arguments.get("cwd") or ""
        cwd = relative(self._workspace, cwd) if cwd else ""
        return RunCommand(
            argv=argv, cwd="" if cwd == "." else cwd, env=arguments.get("env", {}), ends=True, from_outside=True
        )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
