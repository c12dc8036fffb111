"""The reference of the built-in tools lists exactly the arguments and other names that the tools accept."""

from __future__ import annotations

import re
from pathlib import Path

from cuebook.kernel.tool_names import BUILT_IN
from cuebook.performers.agent_tools import Jobs, SearchProvider, agent_tools
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.tools.toolbox import SimpleTool
from tests.support.documentation import DOCS

_ROW = re.compile(r"\| (?:`(\w+)`)? ?\| `(\w+)` \|.*\| (.*?)\|")


async def _nothing() -> None:
    pass


def test_the_reference_lists_every_argument(tmp_path: Path) -> None:
    http = HttpPerformer()
    tools = agent_tools(
        tmp_path,
        commands=http,
        http=http,
        jobs=Jobs(http, tmp_path, _nothing),
        search=SearchProvider("searxng", url="http://127.0.0.1:1"),
    )
    assert sorted(tool.spec.name for tool in tools) == sorted(BUILT_IN)
    listed: dict[str, dict[str, set[str]]] = {}
    tool, names = "", {"path": set[str]()}
    for found in _ROW.finditer((DOCS / "reference" / "tools.md").read_text()):
        tool = found[1] or tool
        given = names[found[2]] if "as above" in found[3] else set(re.findall(r"`([^`]+)`", found[3]))
        names = {**names, found[2]: given} if tool == "Read" else names
        listed.setdefault(tool, {})[found[2]] = given
    for one in tools:
        assert isinstance(one, SimpleTool)
        accepted: dict[str, set[str]] = {name: set() for name in one.spec.parameters["properties"]}
        for other, name in one.aliases.items():
            accepted[name].add(other)
        assert listed[one.spec.name] == accepted, one.spec.name
