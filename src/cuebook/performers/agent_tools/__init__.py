"""The tools that models are trained on, from `Read` and `Bash` to `TodoWrite`, bound to a workspace.

They use commands and the network only through the corresponding performers, so that the sandbox, limits and previews
are the same for every caller.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuebook.performers.agent_tools.bash import Shell
from cuebook.performers.agent_tools.files import Files
from cuebook.performers.agent_tools.jobs import Jobs
from cuebook.performers.agent_tools.plan import plan_tool
from cuebook.performers.agent_tools.search import Finding
from cuebook.performers.agent_tools.tool import Acts
from cuebook.performers.agent_tools.web_fetch import WebFetch
from cuebook.performers.agent_tools.web_search import SearchProvider, WebSearch
from cuebook.performers.tools.toolbox import Tool, no_secrets

__all__ = ["Acts", "Jobs", "SearchProvider", "agent_tools"]


def agent_tools(
    workspace: Path,
    *,
    commands: Acts | None,
    http: Acts | None,
    jobs: Jobs | None = None,
    search: SearchProvider | None = None,
    reveal: Callable[[str], str] = no_secrets,
    most_seconds: float = 300.0,
) -> list[Tool]:
    """The available tools. Bash requires `commands`, background jobs also `jobs`, and the web tools require `http`.

    `reveal` returns the value of a secret by its handle; it is only called for the key of the search provider.
    `most_seconds` is the longest time limit that a command line may request.
    """
    tools: list[Any] = [*Files(workspace).tools(), *Finding(workspace).tools(), plan_tool()]
    if commands is not None:
        tools += Shell(commands, most_seconds, jobs).tools()
    if http is not None:
        tools.append(WebFetch(http).tool())
    if http is not None and search is not None:
        tools.append(WebSearch(http, search, reveal).tool())
    return tools
