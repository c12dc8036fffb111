"""What a run does with its own worktree, as tools that pass the gate. Programs call them; models never see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import WORKTREE, Settings
from cuebook.kernel.tool_names import (
    WORKTREE_COMMIT,
    WORKTREE_DIFF,
    WORKTREE_DISCARD,
    WORKTREE_MERGE,
    WORKTREE_OPEN,
)
from cuebook.performers.tools.toolbox import SimpleTool, Tool
from cuebook.performers.worktrees.worktrees import Change, Worktrees, branch_of

_NOTE = 200
"""Room for the note about a diff that was cut."""
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_COMMIT: dict[str, Any] = {
    "type": "object",
    "properties": {"commit": {"type": "string", "pattern": "^[0-9a-f]{40,64}$"}},
    "required": ["commit"],
    "additionalProperties": False,
}


class WorktreeTools:
    """The tools for the worktrees of one workspace. The worktree is always that of the run that calls them."""

    def __init__(self, worktrees: Worktrees) -> None:
        self._worktrees = worktrees

    def tools(self) -> list[Tool]:
        return [
            self._tool(WORKTREE_OPEN, _NO_ARGUMENTS, self._open, _harmless("Create a git worktree for the run")),
            self._tool(WORKTREE_COMMIT, _NO_ARGUMENTS, self._commit, _harmless("Commit the changes in the worktree")),
            self._tool(WORKTREE_DIFF, _COMMIT, self._diff, _harmless("Compare the worktree with its base")),
            self._tool(WORKTREE_MERGE, _COMMIT, self._merge, self._describe_merge),
            self._tool(WORKTREE_DISCARD, _NO_ARGUMENTS, self._discard, _harmless("Remove the unchanged worktree")),
        ]

    def _tool(self, name: str, parameters: dict[str, Any], run: Any, describe: Any) -> Tool:
        spec = ToolSpec(name, "A step of a run with its own worktree.", parameters)
        return SimpleTool(spec, run, describe, reads_only=name == WORKTREE_DIFF, idempotent=True, hidden=True)

    async def _open(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name = _name(call.settings)
        if isinstance(name, Failed):
            return name
        problem = await asyncio.to_thread(self._worktrees.problem)
        if problem is not None:
            return problem
        origin, dirty = await asyncio.to_thread(self._worktrees.open, name)
        if dirty:
            call.warn("uncommitted", "The workspace has uncommitted changes, which are not in the worktree.")
        folder = str(self._worktrees.folder(name))
        return ToolResult({"folder": folder, "branch": branch_of(name), "base": origin.base, "into": origin.into})

    async def _commit(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name = _name(call.settings)
        change = name if isinstance(name, Failed) else await asyncio.to_thread(self._worktrees.change, name)
        if isinstance(change, Failed):
            return change
        kept = {"commit": change.commit, "base": change.base, "branch": change.branch, "into": change.into}
        return ToolResult({**kept, "files": len(change.files)})

    async def _diff(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        change = await self._change(arguments, call.settings)
        if isinstance(change, Failed):
            return change
        return ToolResult(await asyncio.to_thread(self._worktrees.diff, change, max(1, call.limits.output - _NOTE)))

    async def _describe_merge(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        change = await self._change(arguments, settings)
        if isinstance(change, Failed):
            return change
        preview = {
            "into": f"{change.into} in {self._worktrees.workspace}",
            "branch": change.branch,
            "commit": change.commit,
            "changes": await asyncio.to_thread(self._worktrees.diff, change),
        }
        count = len(change.files)
        words = f"Merge the changes in {count} file{'' if count == 1 else 's'} into {change.into}"
        return Description(tuple(Action("file", f"write:{one}") for one in change.files), words, preview)

    async def _merge(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name = _name(call.settings)
        if isinstance(name, Failed):
            return name
        merged = await asyncio.to_thread(self._worktrees.merge, name, arguments["commit"])
        return merged if isinstance(merged, Failed) else ToolResult(merged)

    async def _discard(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name = _name(call.settings)
        if isinstance(name, Failed):
            return name
        removed = await asyncio.to_thread(self._worktrees.discard, name)
        return removed or ToolResult("Nothing was changed; the worktree was removed.")

    async def _change(self, arguments: dict[str, Any], settings: Settings) -> Change | Failed:
        name = _name(settings)
        if isinstance(name, Failed):
            return name
        return await asyncio.to_thread(self._worktrees.committed, name, arguments["commit"])


def _name(settings: Settings) -> str | Failed:
    name = settings.options.get(WORKTREE)
    return name if isinstance(name, str) else Failed("no_worktree", "This run has no worktree of its own.")


def _harmless(summary: str) -> Callable[[dict[str, Any], Settings], Any]:
    async def describe(arguments: dict[str, Any], settings: Settings) -> Description:
        return Description((), summary, harmless=True)

    return describe
