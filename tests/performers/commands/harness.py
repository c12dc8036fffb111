"""Performs commands for tests: a workspace, a performer in each sandbox, and checks of outcomes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.effects import RunCommand
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Call, Description, Limits
from cuebook.kernel.run import Settings
from cuebook.performers.commands import CommandPerformer

DEFAULT = Limits()


def call(limits: Limits = DEFAULT, secrets: dict[str, str] | None = None, warnings: list[str] | None = None) -> Call:
    return Call(
        run="run",
        key="run:1:2",
        attempt=1,
        settings=Settings(),
        emit=lambda text: True,
        reset=lambda: None,
        warn=lambda code, message: (warnings if warnings is not None else []).append(code),
        secrets=lambda: dict(secrets or {}),
        limits=limits,
    )


async def described(performer: CommandPerformer, effect: RunCommand) -> Description:
    """The full description, which must agree with the outline."""
    description = await performer.describe(effect, Settings())
    assert isinstance(description, Description), description
    outline = await performer.outline(effect, Settings())
    assert outline == msgspec.structs.replace(description, preview={}, bound={})
    return description


async def refused(performer: CommandPerformer, effect: RunCommand) -> Failed:
    """The outline, the description and the performer must refuse with the same error."""
    before = await performer.describe(effect, Settings())
    outline = await performer.outline(effect, Settings())
    after = await performer.perform(effect, call())
    assert isinstance(before, Failed)
    assert before == outline == after
    assert before.fix
    return before


async def result(performer: CommandPerformer, effect: RunCommand, made: Call | None = None) -> CommandResult:
    outcome = await performer.perform(effect, made or call())
    assert isinstance(outcome, CommandResult), f"{outcome} {outcome.details}"
    return outcome


async def failed(performer: CommandPerformer, effect: RunCommand, limits: Limits) -> Failed:
    outcome = await performer.perform(effect, call(limits))
    assert isinstance(outcome, Failed), outcome
    return outcome


def exists(path: str) -> bool:
    return os.path.lexists(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shell(script: str, *arguments: str, **more: Any) -> RunCommand:
    return RunCommand(("sh", "-c", script, "sh", *arguments), **more)


def python(code: str, **more: Any) -> RunCommand:
    return RunCommand((sys.executable, "-I", "-S", "-c", code), **more)
