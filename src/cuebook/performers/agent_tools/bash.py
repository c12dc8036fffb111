"""Bash, BashOutput and KillBash: run a command line like every other command, in the foreground or in the background."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import RunCommand, ToolSpec
from cuebook.kernel.outcomes import CommandResult, Failed, ToolResult
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.jobs import JobRecord, Jobs
from cuebook.performers.agent_tools.search import expression
from cuebook.performers.agent_tools.tool import HABITS, Acts, flag, parameters, text, within
from cuebook.performers.tools.toolbox import SimpleTool, Tool

_NOTES = 300
"""How many bytes of a result are reserved for notes about it."""
_MILLISECONDS = 1_000
"""Time limits from here on are milliseconds if they exceed the maximum."""
_BACKGROUND = (
    "Whether to keep it running while you go on, as for a server. BashOutput shows its output, KillBash ends it. It also"
    " ends whenever the run waits for a person."
)
_IN_BACKGROUND, _ALSO_IN_BACKGROUND = "run_in_background", ("background", "is_background")
"""The argument that starts a background job, and its other names."""
_PARTLY = 2_000
"""How many bytes of output are reported for a command that was killed."""
_READ_ONLY = (
    "Set it for a command that only looks at things. It then cannot write anything except in $TMPDIR, and usually needs no"
    " approval."
)
_NETWORK = {
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "maxItems": 20,
    "description": "The hosts that it needs, as in github.com or localhost:8080. It reaches no others, and only over HTTPS or"
    " HTTP; without this, it has no network.",
}


class Shell:
    def __init__(self, commands: Acts, most_seconds: float, jobs: Jobs | None = None) -> None:
        self._commands = commands
        self._jobs = jobs
        self._most = most_seconds
        self._shell = "bash" if shutil.which("bash") else "/bin/sh"

    def tools(self) -> list[Tool]:
        """Bash, and the tools for background jobs if there can be any."""
        return [self._bash(), *(self._job_tools(self._jobs) if self._jobs is not None else ())]

    def _bash(self) -> Tool:
        said = f"Time limit in seconds, at most {self._most:g}. Set it for builds and tests."
        seconds = {"type": "number", "description": said, "exclusiveMinimum": 0}
        spec = ToolSpec(
            "Bash",
            "Runs a command line in the workspace and returns its output. Every call starts a new shell.",
            parameters(
                ("command",),
                command=text("The command line.", least=1),
                timeout=seconds,
                read_only=flag(_READ_ONLY),
                network=_NETWORK,
                description=text("What it is for, in a few words."),
                **({} if self._jobs is None else {_IN_BACKGROUND: flag(_BACKGROUND)}),
            ),
        )
        aliases = {"cmd": "command", **dict.fromkeys(_ALSO_IN_BACKGROUND, _IN_BACKGROUND)}
        unused = frozenset({"explanation", "require_user_approval"})
        return SimpleTool(spec, self._run, self._describe, needs=(SANDBOX,), aliases=aliases, unused=unused)

    def _job_tools(self, jobs: Jobs) -> list[Tool]:
        job = text("The id that Bash returned.", least=1)

        async def describe(arguments: dict[str, Any], settings: Settings) -> Description:
            return Description(
                (), f"Background job {arguments['bash_id']}", {"job": arguments["bash_id"]}, harmless=True
            )

        async def read(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
            wanted = expression(arguments["filter"], ignore_case=False) if "filter" in arguments else None
            wait = min(arguments.get("wait", 0), call.limits.seconds / 2)
            found = await jobs.read(call.run, arguments["bash_id"], wait)
            if isinstance(found, Failed):
                return found
            record, output, lost = found
            return _job_output(record, call.masked(output), lost, wanted, call.limits.output)

        async def kill(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
            record = await jobs.kill(call.run, arguments["bash_id"])
            return record if isinstance(record, Failed) else ToolResult(f"[{record.id}: {record.state()}]")

        names = dict.fromkeys(("shell_id", "task_id", "job_id", "id"), "bash_id")
        return [
            SimpleTool(
                ToolSpec(
                    "BashOutput",
                    "Returns the output of a background job since you last read it, and whether it is still running.",
                    parameters(
                        ("bash_id",),
                        bash_id=job,
                        filter=text("Show only the lines that match this regular expression (RE2).", least=1),
                        wait={
                            "type": "number",
                            "minimum": 0,
                            "description": "Wait up to this many seconds for more output or its end.",
                        },
                    ),
                ),
                read,
                describe,
                reads_only=True,
                idempotent=True,
                aliases=names,
                unused=HABITS,
            ),
            SimpleTool(
                ToolSpec("KillBash", "Ends a background job.", parameters(("bash_id",), bash_id=job)),
                kill,
                describe,
                idempotent=True,
                aliases=names,
                unused=HABITS,
            ),
        ]

    async def _describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        described = await self._commands.describe(self._effect(arguments), settings)
        if isinstance(described, Failed):
            return described
        described = msgspec.structs.replace(described, seconds=self._seconds(arguments))
        if not arguments.get(_IN_BACKGROUND):
            return described
        return msgspec.structs.replace(
            described,
            summary=f"{described.summary} in the background",
            preview={**described.preview, "background": "it runs on until it exits, or until the run waits or ends"},
            bound={**described.bound, "background": True},
        )

    async def _run(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        effect = self._effect(arguments)
        if arguments.get(_IN_BACKGROUND) and self._jobs is not None:
            started = await self._jobs.start(effect, call)
            return started if isinstance(started, Failed) else ToolResult(_begun(started))
        refused: list[str] = []

        def warn(code: str, message: str) -> None:
            refused.extend([message] if code == "host_refused" else [])
            call.warn(code, message)

        outcome = await self._commands.perform(effect, within(call, seconds=effect.timeout, warn=warn))
        if isinstance(outcome, CommandResult):
            return _as_result(call.masked(outcome), call.limits.output, refused)
        if isinstance(outcome, Failed):
            return self._ended(call.masked(outcome), min(effect.timeout or call.given, call.given))
        raise TypeError(f"a command returned a {type(outcome).__name__}")

    def _effect(self, arguments: dict[str, Any]) -> RunCommand:
        line = (self._shell, "-c", arguments["command"])
        return RunCommand(
            argv=line,
            timeout=self._seconds(arguments),
            network=tuple(arguments.get("network", ())),
            reads_only=bool(arguments.get("read_only")),
            ends=True,
        )

    def _seconds(self, arguments: dict[str, Any]) -> float | None:
        """The requested time limit. Some models count in milliseconds: no one asks for 1,000 seconds beyond the limit."""
        if "timeout" not in arguments:
            return None
        seconds = float(arguments["timeout"])
        if seconds > self._most and seconds >= _MILLISECONDS:
            seconds /= 1_000
        return min(seconds, self._most)

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


def without_jobs(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools for a caller whose background jobs would end before its next call: without any."""
    if not any(tool.name == "Bash" and _IN_BACKGROUND in tool.parameters.get("properties", {}) for tool in tools):
        return tuple(tools)
    return tuple(_without_background(tool) for tool in tools if tool.name not in ("BashOutput", "KillBash"))


