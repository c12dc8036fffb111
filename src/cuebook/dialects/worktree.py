"""Runs a program in a git worktree of its own: created before it, compared with its base and merged back after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallTool, Program
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import CHANGES_STEP, MERGE_STEP
from cuebook.kernel.tool_names import (
    WORKTREE_COMMIT,
    WORKTREE_DIFF,
    WORKTREE_DISCARD,
    WORKTREE_MERGE,
    WORKTREE_OPEN,
)


def in_worktree(start: Callable[[Any], Program[Any]]) -> Callable[[Any], Program[Any]]:
    """The start function of a program that works in the worktree of its run."""
    return lambda state: _in_worktree(start(state), begun=state is not None)


def _in_worktree(program: Program[Any], *, begun: bool) -> Program[Any]:
    if not begun:
        yield CallTool(WORKTREE_OPEN, internal=True, idempotent=True)
    result = yield from program  # a failed or cancelled run keeps its worktree, so that a retry continues in it
    yield StepStarted(CHANGES_STEP, "Changes in the worktree")
    change = (yield CallTool(WORKTREE_COMMIT, internal=True, idempotent=True)).value
    if change["commit"] == change["base"]:
        yield CallTool(WORKTREE_DISCARD, internal=True, idempotent=True)
        yield StepFinished(CHANGES_STEP, output=Text("Nothing was changed."))
        return result
    diff = yield CallTool(WORKTREE_DIFF, {"commit": change["commit"]}, internal=True, reads_only=True, witnessed=True)
    yield StepFinished(CHANGES_STEP, output=Text(diff.value))
    yield StepStarted(MERGE_STEP, "Merge the worktree")
    try:
        merged = yield CallTool(WORKTREE_MERGE, {"commit": change["commit"]}, internal=True, idempotent=True)
    except EffectFailed as error:
        if error.failed.code not in ("denied", "expired"):
            raise
        raise EffectFailed(_kept(error, change), error.seq) from None
    yield StepFinished(MERGE_STEP, output=Text(merged.value))
    return result


def _kept(error: EffectFailed, change: dict[str, Any]) -> Any:
    branch, into = change["branch"], change["into"]
    return msgspec.structs.replace(
        error.failed,
        message=f"The changes were not merged: {error.failed.message.rstrip('.')}. They are on the branch {branch}.",
        fix=f"`git diff {into}...{branch}` shows them, and `git merge {branch}` merges them. A retry asks again.",
    )
