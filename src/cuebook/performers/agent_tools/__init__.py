"""The tools that models know by heart: `Read Write Edit Glob Grep Bash WebFetch WebSearch`, bound to a workspace.

They reach commands and the network only through the performers of these, so that sandbox, limits and previews are the
same whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuebook.performers.agent_tools.delegation import Acts, no_secrets
from cuebook.performers.agent_tools.files import Files
from cuebook.performers.agent_tools.finding import Finding
from cuebook.performers.agent_tools.shell import Shell
from cuebook.performers.agent_tools.web import WebFetch
from cuebook.performers.agent_tools.web_search import SearchProvider, WebSearch
from cuebook.performers.tools import Tool

__all__ = ["Acts", "SearchProvider", "agent_tools"]


def agent_tools(
    workspace: Path,
    *,
    commands: Acts | None,
    http: Acts | None,
    search: SearchProvider | None = None,
    reveal: Callable[[str], str] = no_secrets,
    most_seconds: float = 300.0,
) -> list[Tool]:
    """Those that can work with what is given: without `commands` no Bash, without `http` nothing of the web.

    `reveal` gives the value of a secret by its handle; only the key of the search provider is asked for. `most_seconds` is
    what a command line may ask for at most.
    """
    tools: list[Any] = [*Files(workspace).tools(), *Finding(workspace).tools()]
    if commands is not None:
        tools.append(Shell(commands, most_seconds).tool())
    if http is not None:
        tools.append(WebFetch(http).tool())
    if http is not None and search is not None:
        tools.append(WebSearch(http, search, reveal).tool())
    return tools
