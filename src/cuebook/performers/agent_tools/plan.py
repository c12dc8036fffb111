"""TodoWrite: the plan that a model keeps while it works. The run's page shows it; the journal is its only store."""

from __future__ import annotations

from typing import Any

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import PLAN
from cuebook.performers.agent_tools.tool import HABITS, parameters, text
from cuebook.performers.tools.toolbox import SimpleTool, Tool

MOST = 100
"""The maximum number of items in a plan."""
_STATUSES = ("pending", "in_progress", "completed")


def plan_tool() -> Tool:
    item = {
        "type": "object",
        "properties": {
            "content": text("What to do, in a few words.", least=1),
            "status": {"type": "string", "enum": list(_STATUSES)},
            **{name: text("Accepted, not used.") for name in ("activeForm", "priority", "id")},
        },
        "required": ["content", "status"],
    }
    todos = {"type": "array", "items": item, "maxItems": MOST, "description": "The whole plan, in order."}
    spec = ToolSpec(
        PLAN,
        "Keeps your plan where people can see it. Use it for work of three or more steps: send the whole plan each time,"
        " with at most one item in progress, and mark items as completed as soon as they are.",
        parameters(("todos",), todos=todos),
    )
    aliases = dict.fromkeys(("plan", "items", "tasks"), "todos")
    return SimpleTool(spec, _keep, _describe, reads_only=True, idempotent=True, aliases=aliases, unused=HABITS)


async def _describe(arguments: dict[str, Any], settings: Settings) -> Description:
    return Description((), "Keep a plan", {"plan": "\n".join(_lines(arguments))}, harmless=True)


async def _keep(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
    items = arguments["todos"]
    under_way = [item for item in items if item["status"] == "in_progress"]
    done = sum(1 for item in items if item["status"] == "completed")
    following = next((item for item in [*under_way, *items] if item["status"] != "completed"), None)
    said = "" if following is None else f" Next: {following['content']}"
    several = " Keep at most one item in progress." if len(under_way) > 1 else ""
    return ToolResult(f"The plan has {len(items)} items, {done} completed.{several}{said}")


def _lines(arguments: dict[str, Any]) -> list[str]:
    return [f"{item['status']}: {item['content']}" for item in arguments["todos"]]
