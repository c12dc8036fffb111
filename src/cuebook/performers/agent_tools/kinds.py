"""What a call of each built-in tool, and each request of a coding agent, may do in policy terms, whatever its arguments are.
For previews.
"""

from __future__ import annotations

import msgspec

from cuebook.kernel.ports import Action
from cuebook.kernel.tool_names import WORKTREE_MERGE

ANY = "cuebook-any"
"""Represents every command, file or host in the actions below. No rule names it."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of action of a tool."""

    words: str
    action: Action


_READS = Kind("reading files in the workspace", Action("file", f"read:{ANY}", True))
_WRITES = Kind("changing files in the workspace", Action("file", f"write:{ANY}"))
_RUNS = Kind("command lines", Action("command", ANY))
_FETCHES = Kind("requests to other hosts", Action("egress", f"GET https://{ANY}/", True))
_CONNECTS = Kind("hosts that a command names", Action("egress", f"CONNECT https://{ANY}/"))

KINDS: dict[str, tuple[Kind, ...]] = {
    "Read": (_READS,),
    "Glob": (_READS,),
    "Grep": (_READS,),
    "Write": (_WRITES,),
    "Edit": (_WRITES,),
    "Bash": (_RUNS, _CONNECTS),
    "WebFetch": (_FETCHES,),
    "WebSearch": (_FETCHES,),
    WORKTREE_MERGE: (_WRITES,),
}
HARMLESS = frozenset({"BashOutput", "KillBash", "TodoWrite"})
"""Tools that concern only the run itself: they can be denied, but are never asked about."""


def requests_of(agent: str) -> tuple[tuple[Action, tuple[Kind, ...]], ...]:
    """What a coding agent may ask of Cuebook, as the tools that serve these requests."""
    else_ = Kind("anything else it asks permission for", Action("tool", f"{agent}:{ANY}"))
    return (
        (Action("tool", "agent_permission", True), (_RUNS, _WRITES, _READS, _FETCHES, else_)),
        (Action("tool", "agent_read", True), (_READS,)),
        (Action("tool", "agent_write"), (_WRITES,)),
        (Action("tool", "agent_run"), (_RUNS,)),
    )
