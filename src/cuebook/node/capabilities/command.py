"""The capability `command`: runs commands that the allow-list permits, confined as the `cli` steps of a pipeline are.

The rules are those of the policy: a pattern permits a command as typed, with its folder and its variables.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.formats.addresses import parse_place
from cuebook.gate.policy.commands import EVERYTHING, command_of
from cuebook.gate.sandbox import Setting, choose
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Call, Limits
from cuebook.kernel.run import Settings
from cuebook.node.capabilities.capability import Action, Capability, Failure, NotAllowed, Result, Work
from cuebook.performers.commands.mentions import reads_code
from cuebook.performers.commands.performer import CommandPerformer

SCHEMA = {
    "type": "object",
    "properties": {
        "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "folder": {"type": "string"},
        "stdin": {"type": "string"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["argv"],
    "additionalProperties": False,
}


class Rules(msgspec.Struct, frozen=True):
    """What commands may be run, and how they are confined."""

    allow: tuple[str, ...]
    folder: Path
    sandbox: Setting = "auto"
    network: tuple[str, ...] = ()
    """The hosts that every command may reach."""
    pass_env: tuple[str, ...] = ()
    memory: int = Limits().memory
    processes: int = Limits().processes
    fixed: tuple[Path, ...] = ()
    """Files that no command may change."""


class Refusal(CuebookError):
    """An error of the performer, with its code."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message, fix=failed.fix)
        self.code = failed.code  # type: ignore[misc]


def capability(rules: Rules, warn: Callable[[str], None]) -> Capability:
    """`warn` receives what the owner of the machine should know."""
    commands = _Commands(rules, warn)
    action = Action(
        "run",
        f"Runs a command in {rules.folder}; allowed: {', '.join(rules.allow)}",
        commands.run,
        SCHEMA,
        check=commands.check,
        keeps_time=True,
    )
    return Capability("command", (action,))


class _Commands:
    def __init__(self, rules: Rules, warn: Callable[[str], None]) -> None:
        self._rules = rules
        self._warn = warn
        listed = {(place.url.host, place.url.port) for place in map(parse_place, rules.network)}

        def private(host: str, port: int) -> bool:
            return (host, port) in listed

        sandbox = choose(rules.sandbox, private)
        if sandbox.problem:
            warn(f"no command will run. {sandbox.problem} --sandbox none would run them without protection.")
        self._performer = CommandPerformer(
            sandbox,
            rules.folder,
            pass_env=rules.pass_env,
            fixed=rules.fixed,
            private=private,
        )

    async def check(self, arguments: dict[str, Any]) -> None:
        effect = self._effect(arguments)
        outlined = await self._performer.outline(effect, Settings())
        if isinstance(outlined, Failed):
            raise Refusal(outlined)
        typed = next(one.target for one in outlined.actions if one.domain == "command")
        if not command_of(typed).allowed_by(self._rules.allow):
            raise NotAllowed(
                f"This node does not allow the command `{_short(typed)}`.",
                fix=f"Its owner can allow it with --allow. Allowed: {_listed(self._rules.allow)}.",
            )
        if effect.stdin and EVERYTHING not in self._rules.allow and reads_code(effect.argv):
            raise NotAllowed(
                f"`{_short(typed)}` executes its input, which this node's rules for commands do not cover.",
                fix="Keep the code in a file on the node, and run that.",
            )

    async def run(self, arguments: dict[str, Any], work: Work) -> Result:
        effect = self._effect(arguments)
        warnings: list[str] = []
        call = Call(
            run=work.run,
            key=work.id,
            attempt=0,
            settings=Settings(),
            emit=lambda text: True,
            reset=lambda: None,
            warn=lambda code, message: warnings.append(message),
            limits=Limits(
                seconds=work.seconds,
                output=work.max_output,
                cpu_seconds=max(Limits().cpu_seconds, math.ceil(work.seconds) * (os.cpu_count() or 1)),
                memory=self._rules.memory,
                processes=self._rules.processes,
            ),
            output=lambda data: work.output("stdout", data),
            errors=lambda data: work.output("stderr", data),
        )
        outcome = await self._performer.perform(effect, call)
        for message in warnings:
            self._warn(message)
        if isinstance(outcome, Failed):
            text, stderr = (str(outcome.details.get(name, "")) for name in ("stdout", "stderr"))
            raise Failure(outcome.code, outcome.message, _fix(outcome), text=text, stderr=stderr)
        return Result(
            str(outcome.stdout),
            stderr=str(outcome.stderr),
            exit_code=outcome.exit_code,
            cut=outcome.truncated or outcome.stderr_truncated or outcome.replaced,
        )

    def _effect(self, arguments: dict[str, Any]) -> RunCommand:
        return RunCommand(
            argv=tuple(arguments["argv"]),
            cwd=arguments.get("folder", ""),
            stdin=arguments.get("stdin", ""),
            env=arguments.get("env", {}),
            network=self._rules.network,
        )


_LIMITS = {
    "timeout": "Give the step more time; the node's own limit is `seconds` in its settings.",
    "memory_limit": "Give it less to do, or raise `memory` in the node's settings.",
    "process_limit": "Give it less to do, or raise `processes` in the node's settings.",
}


def _fix(outcome: Failed) -> str:
    """The advice of the performer is about the configuration of a server; a node has settings of its own."""
    return _LIMITS.get(outcome.code, outcome.fix)


def _short(command: str) -> str:
    plain = re.sub(r"\s+", " ", command)
    return plain if len(plain) <= 200 else plain[:200] + "…"


def _listed(patterns: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in patterns)
