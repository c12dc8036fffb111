"""Tool names: the built-in tools, server tools (named `SERVER.TOOL`, where both parts may contain dots), and the form in
which a model sees a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PLAN = "TodoWrite"
"""The tool with which a model keeps its plan."""
BUILT_IN = (
    *("Read", "Write", "Edit", "Glob", "Grep", "Bash", "BashOutput", "KillBash"),
    *("WebFetch", "WebSearch", PLAN),
)
FIRST_BUILT_IN = ("Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch", "WebSearch")
"""The built-in tools of the first release of each dialect, for runs that started with it."""
READING = frozenset({"Read", "Glob", "Grep", "BashOutput", "WebFetch", "WebSearch", PLAN})
"""The built-in tools that change nothing."""

WORKTREE_OPEN, WORKTREE_COMMIT, WORKTREE_DIFF = "worktree_open", "worktree_commit", "worktree_diff"
WORKTREE_MERGE, WORKTREE_DISCARD = "worktree_merge", "worktree_discard"
WORKTREE_BRANCH, WORKTREE_JOIN = "worktree_branch", "worktree_join"
WORKTREE = (
    *(WORKTREE_OPEN, WORKTREE_COMMIT, WORKTREE_DIFF, WORKTREE_MERGE, WORKTREE_DISCARD),
    *(WORKTREE_BRANCH, WORKTREE_JOIN),
)
"""The tools with which a run manages its own worktree and those of its parallel branches. Models never see them."""

AGENT_REQUESTS = ("agent_permission", "agent_read", "agent_write", "agent_run")
"""The tools that serve the requests of coding agents."""
INTERNAL = frozenset({*AGENT_REQUESTS, *WORKTREE})
"""Tools that neither a playbook nor a model can call."""

AGENTS_OWN = frozenset({*BUILT_IN, "Task"} - {"WebFetch", "WebSearch"})
"""The tools of a step that are not offered to a coding agent, because it has its own."""

COMPANIONS = {"BashOutput": "Bash", "KillBash": "Bash"}
"""Built-in tools that are useful only together with another one."""

UNFIT = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_LONGEST = 64

SERVER_NAME = re.compile(r"(?!mcp\.)[A-Za-z0-9_](?:[A-Za-z0-9_. -]{0,62}[A-Za-z0-9_-])?", re.ASCII)
HOW_NAMED = (
    "Use up to 64 letters, digits, '-', '_', '.' and spaces, with a letter or digit first and no dot or space last."
)
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def server_of(tool: str, servers: Iterable[str]) -> str:
    """A tool's server: the server with the longest matching name; empty if there is none."""
    return max((name for name in servers if tool.startswith(f"{name}.")), key=len, default="")


def likely_server(tool: str) -> str:
    """The server that a tool probably belongs to, if no server is known."""
    return tool.rpartition(".")[0]


def table_of(server: str) -> str:
    """The header of a server's table in a configuration file."""
    return f"[mcp.{server}]" if _BARE.fullmatch(server) else f'[mcp."{server}"]'


def confused(names: Iterable[str]) -> tuple[str, str] | None:
    """Two servers whose tools could not be distinguished, such as `a` with a tool `b.c` and `a.b` with a tool `c`."""
    known = sorted(names)
    return next(((one, other) for one in known for other in known if other.startswith(f"{one}.")), None)


def visible(name: str) -> str:
    """The name as a model sees it: providers accept letters, digits, `_` and `-`."""
    return UNFIT.sub("_", name)[:_LONGEST]
