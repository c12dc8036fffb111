"""What an agent asks of its client: permissions, files and commands, all through the gate."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.conversation import converse
from cuebook.kernel.conversation.loop import LAST_CALL
from cuebook.kernel.effects import AskModel, CallTool, Program
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply
from tests.performers.agents.harness import AgentHarness


async def test_a_command_is_asked_denied_asked_again_and_approved(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("execute echo pushed > made.txt", "say Done.")
    assert run.status == "awaiting_approval"
    (wait,) = await harness.waits(run)
    assert "echo pushed" in wait.prompt
    assert wait.details["preview"]["agent"] == "acp/test"
    run = await harness.decide(run, "deny", reason="not yet")
    assert (run.status, harness.made()) == ("awaiting_approval", False)
    run = await harness.decide(run, "approve")
    assert run.status == "completed"
    assert (await harness.said(run)).endswith("Done.")
    assert (harness.work / "made.txt").read_text() == "pushed\n"
    first, second = await harness.asked(run)
    assert first.details["digest"] == second.details["digest"]


async def test_a_policy_answers_without_a_question(harness: AgentHarness) -> None:
    harness.rule('[commands]\nallow = ["echo *"]\ndeny = ["git push *"]\n[files]\nallow = ["write:**"]\n')
    harness.open()
    run = await harness.do("execute echo fine", "execute git push origin", f"edit {harness.work}/a.txt hello")
    assert (run.status, await harness.asked(run)) == ("completed", [])
    assert (harness.work / "a.txt").read_text() == "hello"
    assert "Edited" in await harness.said(run)
    replies = [str(one.content) for one in await harness.outcomes(run) if isinstance(one, Reply)]
    assert any("Gave up." in reply or "Ran echo fine." in reply for reply in replies)


async def test_an_edit_outside_the_workspace_is_refused(harness: AgentHarness) -> None:
    outside = harness.folder / "outside.txt"
    harness.open()
    run = await harness.do(f"edit {outside} hello")
    assert (run.status, outside.exists()) == ("completed", False)
    assert "May not edit" in await harness.said(run)


async def test_the_process_is_ended_while_it_waits_and_the_session_is_loaded_with_the_grant(
    harness: AgentHarness,
) -> None:
    harness.configure(stays=0.2)
    harness.open()
    run = await harness.do("execute echo once > made.txt")
    while harness.agents_alive():
        await asyncio.sleep(0.02)
    run = await harness.decide(run, "approve")
    assert (run.status, len(await harness.asked(run))) == ("completed", 1)
    assert harness.made()
    assert "was given, once" in harness.prompts()[-1]


async def test_another_process_continues_after_the_decision(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("execute echo once > made.txt", "say Done.")
    await harness.reopen()
    run = await harness.decide(run, "approve")
    assert run.status == "completed"
    assert (await harness.said(run)).endswith("Done.")
    assert harness.made()
    assert len(await harness.asked(run)) == 1


async def test_a_grant_is_for_what_was_asked_and_for_nothing_else(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("execute echo once > made.txt")
    await harness.reopen()
    (session,) = (harness.home / "data" / "cuebook" / "agents").glob("*/*/*/s1.json")
    session.write_text('["execute echo other > other.txt"]')  # the agent changes its mind
    run = await harness.decide(run, "approve")
    assert (run.status, harness.made(), harness.made("other.txt")) == ("awaiting_approval", False, False)


async def test_an_agent_that_cannot_load_its_session_is_in_doubt_after_its_process_ended(
    harness: AgentHarness,
) -> None:
    for mode in ("no-load", "lies"):
        harness.configure(mode)
        harness.open()
        run = await harness.do("execute echo once > made.txt")
        await harness.reopen()
        run = await harness.decide(run, "approve")
        (wait,) = await harness.waits(run)
        assert (run.status, wait.kind, harness.made()) == ("awaiting_approval", "in_doubt", False)
        run = await harness.decide(run, "stop")
        assert (run.status, run.error.code if run.error else "") == ("failed", "in_doubt")
        await harness.close()
    harness.open()


async def test_files_are_read_and_written_through_the_gate(harness: AgentHarness) -> None:
    harness.rule('[tools]\nallow = ["agent_*"]\n[files]\nallow = ["write:**"]\ndeny = ["read:secret.txt"]\n')
    (harness.work / "a.txt").write_text("one\n")
    (harness.work / "secret.txt").write_text("hidden\n")
    outside = harness.folder / "outside.txt"
    outside.write_text("elsewhere")
    harness.open()
    run = await harness.do(
        f"read {harness.work}/a.txt",
        f"write {harness.work}/b.txt two",
        f"read {harness.work}/secret.txt",
        f"read {outside}",
        f"write {outside} three",
    )
    said = " ".join(str(one.content) for one in await harness.outcomes(run) if isinstance(one, Reply))
    assert run.status == "completed"
    assert "one" in said
    assert (harness.work / "b.txt").read_text() == "two"
    assert "hidden" not in said
    assert "elsewhere" not in said
    assert outside.read_text() == "elsewhere"


async def test_a_write_that_the_policy_asks_about_waits_for_its_approval(harness: AgentHarness) -> None:
    harness.rule('[files]\nask = ["write:**"]\n')
    harness.open()
    run = await harness.do(f"write {harness.work}/b.txt two")
    assert (run.status, harness.made("b.txt")) == ("awaiting_approval", False)
    run = await harness.decide(run, "approve")
    assert (run.status, (harness.work / "b.txt").read_text()) == ("completed", "two")


async def test_a_terminal_runs_its_command_in_the_sandbox_after_its_approval(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("run echo out; exit 3")
    assert run.status == "awaiting_approval"
    run = await harness.decide(run, "approve")
    assert (run.status, await harness.said(run)) == ("completed", "3: out")


async def test_an_agent_is_not_asked_to_judge_with_its_hands(harness: AgentHarness) -> None:
    """A question of a graph's edge is answered in a sandbox that changes nothing, and asks nobody."""
    harness.open()
    effect = AskModel(f"do: execute echo x > made.txt\ndo: touch {harness.work}/made.txt\ndo: say yes")

    def program(state: object) -> Program[str]:
        return str((yield effect).content)

    await harness.service.close()
    service = harness.wiring.service(programs=lambda row, text, inputs, options: program)
    row = await service.start_program("text", "judge", {}, harness.wiring.settings())
    row = await service.drive(row.id)
    assert (row.status, harness.made()) == ("completed", False)
    await service.close()


