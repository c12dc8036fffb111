"""Bash: a command line, run as every other command is."""

from __future__ import annotations

import shutil
from typing import Any

from cuebook.kernel.effects import RunCommand, ToolSpec
from cuebook.kernel.outcomes import CommandResult, Failed, ToolResult
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.delegation import Acts, parameters, text, within
from cuebook.performers.tools import SimpleTool, Tool


class Shell:
    def __init__(self, commands: Acts) -> None:
        self._commands = commands
        self._shell = "bash" if shutil.which("bash") else "/bin/sh"

    def tool(self) -> Tool:
        seconds = {"type": "number", "description": "Seconds it may take.", "exclusiveMinimum": 0}
        spec = ToolSpec(
            "Bash",
            "Runs a command line in the workspace and gives its output. Every call is a new shell.",
            parameters(("command",), command=text("The command line.", least=1), timeout=seconds),
        )
        return SimpleTool(spec, self._run, self._describe)

    async def _describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return await self._commands.describe(self._effect(arguments), settings)

    async def _run(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        effect = self._effect(arguments)
        outcome = await self._commands.perform(effect, within(call, seconds=effect.timeout))
        if isinstance(outcome, CommandResult):
            return _told(call.masked(outcome))
        if isinstance(outcome, Failed):
            return outcome
        raise TypeError(f"a command gave a {type(outcome).__name__}")

    def _effect(self, arguments: dict[str, Any]) -> RunCommand:
        return RunCommand(argv=(self._shell, "-c", arguments["command"]), timeout=arguments.get("timeout"))


def _told(result: CommandResult) -> ToolResult:
    # What went wrong stands first: the end of a long output may be cut.
    parts = []
    if result.signal:
        parts.append(f"[ended by {result.signal}]")
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    for name, stream, cut in (
        ("stdout", str(result.stdout), result.truncated),
        ("stderr", str(result.stderr), result.stderr_truncated),
    ):
        if stream and name == "stderr":
            parts.append("[stderr]")
        if stream:
            parts.append(stream.rstrip("\n"))
        if cut:
            parts.append(f"[{name} was cut here]")
    return ToolResult("\n".join(parts) or "[no output]", is_error=result.exit_code != 0)
