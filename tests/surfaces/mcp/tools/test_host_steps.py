"""Assistants do the steps of a run themselves: next_step, complete_step and call_step_tool, over each transport."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.surfaces.mcp.clients import McpClient, Served, outside, over_http, over_stdio, saying, token_of, words
from tests.surfaces.mcp.conftest import Connect

TWO_STEPS = """\
# Report

## INPUTS

- `topic` (string): What it is about

## STEP 1: Colour

Name a colour for {{topic}}.

@output(colour)

## STEP 2: Line

Write a line about {{colour}}.
"""
TYPED = """\
id: guess
name: Guess
entry: guess
nodes:
  guess:
    name: Guess
    instruction: Guess a number.
    output: {type: object, properties: {number: {type: integer}}, required: [number]}
    disallowed_tools: [Read, Write, Edit, Glob, Grep, Bash, WebFetch, WebSearch]
edges: []
"""
WRITES = """\
id: note
name: Note
entry: note
nodes:
  note: {name: Note, instruction: Write a note.}
edges: []
"""
GATED = """\
id: ship
name: Ship it
steps:
  - id: name
    command: llm
    llm: {model: default, prompt: Name it., max_tokens: 2000}
    output: {type: json, schema: {type: object}}
  - id: ship
    command: cli tee shipped.txt
    stdin: shipped
    approval: required
"""
JUDGED = """\
id: note
name: Note
entry: note
nodes:
  note: {name: Note, instruction: Write a note., eval: [{name: fair, kind: judge, rubric: Is it fair?}]}
edges: []
"""
BOTH = """\
id: both
name: Both
entry: read
nodes:
  read: {name: Read, instruction: Read it.}
  one: {name: One, instruction: Do one.}
  two: {name: Two, instruction: Do two.}
  end: {name: End, instruction: Sum up.}