def _without_background(tool: ToolSpec) -> ToolSpec:
    if tool.name != "Bash":
        return tool
    properties = {name: one for name, one in tool.parameters["properties"].items() if name != _IN_BACKGROUND}
    return msgspec.structs.replace(tool, parameters={**tool.parameters, "properties": properties})


def starts_job(arguments: Mapping[str, Any]) -> bool:
    """Whether a call of Bash asks for a background job, under any name of the argument."""
    return any(arguments.get(name) for name in (_IN_BACKGROUND, *_ALSO_IN_BACKGROUND))


def _begun(job: JobRecord) -> str:
    return f"Started background job {job.id}. Read its output with BashOutput; end it with KillBash."


def _job_output(job: JobRecord, output: str, lost: int, wanted: Any, most: int) -> ToolResult:
    """The state of a job and its new output, within a size limit."""
    if wanted is not None:
        lines = output.splitlines()
        output = "\n".join(line for line in lines if wanted.search(line.encode("utf-8", "replace")) is not None)
    shown, cut = _ends(output.rstrip("\n"), "", most - _NOTES, 0)
    parts = [f"[{job.id}: {job.state()}]"]
    parts += [f"[{lost:,} bytes of older output were not kept]"] if lost else []
    parts.append(shown or "[no new output]")
    said = "\n".join(parts)
    return ToolResult(said, kept=len(said) if cut else None, size=len(output.encode("utf-8", "replace")) if cut else 0)


def _as_result(result: CommandResult, most: int, notes: Sequence[str] = ()) -> ToolResult:
    """The notes, the error, the output and stderr, together within a size limit."""
    parts = [f"[{note}]" for note in notes]
    if result.signal:
        parts.append(f"[killed by {result.signal}]")
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    stdout, stderr = str(result.stdout).rstrip("\n"), str(result.stderr).rstrip("\n")
    room = most - _NOTES - sum(len(note.encode()) + 3 for note in parts)
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
