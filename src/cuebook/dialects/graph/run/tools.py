"""The tools of a node: built-in agent tools, tools of its skills, and tools of the servers of its skills.

A node does not see tools that it may not use. The origin of a tool does not matter when names are compared:
`github.create_issue`, `mcp__github__create_issue` and `github_create_issue` are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Node
from cuebook.dialects.graph.run.children import playbook_spec, playbook_tool
from cuebook.dialects.graph.run.sources import PLAYBOOK, Material, Skill, call_of
from cuebook.kernel.conversation.calls import Agent
from cuebook.kernel.conversation.subagents import TASK
from cuebook.kernel.effects import CallTool, Program, ServerSpec, ToolSpec
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.tool_names import COMPANIONS, PLAN, UNFIT, visible


class Toolset(msgspec.Struct):
    """The tools of a node as a model sees them, the call for each, and the instructions of its skills."""

    specs: tuple[ToolSpec, ...] = ()
    calls: dict[str, CallTool] = {}
    instructions: list[tuple[str, str]] = []
    of_skills: int = 0
    """The number of tools that are not built in."""
    playbooks: dict[str, Agent] = {}
    """The tools that run other playbooks."""
    delegates: bool = False
    """Whether the model may give work to sub-agents."""
    warnings: list[Warned] = []
    absent: set[str] = set()
    """The normalised names of tools whose skills cannot be used."""
    unlisted: bool = False
    """Whether the tools of some unusable skill or server are unknown."""

    def add(self, node: Node, spec: ToolSpec, call: CallTool) -> None:
        name = visible(spec.name)
        known = self.calls.setdefault(name, call)
        if known is call:
            self.specs = (*self.specs, msgspec.structs.replace(spec, name=name))
        elif known != call:
            words = f"Node {node.id}: two of its tools are named {name}; the tool from {_home(call)} is left out."
            self.warnings.append(Warned("tool_name", words))


def toolset(material: Material, node: Node, playbooks: Mapping[str, Any] | None = None) -> Program[Toolset]:
    """The tools of a node: built-in tools first, then the tools of its skills, in the node's order. `playbooks` describes
    the playbooks that the run may start.
    """
    tools = Toolset()
    kept = [spec for spec in material.built_in if not _is_disallowed(node, spec.name)]
    if [spec.name for spec in kept] == [PLAN] and not node.skills:
        kept = []  # a node without tools has nothing to plan
    for spec in kept:
        tools.add(node, spec, call_of(spec))
    own = len(tools.specs)
    tools.delegates = own > 0 and TASK not in node.disallowed_tools
    if not node.skills:
        return tools
    found: list[tuple[ToolSpec, CallTool]] = []
    for name in node.skills:
        if not name.startswith(PLAYBOOK):
            found += yield from _of_skill(material, node, name, tools)
    for spec, call in _filtered(node, found, tools):
        tools.add(node, spec, call)
    for name in node.skills:
        if name.startswith(PLAYBOOK):
            spec = playbook_spec(name.removeprefix(PLAYBOOK), playbooks or {})
            tools.specs = (*tools.specs, spec)
            tools.playbooks[spec.name] = playbook_tool(name.removeprefix(PLAYBOOK), playbooks or {})
    tools.of_skills = len(tools.specs) - own
    skills = [material.skill(name) for name in node.skills if not name.startswith(PLAYBOOK)]
    if skills and all(one is not None and not one.configured for one in skills):
        words = f"Node {node.id}: none of its skills are configured, so it has none of their tools."
        tools.warnings.append(Warned("no_skills", words))
    return tools


def _is_disallowed(node: Node, tool: str) -> bool:
    return tool in node.disallowed_tools or COMPANIONS.get(tool) in node.disallowed_tools


def _of_skill(material: Material, node: Node, name: str, tools: Toolset) -> Program[list[tuple[ToolSpec, CallTool]]]:
    skill = material.skill(name)
    flaw = material.flaw(name)
    if flaw:
        so = ", so the node continues without it" if skill is None else ""
        tools.warnings.append(Warned("broken_skill", f"Node {node.id}: the skill '{name}' cannot be read{so}: {flaw}"))
    elif skill is None:
        words = f"Node {node.id}: unknown skill '{name}'; the node continues without it."
        tools.warnings.append(Warned("unknown_skill", words))
    if skill is None:
        tools.unlisted = True
        return []
    if not skill.configured:
        tools.absent |= {plain_name(str(tool["name"])) for tool in skill.tools}
        tools.unlisted = tools.unlisted or skill.server is not None
        needs = f": {unset(skill.missing)}" if skill.missing else ""
        words = f"Node {node.id}: the skill '{name}' is not configured{needs}, so the node continues without it."
        tools.warnings.append(Warned("skill_not_configured", words))
        return []
    if skill.missing:
        words = f"Node {node.id}: some tools of the skill '{name}' are unavailable: {unset(skill.missing)}."
        tools.warnings.append(Warned("skill_not_configured", words))
    if skill.instruction:
        tools.instructions.append((skill.name or skill.id, skill.instruction))
    specs = [msgspec.convert(tool, ToolSpec) for tool in skill.tools]
    found = [(spec, _skill_call(skill, number, spec)) for number, spec in enumerate(specs)]
    if skill.server is not None:
        found += yield from _of_server(material, node, skill.server, tools)
    return found


def _skill_call(skill: Skill, number: int, spec: ToolSpec) -> CallTool:
    declared = skill.tools[number]
    return CallTool(
        spec.name,
        reads_only=bool(declared.get("reads_only", False)),
        idempotent=bool(declared.get("idempotent", False)),
    )


def _of_server(
    material: Material, node: Node, server: ServerSpec, tools: Toolset
) -> Program[list[tuple[ToolSpec, CallTool]]]:
    specs = yield from material.server_tools(server)
    if isinstance(specs, Failed):
        words = f"Node {node.id}: the tool server '{server.name}' is unavailable: {specs}"
        tools.warnings.append(Warned("server_unavailable", words))
        tools.unlisted = True
        return []
    return [(spec, call_of(spec, server)) for spec in specs]


def _filtered(
    node: Node, found: list[tuple[ToolSpec, CallTool]], tools: Toolset
) -> Iterable[tuple[ToolSpec, CallTool]]:
    """Applies `tools.allow`, then `tools.deny`. Warns about names that match no tool, because they may be misspelt.

    There is no warning if the tools of a skill are unknown, because the name may be one of them.
    """
    names = {plain_name(spec.name) for spec, _ in found} | tools.absent
    filters = () if tools.unlisted else (("allow", node.allow or ()), ("deny", node.deny))
    for field, listed in filters:
        unknown = [name for name in listed if plain_name(name) not in names]
        if unknown:
            words = f"Node {node.id}: tools.{field} lists {', '.join(unknown)}, which no skill of the node provides."
            tools.warnings.append(Warned("tool_filter", words))
    allowed = None if node.allow is None else {plain_name(name) for name in node.allow}
    denied = {plain_name(name) for name in node.deny}
    for spec, call in found:
        name = plain_name(spec.name)
        if (allowed is None or name in allowed) and name not in denied:
            yield spec, call


def _home(call: CallTool) -> str:
    return f"the tool server '{call.server.name}'" if call.server is not None else f"'{call.tool}'"


def unset(names: Sequence[str]) -> str:
    """A clause that names the settings without a value."""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not set"


def plain_name(name: str) -> str:
    """The normalised name, which is used to compare names."""
    return UNFIT.sub("_", name.removeprefix("mcp__").replace("__", "_"))
