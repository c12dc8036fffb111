"""What a run does with its own worktree, as tools that pass the gate. Programs call them; models never see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import WORKTREE, Settings
from cuebook.kernel.tool_names import (
    WORKTREE_BRANCH,
    WORKTREE_COMMIT,
    WORKTREE_DIFF,
    WORKTREE_DISCARD,
    WORKTREE_JOIN,
    WORKTREE_MERGE,
    WORKTREE_OPEN,
)
from cuebook.performers.tools.toolbox import SimpleTool, Tool
from cuebook.performers.worktrees.worktrees import Change, Worktrees, branch_of, own_version_of

_NOTE = 200
"""Room for the note about a diff that was cut."""
_ID = {"type": "string", "pattern": "^[0-9a-f]{40,64}$"}
_BRANCH = {"branch": {"type": "string"}}
"""The name of a parallel branch's worktree; without it, the worktree of the run."""


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_NO_ARGUMENTS = _object(())
_COMMIT = _object(("commit",), commit=_ID)


class WorktreeTools:
    """The tools for the worktrees of one workspace. The worktree is always that of the run that calls them, or that of one of
    its parallel branches.
    """

    def __init__(self, worktrees: Worktrees) -> None:
        self._worktrees = worktrees

    def tools(self) -> list[Tool]:
        return [
            self._tool(WORKTREE_OPEN, _NO_ARGUMENTS, self._open, _harmless("Create a git worktree for the run")),
            self._tool(
                WORKTREE_COMMIT, _object((), **_BRANCH), self._commit, _harmless("Commit the changes in the worktree")
            ),
            self._tool(
                WORKTREE_DIFF,
                _object(("commit",), commit=_ID, **_BRANCH),
                self._diff,
                _harmless("Compare the worktree with its base"),
            ),
            self._tool(WORKTREE_MERGE, _COMMIT, self._merge, self._describe_merge),
            self._tool(WORKTREE_DISCARD, _NO_ARGUMENTS, self._discard, _harmless("Remove the unchanged worktree")),
            self._tool(
                WORKTREE_BRANCH,
                _object(("branch",), **_BRANCH),
                self._branch,
                _harmless("Create a git worktree for a parallel branch"),
            ),
            self._tool(
                WORKTREE_JOIN,
                _object(("branch",), resolved=_ID, **_BRANCH),
                self._join,
                _harmless("Merge the worktree of a parallel branch into that of the run"),
            ),
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

    async def _branch(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name, parent = _name(call.settings, arguments), _name(call.settings)
        if isinstance(name, Failed) or isinstance(parent, Failed):
            return name if isinstance(name, Failed) else parent  # type: ignore[return-value]
        origin = await asyncio.to_thread(self._worktrees.branch, name, parent)
        if isinstance(origin, Failed):
            return origin
        return ToolResult({"folder": str(self._worktrees.folder(name)), "branch": branch_of(name), "base": origin.base})

    async def _join(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name, parent = _name(call.settings, arguments), _name(call.settings)
        if isinstance(name, Failed) or isinstance(parent, Failed):
            return name if isinstance(name, Failed) else parent  # type: ignore[return-value]
        joined = await asyncio.to_thread(self._worktrees.join, name, parent, arguments.get("resolved", ""))
        if isinstance(joined, Failed):
            return joined
        known = {"folder": str(self._worktrees.folder(name)), "own": own_version_of(name)}
        return ToolResult({**msgspec.to_builtins(joined), **known})

    async def _commit(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        name = _name(call.settings, arguments)
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
        name = _name(settings, arguments)
        if isinstance(name, Failed):
            return name
        return await asyncio.to_thread(self._worktrees.committed, name, arguments["commit"])


def _name(settings: Settings, arguments: Mapping[str, Any] = MappingProxyType({})) -> str | Failed:
    """The worktree of the run, or that of one of its branches if the arguments name it."""
    own = settings.options.get(WORKTREE)
    if not isinstance(own, str):
        return Failed("no_worktree", "This run has no worktree of its own.")
    name = str(arguments.get("branch") or own)
    if name != own and not name.startswith(f"{own.partition('-')[0]}-"):
        return Failed("bad_arguments", f"'{name[:60]}' is not a worktree of this run.")
    return name


def _harmless(summary: str) -> Callable[[dict[str, Any], Settings], Any]:
    async def describe(arguments: dict[str, Any], settings: Settings) -> Description:
        return Description((), summary, harmless=True)

    return describe
