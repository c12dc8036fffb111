"""The tools with which a node's model runs other playbooks as children: skills named `playbook:NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.children import untaken
from cuebook.kernel.context import ToolCall
from cuebook.kernel.conversation.calls import Agent, CallOutcome
from cuebook.kernel.effects import Branch, Program, RunPlaybook, ToolSpec
from cuebook.kernel.outcomes import EffectFailed, Failed, PlaybookResult, ToolResult
from cuebook.kernel.tool_names import visible


def playbook_spec(name: str, playbooks: Mapping[str, Any]) -> ToolSpec:
    """The tool as a model sees it: its parameters are the inputs of the playbook."""
    about = playbooks.get(name, {})
    words = f"Runs the playbook '{about.get('title') or name}' and returns its result. {about.get('description', '')}"
    return ToolSpec(visible(f"playbook_{name}"), words.strip(), about.get("inputs") or {"type": "object"})


def playbook_tool(name: str, playbooks: Mapping[str, Any]) -> Agent:
    def start(call: ToolCall) -> Branch:
        return Branch(lambda state: _run(name, playbooks.get(name, {}), call.arguments))

    return Agent(start, _read)


def _run(name: str, about: Mapping[str, Any], inputs: dict[str, Any]) -> Program[str]:
    unknown = untaken(about, inputs)
    if unknown:
        raise EffectFailed(Failed("bad_arguments", f"The playbook takes no {', '.join(unknown)}."))
    done: PlaybookResult = yield RunPlaybook(name, inputs)
    return str(done.text)


def _read(value: object) -> CallOutcome:
    return ToolResult(value) if isinstance(value, str) else Failed("bad_report", "The playbook returned nothing.")