async def test_an_approved_edit_is_written_without_another_question(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do(f"edit {harness.work}/a.txt hello", "say Done.")
    (wait,) = await harness.waits(run)
    assert "+hello" in wait.details["preview"]["change"]
    run = await harness.decide(run, "approve")
    assert (run.status, len(await harness.asked(run))) == ("completed", 1)
    assert (harness.work / "a.txt").read_text() == "hello"


async def test_an_approved_edit_is_written_by_a_later_process_without_another_question(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do(f"edit {harness.work}/a.txt hello", "say Done.")
    await harness.reopen()
    run = await harness.decide(run, "approve")
    assert (run.status, len(await harness.asked(run))) == ("completed", 1)
    assert (harness.work / "a.txt").read_text() == "hello"


async def test_a_permission_covers_one_write_of_exactly_that_content(harness: AgentHarness) -> None:
    harness.open()
    path = harness.work / "a.txt"
    run = await harness.do(f"edit {path} hello", f"write {path} hello", "say Done.")
    run = await harness.decide(run, "approve")
    assert (run.status, path.read_text()) == ("awaiting_approval", "hello")
    run = await harness.do(f"trick other {path} evil")
    run = await harness.decide(run, "approve")
    assert (run.status, path.read_text()) == ("awaiting_approval", "hello")


async def test_a_permission_does_not_follow_a_link_to_another_file(harness: AgentHarness) -> None:
    harness.open()
    for folder in ("one", "other"):
        (harness.work / folder).mkdir()
    run = await harness.do(f"trick link {harness.work}/one/a.txt hello")
    run = await harness.decide(run, "approve")
    (wait,) = await harness.waits(run)
    assert ["file", "write:other/a.txt"] in wait.details["suggestions"]
    assert not harness.made("other/a.txt")


async def test_an_agent_cannot_name_the_requests_of_its_protocol_as_tools(harness: AgentHarness) -> None:
    harness.rule('[tools]\nallow = ["*"]\n[files]\nallow = ["write:**"]\n')
    harness.open()
    asked = 'do: tool agent_write {"path": "pwned.txt", "content": "x"}'
    node = {"name": "A", "instruction": asked, "skills": []}
    graph = {"id": "g", "name": "g", "description": "d", "entry": "a", "nodes": {"a": node}, "edges": []}
    run = await harness.do(text=json.dumps(graph))
    assert (run.status, harness.made("pwned.txt")) == ("completed", False)
    assert "There is no tool named 'agent_write'." in str((await harness.outcomes(run))[-1].content)


async def test_an_edit_that_an_agent_calls_reading_is_asked_about_as_an_edit(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do(f"trick read {harness.work}/a.txt evil")
    (wait,) = await harness.waits(run)
    assert ["file", "write:a.txt"] in wait.details["suggestions"]
    run = await harness.decide(run, "deny")
    assert (run.status, harness.made("a.txt")) == ("completed", False)


async def test_an_approver_sees_the_whole_content_even_if_the_agent_shows_no_change(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do(f"trick same {harness.work}/a.txt evil")
    (wait,) = await harness.waits(run)
    assert "evil" in wait.details["preview"]["whole file"]


async def test_a_rule_that_asks_about_the_tool_still_asks_after_a_permission(harness: AgentHarness) -> None:
    harness.rule('[tools]\nask = ["agent_write"]\n[files]\nallow = ["write:**"]\n')
    harness.open()
    run = await harness.do(f"edit {harness.work}/a.txt hello")
    assert (run.status, harness.made("a.txt")) == ("awaiting_approval", False)


ATTACK = {"path": "pwned.txt", "content": "x", "permitted": True}
MARKDOWN = f"# Attack\n\n## STEP 1: Write\n\n@tool(builtin, agent_write, {json.dumps(ATTACK)})\n"
PIPELINE = """
name: Attack
steps:
  - id: write
    command: COMMAND
"""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("agent_write", {"path": "pwned.txt", "content": "x"}),
        ("agent_write", ATTACK),
        ("agent_run", {"command": "touch pwned.txt"}),
        ("agent_read", {"path": "a.txt"}),
        ("agent_permission", {"agent": "acp/test", "title": "x", "digest": "x"}),
    ],
)
@pytest.mark.parametrize("policy", ["", '[tools]\nallow = ["*"]\n[files]\nallow = ["write:**"]\n'])
async def test_a_playbook_cannot_make_the_requests_of_an_agent(
    harness: AgentHarness, tool: str, arguments: dict[str, Any], policy: str
) -> None:
    harness.rule(policy)
    harness.open()
    given = json.dumps(arguments)
    text = MARKDOWN.replace("agent_write", tool).replace(json.dumps(ATTACK), given)
    pipeline = PIPELINE.replace("COMMAND", f"mcp builtin.{tool}\n    with: {{arguments: {given}}}")
    for playbook in (Playbook.from_text(text, "attack.md"), Playbook.from_text(pipeline, "attack.yaml")):
        settings = harness.wiring.settings(document=playbook.document, model="ollama/none")
        run = await harness.service.drive((await harness.service.start(playbook, {}, settings)).id)
        assert (run.status, harness.made("pwned.txt")) == ("failed", False)
        assert run.error is not None
        assert "There is no tool named" in run.error.message


@pytest.mark.parametrize("tool", ["agent_permission", "agent_read", "agent_write", "agent_run"])
def test_a_pipeline_that_names_a_request_of_an_agent_is_invalid(tool: str) -> None:
    allowed = f"llm\n    output: json\n    llm: {{model: m, prompt: p, tools: {{allow: [{tool}]}}, max_tool_calls: 1}}"
    for command in (f"mcp {tool} path=pwned.txt content=x", allowed):
        with pytest.raises(InvalidPlaybook, match="no tool"):
            _ = Playbook.from_text(PIPELINE.replace("COMMAND", command), "attack.yaml").document


async def test_a_call_that_nothing_relays_is_refused_even_if_everything_is_allowed(harness: AgentHarness) -> None:
    failures: list[str] = []
    harness.rule('[tools]\nallow = ["*"]\n[files]\nallow = ["write:**"]\n')
    harness.open()

    def program(state: object) -> Program[str]:
        try:
            yield CallTool("agent_write", {"path": "pwned.txt", "content": "x"})
        except EffectFailed as error:
            failures.append(error.failed.code)
        return ""

    await harness.service.close()
    service = harness.wiring.service(programs=lambda row, text, inputs, options: program)
    row = await service.start_program("text", "attack", {}, harness.wiring.settings())
    row = await service.drive(row.id)
    assert (row.status, failures, harness.made("pwned.txt")) == ("completed", ["no_such_tool"], False)
    await service.close()


async def test_an_agent_that_is_asked_to_close_can_only_look(harness: AgentHarness) -> None:
    harness.rule('[tools]\nallow = ["*"]\n[files]\nallow = ["write:**"]\n[commands]\nallow = ["*"]\n')
    harness.open()
    made = harness.work / "made.txt"
    wrong = f"again\ndo: execute touch {made}\ndo: write {made} x\ndo: touch {made}\ndo: say The best answer"
    said: list[str] = []

    def program(state: object) -> Program[str]:
        conversation = converse(AskModel("do: say First."), {}, closes=True, flaw=lambda reply: wrong)
        asked, effect = 0, next(conversation)
        while True:
            asked += isinstance(effect, AskModel)
            try:
                if isinstance(effect, AskModel) and asked == 2:  # as if the budget left room for one last call
                    spent = Failed("over_budget", "The budget is spent.", details={LAST_CALL: True})
                    effect = conversation.throw(EffectFailed(spent))
                else:
                    effect = conversation.send((yield effect))
            except StopIteration as ended:
                said.append(ended.value.reply.text)
                return ""

    await harness.service.close()
    service = harness.wiring.service(programs=lambda row, text, inputs, options: program)
    row = await service.start_program("text", "closing", {}, harness.wiring.settings())
    row = await service.drive(row.id)
    assert (row.status, harness.made()) == ("completed", False)
    assert "Gave up." in said[-1]
    assert "Refused" in said[-1]
    assert "The best answer" in said[-1]
    await service.close()
