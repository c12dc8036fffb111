"""Edit and continue over MCP: the plan first, then an execution that replaces the old one."""

from __future__ import annotations

from tests.support.command_line import TEA
from tests.surfaces.mcp.conftest import Connect


async def test_an_execution_continues_with_a_changed_text(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        run = (await client.call("execute_playbook", playbook_id="tea", breakpoints=[1]))["execution_id"]
        text = TEA.replace("Serve it.", "Serve it hot.")
        plan = await client.call("edit_playbook_execution", execution_id=run, content=text)
        assert [(one["step"], one["verdict"]) for one in plan["steps"]] == [
            ("1", "kept"),
            ("2", "pending"),
            ("3", "changed"),
        ]
        assert (await client.call("get_playbook_execution", execution_id=run))["status"] == "paused"
        done = await client.call("edit_playbook_execution", execution_id=run, content=text, plan=plan["plan"])
        assert (done["status"], done["parent_execution_id"]) == ("completed", run)
        assert (await client.call("get_playbook_execution", execution_id=run))["status"] == "cancelled"
        assert "completed" in await client.refused(
            "edit_playbook_execution", execution_id=done["execution_id"], content=TEA
        )