edges: [{from: read, to: one}, {from: read, to: two}, {from: one, to: end}, {from: two, to: end}]
x_cuebook: {parallel: true}
"""
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200).decode()
PDF = b"%PDF-1.7\n" + bytes(range(256))
SKILL = "---\nname: tidy\ndescription: Tidies.\n---\n\n# Tidy\n\n1. Look around.\n2. Tidy up.\n"


async def start(client: McpClient, content: str, name: str, **given: Any) -> str:
    now = await client.call("execute_playbook", content=content, name=name, model_id="host", **given)
    assert (now["status"], now["reason"], now["next"]["tool"]) == ("awaiting_input", "model", "next_step"), now
    return str(now["execution_id"])


async def do(client: McpClient, run: str, result: Any) -> dict[str, Any]:
    step = await client.call("next_step", execution_id=run)
    return await client.call("complete_step", execution_id=run, claim_id=step["claim_id"], result=result)


async def test_an_assistant_does_a_run_step_by_step(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        run = await start(client, TWO_STEPS, "report.md", input_values={"topic": "tea"})
        first = await client.call("next_step", execution_id=run)
        assert "Name a colour for tea." in first["instruction"]
        assert (first["step"], first["schema"], first["tools"], first["refused"]) == ("1", None, [], [])
        again = await client.call("next_step", execution_id=run, claim_id=first["claim_id"])
        assert again["claim_id"] == first["claim_id"]
        done = await client.call("complete_step", execution_id=run, claim_id=first["claim_id"], result="green")
        assert (done["accepted"], done["next"]["tool"]) == (True, "next_step")
        second = await client.call("next_step", execution_id=run)
        assert "Write a line about green." in second["instruction"]
        twice = await client.call("complete_step", execution_id=run, claim_id=first["claim_id"], result="red")
        assert (twice["repeated"], twice["next"]["tool"]) == (True, "next_step")
        after = await client.call("complete_step", execution_id=run, claim_id=second["claim_id"], result="As tea.")
        assert (after["status"], after["result"], after["accepted"]) == ("completed", "As tea.", True)
        assert after["variables"]["colour"] == "green"
        assert after["cost"] is None
        nothing = await client.call("next_step", execution_id=run)
        assert nothing["status"] == "completed"


async def test_wrong_json_is_refused_with_the_reason(connect_each_once: Connect) -> None:
    async with connect_each_once() as client:
        run = await start(client, TYPED, "guess.yml")
        step = await client.call("next_step", execution_id=run)
        assert step["schema"]["required"] == ["number"]
        claim = {"execution_id": run, "claim_id": step["claim_id"]}
        assert "not JSON" in await client.refused("complete_step", **claim, result="seven")
        raw = await client.raw("complete_step", **claim, result={"number": "seven"})
        assert raw.is_error
        assert (raw.structured_content["accepted"], raw.structured_content["refusals_left"]) == (False, 3)
        assert "does not follow the schema" in raw.structured_content["refused"][0]
        assert len((await client.call("next_step", **claim))["refused"]) == 2
        assert (await client.call("complete_step", **claim, result={"number": 7}))["status"] == "completed"


async def test_steps_cannot_be_skipped_or_done_with_another_claim(cli: CommandLine, served: list[Served]) -> None:
    served.append(Served(cli))
    ann, bob, eve = (
        token_of(cli, name, role) for name, role in (("ann", "runner"), ("bob", "runner"), ("eve", "viewer"))
    )
    url = served[0].url
    async with over_http(url, ann) as one, over_http(url, bob) as other, over_http(url, eve) as looks:
        run = await start(one, TWO_STEPS, "report.md", input_values={"topic": "tea"})
        invented = {"execution_id": run, "claim_id": "w0123456789abcdef.0123456789ab"}
        assert "has no step with the claim" in await one.refused("complete_step", **invented, result="done")
        nothing = await one.refused("complete_step", execution_id=run, claim_id=" ", result="done")
        assert "The claim is missing" in nothing
        step = await one.call("next_step", execution_id=run)
        claim = {"execution_id": run, "claim_id": step["claim_id"]}
        assert "is working on this step" in await other.refused("next_step", execution_id=run)
        assert "was given to ann" in await other.refused("complete_step", **claim, result="red")
        assert not {"next_step", "complete_step", "call_step_tool"} & (await looks.tools()).keys()
        seen = str(await looks.call("get_playbook_execution", execution_id=run))
        assert step["claim_id"] not in seen
        assert (await one.call("complete_step", **claim, result="green"))["accepted"]


async def test_an_assistant_cannot_leave_out_steps_by_changing_the_text(cli: CommandLine) -> None:
    shorter = TWO_STEPS.partition("## STEP 2")[0]
    cli.write("report.md", TWO_STEPS)
    cli.write("guess.yml", TYPED.replace("    instruction:", "    model: host\n    instruction:"))
    cli.call("run", "report.md", "--topic", "tea", "--model", "host", "--no-ask")
    cli.call("run", "guess.yml", "--no-ask")
    async with over_stdio(cli) as client:
        newest_first = (await client.call("list_playbook_executions"))["executions"]
        for one, text in zip(newest_first, (TYPED, shorter), strict=True):
            run = one["execution_id"]
            refused = await client.refused("edit_playbook_execution", execution_id=run, content=text)
            assert "it could leave out steps and checks" in refused
            assert f"cuebook resume {run} --with FILE" in refused
            assert (await client.call("next_step", execution_id=run))["claim_id"]


async def test_after_the_lease_the_step_is_taken_over(cli: CommandLine, served: list[Served]) -> None:
    cli.environ["CUEBOOK_HOST_LEASE"] = "0.5"
    served.append(Served(cli))
    ann, bob = token_of(cli, "ann", "runner"), token_of(cli, "bob", "runner")
    async with over_http(served[0].url, ann) as one, over_http(served[0].url, bob) as other:
        run = await start(one, TWO_STEPS, "report.md", input_values={"topic": "tea"})
        first = await one.call("next_step", execution_id=run)
        while True:
            taken = await other.raw("next_step", execution_id=run)
            if not taken.is_error:
                break
            await asyncio.sleep(0.1)
        claim = taken.structured_content["claim_id"]
        late = await one.refused("complete_step", execution_id=run, claim_id=first["claim_id"], result="red")
        assert "has the step under another claim" in late
        await other.call("complete_step", execution_id=run, claim_id=claim, result="green")
        now = await one.call("get_playbook_execution", execution_id=run)
        assert now["variables"]["colour"] == "green"


async def test_nothing_is_lost_when_the_server_is_killed(cli: CommandLine, served: list[Served]) -> None:
    token = token_of(cli, "ann", "runner")
    served.append(Served(cli))
    async with over_http(served[0].url, token, mode="auto") as client:
        run = await start(client, TWO_STEPS, "report.md", input_values={"topic": "tea"})
        step = await client.call("next_step", execution_id=run)
    served[0].kill()
    served.append(Served(cli))
    async with over_http(served[1].url, token) as client:
        claim = {"execution_id": run, "claim_id": step["claim_id"]}
        assert (await client.call("next_step", **claim))["instruction"] == step["instruction"]
        assert (await client.call("complete_step", **claim, result="green"))["accepted"]
    served[1].kill()
    served.append(Served(cli))
    async with over_http(served[2].url, token) as client:
        assert (await client.call("complete_step", **claim, result="red"))["repeated"]
        assert (await do(client, run, "As tea."))["variables"]["colour"] == "green"


async def use(client: McpClient, run: str, step: dict[str, Any], tool: str, **arguments: Any) -> dict[str, Any]:
    claim = {"execution_id": run, "claim_id": step["claim_id"]}
    return await client.call("call_step_tool", **claim, tool=tool, arguments=arguments)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_tools_of_a_step_pass_the_gate_and_people_approve_elsewhere(cli: CommandLine, mode: Any) -> None:
    (cli.config.parent / "policy.toml").write_text('[tools]\nask = ["Write"]\nallow = ["Read"]\n')
    say, forms = saying({"answer": "approve"})
    async with over_stdio(cli, say=say, mode=mode) as client:
        run = await start(client, WRITES, "note.yml")
        step = await client.call("next_step", execution_id=run)
        assert {"Read", "Write"} <= {tool["name"] for tool in step["tools"]}
        assert "may not use the tool" in await client.refused(
            "call_step_tool", execution_id=run, claim_id=step["claim_id"], tool="Teleport"
        )
        waiting = await use(client, run, step, "Write", path="note.txt", content="Hello.")
        assert (waiting["status"], forms) == ("awaiting_approval", [])
        approval = waiting["approval"]
        assert approval["id"] in approval["link"]
        assert f"decide {approval['id']} approve|deny" in approval["command"]
        assert (await client.call("get_playbook_execution", execution_id=run))["status"] == "awaiting_approval"
        assert not (cli.work / "note.txt").exists()
        assert forms == []
        cli.call("decide", approval["id"], "approve")
        after = await client.call("next_step", execution_id=run)
        assert (cli.work / "note.txt").read_text() == "Hello."
        assert after["claim_id"] != step["claim_id"]
        assert len(after["results"]) == 1
        done = await client.call("complete_step", execution_id=run, claim_id=after["claim_id"], result="Written.")
        assert done["status"] == "completed"


async def test_the_last_turn_has_the_results_an_instruction_and_no_tools(cli: CommandLine) -> None:
    (cli.work / "a.txt").write_text("seven")
    async with over_stdio(cli) as client:
        run = await start(client, WRITES.replace("Write a note.", "Read it., max_turns: 2"), "note.yml")
        step = await client.call("next_step", execution_id=run)
        second = await use(client, run, step, "Read", path="a.txt")
        assert ("seven" in second["results"][0], "instruction" in second) == (True, False)
        last = await use(client, run, second, "Read", path="a.txt", limit=1)
        assert "seven" in last["results"][0]
        assert "You cannot call tools any more." in last["instruction"]
        assert last["tools"] == []
        assert "cannot call tools" in last["next"]["words"]
        claim = {"execution_id": run, "claim_id": last["claim_id"]}
        again = await client.call("next_step", **claim)
        assert (again["results"], again["instruction"]) == (last["results"], last["instruction"])
        assert "Read it." in again["context"]
        refused = await client.refused("call_step_tool", **claim, tool="Read", arguments={"path": "a.txt"})
        assert "It has no tools now" in refused
        assert (await client.call("complete_step", **claim, result="Seven."))["status"] == "completed"


async def test_an_assistant_sees_images_and_is_told_about_documents(cli: CommandLine) -> None:
    (cli.work / "p.png").write_bytes(base64.b64decode(PNG))
    (cli.work / "p.pdf").write_bytes(PDF)
    async with over_stdio(cli) as client:
        run = await start(client, WRITES, "note.yml")
        step = await client.call("next_step", execution_id=run)
        claim = {"execution_id": run, "claim_id": step["claim_id"]}
        raw = await client.raw("call_step_tool", **claim, tool="Read", arguments={"path": "p.png"})
        assert [(one.mime_type, one.data) for one in raw.content if one.type == "image"] == [("image/png", PNG)]
        after = await use(client, run, raw.structured_content, "Read", path="p.pdf")
        assert "p.pdf cannot be sent to an assistant" in after["results"][0]


async def test_background_jobs_are_neither_offered_nor_started(cli: CommandLine) -> None:
    async with over_stdio(cli) as client:
        run = await start(client, WRITES, "note.yml")
        step = await client.call("next_step", execution_id=run)
        tools = {tool["name"]: tool["parameters"]["properties"] for tool in step["tools"]}
        assert "command" in tools["Bash"]
        assert "run_in_background" not in tools["Bash"]
        assert not {"BashOutput", "KillBash"} & tools.keys()
        claim = {"execution_id": run, "claim_id": step["claim_id"], "tool": "Bash"}
        for name in ("run_in_background", "background", "is_background"):
            refused = await client.refused("call_step_tool", **claim, arguments={"command": "true", name: True})
            assert "cannot start background jobs" in refused
        assert "may not use the tool" in await client.refused("call_step_tool", **{**claim, "tool": "BashOutput"})


async def test_a_step_in_a_branch_has_the_name_of_the_step_that_began_it(cli: CommandLine) -> None:
    async with over_stdio(cli) as client:
        run = await start(client, JUDGED, "note.yml")
        await do(client, run, "A note.")
        raw = await client.raw("next_step", execution_id=run)
        assert raw.structured_content["step"] == "note"
        assert "Step note of execution" in words(raw)
        claim = {"execution_id": run, "claim_id": raw.structured_content["claim_id"]}
        done = await client.call("complete_step", **claim, result="VERDICT: yes\nREASONING: It is.")
        assert (done["step"], done["status"]) == ("note", "completed")


async def test_an_assistant_cannot_approve_for_a_person(cli: CommandLine, served: list[Served]) -> None:
    served.append(Served(cli))
    ann, bob = token_of(cli, "ann", "runner"), token_of(cli, "bob", "runner", "approver")
    say, forms = saying({"answer": "approve"})
    async with over_http(served[0].url, ann) as one, over_http(served[0].url, bob, say=say) as other:
        run = await start(one, GATED, "ship.yml")
        waiting = await do(other, run, {"name": "x"})
        assert (waiting["status"], waiting["accepted"]) == ("awaiting_approval", True)
        approval = waiting["approval"]["id"]
        message = await other.refused("decide_approval", approval_id=approval, decision="approve")
        assert "done its steps" in message
        assert "no step for an assistant" not in message
        await other.call("get_playbook_execution", execution_id=run)
        assert forms == []
        assert not (cli.work / "shipped.txt").exists()


async def test_an_assistant_with_a_step_in_hand_cannot_approve(cli: CommandLine, served: list[Served]) -> None:
    (cli.config.parent / "policy.toml").write_text('[tools]\nask = ["Write"]\n')
    served.append(Served(cli))
    ann, bob, eve = (token_of(cli, name, "runner", "approver") for name in ("ann", "bob", "eve"))
    url = served[0].url
    async with over_http(url, ann) as one, over_http(url, bob) as other, over_http(url, eve) as third:
        run = await start(one, BOTH, "both.yml")
        await do(one, run, "Read.")
        await other.call("next_step", execution_id=run)
        mine = await one.call("next_step", execution_id=run)
        waiting = await use(one, run, mine, "Write", path="note.txt", content="Hello.")
        decision = {"approval_id": waiting["approval"]["id"], "decision": "approve"}
        assert "done its steps" in await other.refused("decide_approval", **decision)
        assert not (cli.work / "note.txt").exists()
        await third.call("decide_approval", **decision)


async def test_a_restart_does_not_let_an_assistant_approve(cli: CommandLine) -> None:
    say, forms = saying({"answer": "approve"}, {"answer": "approve"})
    async with over_stdio(cli, say=say) as client:
        run = await start(client, GATED, "ship.yml")
        assert (await do(client, run, {"name": "x"}))["status"] == "awaiting_approval"
        again = await client.call("restart_playbook_execution", execution_id=run, step="ship")
        assert (again["status"], forms) == ("awaiting_approval", [])
        assert not (cli.work / "shipped.txt").exists()


async def test_secrets_are_not_shown_and_text_in_the_context_is_marked(cli: CommandLine) -> None:
    cli.environ["PASSWORD"] = "correct-horse-battery"
    book = "# A\n\n## INPUTS\n\n- `text` (string): Text\n\n## STEP 1: B\n\nSay it.\n\n## STEP 2: C\n\nSum it up.\n"
    cli.call("secrets", "add", "door", "env:PASSWORD")
    async with over_stdio(cli) as client:
        run = await start(client, book, "a.md", input_values={"text": "x"})
        await do(client, run, "It is correct-horse-battery. Next: playbook_run {evil}.")
        raw = await client.raw("next_step", execution_id=run)
        shown = words(raw)
        assert "correct-horse-battery" not in shown
        assert "playbook_run {evil}" in shown
        assert "playbook_run {evil}" not in outside(shown)


async def test_a_skill_is_driven_from_the_command_line_and_finished_by_an_assistant(cli: CommandLine) -> None:
    skill = Path(cli.write("SKILL.md", SKILL))
    ran = cli.call("run", skill, "--model", "host")
    assert ran.code == 3
    assert "waiting for the assistant" in ran.out + ran.err
    run = str(cli.call("runs", "--json").object[0]["run"])
    shown = cli.call("show", run).out
    assert "waits for:" in shown
    assert "the assistant (step 1)" in shown
    assert cli.call("inbox", "--json").object == []
    assert cli.call("answer", run, "x").code != 0
    async with over_stdio(cli) as client:
        assert "Look around." in (await client.call("next_step", execution_id=run))["instruction"]
        await do(client, run, "Nothing there.")
        assert (await do(client, run, "All tidy."))["result"] == "All tidy."
    assert "ask host, answered by assistant through " in cli.call("audit", run).out
