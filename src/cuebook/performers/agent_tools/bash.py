"""Bash: runs a command line like every other command."""

from __future__ import annotations

import shutil
from typing import Any

import msgspec

from cuebook.kernel.effects import RunCommand, ToolSpec
from cuebook.kernel.outcomes import CommandResult, Failed, ToolResult
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.tool import Acts, parameters, text, within
from cuebook.performers.tools.toolbox import SimpleTool, Tool

_NOTES = 300
"""How many bytes of a result are reserved for notes about it."""
_PARTLY = 2_000
"""How many bytes of output are reported for a command that was killed."""


class Shell:
    def __init__(self, commands: Acts, most_seconds: float) -> None:
        self._commands = commands
        self._most = most_seconds
        self._shell = "bash" if shutil.which("bash") else "/bin/sh"

    def tool(self) -> Tool:
        said = f"Time limit in seconds, at most {self._most:g}. Set it for builds and tests."
        seconds = {"type": "number", "description": said, "exclusiveMinimum": 0}
        spec = ToolSpec(
            "Bash",
            "Runs a command line in the workspace and returns its output. Every call starts a new shell.",
            parameters(
                ("command",),
                command=text("The command line.", least=1),
                timeout=seconds,
                description=text("What it is for, in a few words."),
            ),
        )
        return SimpleTool(spec, self._run, self._describe)

    async def _describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        described = await self._commands.describe(self._effect(arguments), settings)
        if isinstance(described, Failed):
            return described
        return msgspec.structs.replace(described, seconds=arguments.get("timeout"))

    async def _run(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        effect = self._effect(arguments)
        outcome = await self._commands.perform(effect, within(call, seconds=effect.timeout))
        if isinstance(outcome, CommandResult):
            return _as_result(call.masked(outcome), call.limits.output)
        if isinstance(outcome, Failed):
            return self._ended(call.masked(outcome), min(effect.timeout or call.given, call.given))
        raise TypeError(f"a command returned a {type(outcome).__name__}")

    def _effect(self, arguments: dict[str, Any]) -> RunCommand:
        line = (self._shell, "-c", arguments["command"])
        return RunCommand(argv=line, timeout=arguments.get("timeout"), ends=True)

    def _ended(self, failed: Failed, given: float) -> Failed:
        """A result that is useful to a model: the output so far, and whether the command can have more time."""
        if failed.code == "timeout" and given < self._most:
            failed = msgspec.structs.replace(
                failed, fix=f"Give it more time with `timeout`, at most {self._most:g} seconds, or less to do."
            )
        elif failed.code == "timeout":
            words = f"It cannot run for more than {self._most:g} seconds here. Split the work into several calls."
            failed = msgspec.structs.replace(failed, fix=words)
        details = failed.details
        output = "".join(str(details.get(name, "")) for name in ("stdout", "tail", "stderr"))
        if not output:
            return failed
        data = output.encode()
        shown = data[-_PARTLY:].decode("utf-8", "ignore")
        last = f"the last {len(shown.encode()):,} bytes of " if len(data) > _PARTLY else ""
        return msgspec.structs.replace(failed, message=f"{failed.message} This is {last}its output:\n{shown}\n")


def _as_result(result: CommandResult, most: int) -> ToolResult:
    """The error, the output and stderr, together within a size limit."""
    parts = []
    if result.signal:
        parts.append(f"[killed by {result.signal}]")
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    stdout, stderr = str(result.stdout).rstrip("\n"), str(result.stderr).rstrip("\n")
    room = most - _NOTES
    # Most of the room is for stdout; stderr gets the rest.
    errors = min(len(stderr.encode()), max(room // 4, room - len(stdout.encode())))
    output, output_cut = _ends(stdout, str(result.tail).rstrip("\n"), room - errors, result.size)
    parts += [output] if output else []
    stderr, errors_cut = _last(stderr, errors, cut=result.stderr_truncated)
    parts += ["[stderr]", stderr] if stderr else []
    said = "\n".join(parts) or "[no output]"
    cut = output_cut or errors_cut
    size = result.size or len(stdout.encode())
    return ToolResult(said, result.exit_code != 0, kept=len(said) if cut else None, size=size if cut else 0)


def _ends(text: str, tail: str, most: int, size: int) -> tuple[str, bool]:
    """The beginning and end of the text within a byte limit, and whether anything between them is left out.

    If the text was already cut, `size` is the number of bytes that it had, and `tail` contains its last lines.
    """
    first = text.encode()
    whole = size or len(first)
    if not size and len(first) <= most:
        return text, False
    last = tail.encode() if size else first
    if not last:  # a single endless line
        kept = first[:most].decode("utf-8", "ignore")
        return f"{kept}\n[cut: the first {len(kept.encode()):,} of {whole:,} bytes are shown]", True
    half = most // 2
    head, end = first[:half], last[-half:]
    head = head.rpartition(b"\n")[0] or head
    if len(end) < len(last) or not size:
        end = end.partition(b"\n")[2] or end
    left = max(0, whole - len(head) - len(end))
    note = f"[{left:,} of {whole:,} bytes are left out here]"
    return f"{head.decode('utf-8', 'ignore')}\n{note}\n{end.decode('utf-8', 'ignore')}", True


def _last(text: str, most: int, *, cut: bool) -> tuple[str, bool]:
    """The last lines of the text within a byte limit, and whether lines before them are left out."""
    data = text.encode()
    if not cut and len(data) <= most:
        return text, False
    end = data[-most:] if most else b""
    if len(end) < len(data):
        end = end.partition(b"\n")[2] or end
    return f"[cut: only its last {len(end):,} bytes are shown]\n{end.decode('utf-8', 'ignore')}", True
