"""Steps that ask a model: the contract, repair, tools, and budgets. The model is scripted, the tools are real."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.model import Llm, Mcp, Output, Retry, Step
from cuebook.kernel.context import ToolCall
from cuebook.kernel.events import ModelAsked, Performed, Performing
from cuebook.kernel.outcomes import Reply
from cuebook.testing import Line, Says, ScriptedModel, model_performer
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness, cli, good_server, ref, words

SCHEMA = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}
GOOD = '{"title": "Release"}'


def llm(id: str, prompt: Any = "Draft it.", schema: Any = SCHEMA, **more: Any) -> Step:
    """Fields of the model's block and of the step, together."""
    own = ("tools", "max_tool_calls", "max_tokens", "max_repairs")
    action = Llm(
        more.pop("model", "default"),
        prompt if not isinstance(prompt, str) else words(prompt),
        **{name: more.pop(name) for name in own if name in more},
    )
    return Step(id, action, output=Output("json", schema, more.pop("max_bytes", None)), **more)


def calls(*made: tuple[str, dict[str, Any]], first: int = 1) -> Says:
    return Says("", tuple(ToolCall(f"call-{first + n}", name, given) for n, (name, given) in enumerate(made)))


class Talks(PipelineHarness):
    def __init__(self, folder: Path, *lines: Line, policy: Any = None, **more: Any) -> None:
        self.model = ScriptedModel(lines)
        super().__init__(folder, policy, model=model_performer(self.model), **more)

    def said(self, turn: int = -1) -> str:
        """The last message to the model in a turn."""
        return self.model.requests[turn].messages[-1].text


# --- the contract ---


async def test_a_reply_that_follows_the_schema(tmp_path: Path) -> None:
    harness = Talks(tmp_path, GOOD)
    row = await harness.do(
        cli("log", "echo", "one commit"),
        llm("notes", words("Draft notes for: ", ref("log", "stdout")), stdin=words(ref("log", "stdout"))),
        cli("show", "echo", words(ref("notes", "json", "title"))),
    )
    assert row.status == "completed", row.error
    assert (await harness.outputs(row.id))["show"] == "Release\n"
    (request,) = harness.model.requests
    assert request.schema == SCHEMA
    assert request.tools == ()
    said = harness.said()
    assert said.startswith("Draft notes for: one commit\n")
    assert "## Input\n\none commit" in said
    assert "JSON only" in said
    assert json.dumps(SCHEMA, separators=(",", ":")) in said
    await harness.close()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ('{"name": "Release"}', "'title' is a required property"),
        ("Here are the notes you wanted.", "it is not JSON"),
        (f"```json\n{GOOD}\n```", "it is not JSON"),
        (f"{GOOD} I hope this helps!", "it is not JSON"),
        (Says(GOOD, finish="length"), "it was cut"),
    ],
)
async def test_a_reply_that_breaks_the_contract_fails_the_step(tmp_path: Path, reply: Line, why: str) -> None:
    harness = Talks(tmp_path, reply)
    row = await harness.do(llm("a", max_repairs=0))
    assert row.error is not None
    assert row.error.code == "output_contract"
    assert row.error.message.startswith("Step a failed: Output contract violated: ")
    assert why.replace("it was cut", "its output was cut at the limit") in row.error.message
    assert len(harness.model.requests) == 1
    await harness.close()


async def test_repair_is_asked_for_without_tools_and_counted(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Read", {"path": "x"})), "Sorry, no.", '{"t": 1}', GOOD)
    (harness.workspace / "x").write_text("text")
    row = await harness.do(llm("a", tools=("Read",), max_tool_calls=1, max_repairs=2))
    assert row.status == "completed", row.error
    assert [note["number"] for note in await harness.notes(row.id, "repair")] == [1, 2]
    assert "'title' is a required property" in harness.said()
    assert [len(request.tools) for request in harness.model.requests] == [1, 1, 0, 0]
    assert len(await harness.events(row.id, ModelAsked)) == 4
    await harness.close()


async def test_repair_ends(tmp_path: Path) -> None:
    harness = Talks(tmp_path, "no", "no", "no", "no")
    row = await harness.do(llm("a"))
    assert row.status == "failed"
    assert len(harness.model.requests) == 2
    (noted,) = await harness.notes(row.id, "contract")
    assert noted["problems"]
    await harness.close()


async def test_a_reply_beyond_the_cap_breaks_the_contract(tmp_path: Path) -> None:
    long = json.dumps({"title": "x" * 100})
    harness = Talks(tmp_path, long, long, long)
    row = await harness.do(llm("a", max_bytes=50, max_repairs=0))
    assert row.error is not None
    assert "cut at the limit" in row.error.message
    assert (await harness.do(llm("a", max_bytes=200))).status == "completed"
    row = await harness.do(llm("a", max_bytes=200, max_repairs=0), options={"max_output": 50})
    assert row.status == "failed", "the smaller cap holds, whoever says it"
    await harness.close()


# --- tools ---


async def test_it_calls_allowed_tools(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Bash", {"command": "echo hi > made; cat made"})), GOOD)
    row = await harness.do(llm("a", tools=("Bash", "Read"), max_tool_calls=2))
    assert row.status == "completed", row.error
    assert harness.made("made") == ["hi"]
    assert [tool.name for tool in harness.model.requests[0].tools] == ["Bash", "Read"]
    assert harness.said() == "hi"
    (performing,) = await harness.events(row.id, Performing)
    assert performing.effect.tool == "Bash"
    await harness.close()


async def test_a_server_tool_is_shown_under_a_name_that_models_accept(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("good_add", {"a": 1, "b": 2})), GOOD, servers=good_server(tmp_path))
    row = await harness.do(
        Step("m", Mcp("good.add", {"a": 1, "b": 1})), llm("a", tools=("good.add",), max_tool_calls=1)
    )
    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert harness.said() == '{"result":3}'
    await harness.close()


@pytest.mark.parametrize("name", ["Nothing", "good.nothing"])
async def test_a_missing_tool_fails_the_step_before_any_call(tmp_path: Path, name: str) -> None:
    harness = Talks(tmp_path, GOOD)
    row = await harness.do(llm("a", tools=("Read", name), max_tool_calls=1))
    assert row.error is not None
    assert row.error.code == "no_such_tool"
    assert harness.model.requests == []
    await harness.close()


async def test_calls_beyond_the_limit_fail_the_step_before_they_are_made(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Bash", {"command": "echo 1 >> made"}), ("Bash", {"command": "echo 2 >> made"})))
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=1))
    assert row.error is not None
    assert row.error.message == "Step a failed: tool-call limit exceeded (max=1)"
    assert harness.made("made") == []
    await harness.close()


async def test_calls_of_all_turns_count_together(tmp_path: Path) -> None:
    lines = [calls(("Bash", {"command": f"echo {n} >> made"}), first=n) for n in range(1, 5)]
    harness = Talks(tmp_path, *lines)
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=2))
    assert row.error is not None
    assert row.error.code == "tool_call_limit"
    assert harness.made("made") == ["1", "2"]
    await harness.close()


async def test_a_model_that_was_not_offered_a_tool_cannot_call_it(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Bash", {"command": "touch made"})), GOOD)
    row = await harness.do(llm("a", tools=("Read",), max_tool_calls=2))
    assert row.error is not None
    assert row.error.code == "tool_not_allowed"
    assert not (harness.workspace / "made").exists()
    row = await harness.do(llm("b"))
    assert row.status == "completed"
    await harness.close()


async def test_a_model_without_tools_that_calls_some_fails(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Bash", {"command": "touch made"})))
    row = await harness.do(llm("a"))
    assert row.error is not None
    assert row.error.code == "tool_call_limit"
    assert not (harness.workspace / "made").exists()
    await harness.close()


async def test_a_tool_that_fails_fails_the_step(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(("Bash", {"command": "echo broken >&2; exit 3"})), GOOD)
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=2))
    assert row.error is not None
    assert row.error.code == "tool_error"
    assert "broken" in row.error.message
    assert len(harness.model.requests) == 1
    await harness.close()


async def test_a_tool_that_the_policy_denies_fails_the_step(tmp_path: Path) -> None:
    policy = {**ANYTHING, "commands": {"deny": ["*"]}}
    harness = Talks(tmp_path, calls(("Bash", {"command": "touch made"})), GOOD, policy=policy)
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=2))
    assert row.error is not None
    assert row.error.code == "forbidden"
    assert not (harness.workspace / "made").exists()
    await harness.close()


@pytest.mark.parametrize(
    ("tool", "given"),
    [("Bash", {"command": "touch made"}), ("WebFetch", {"url": "https://example.com/"})],
)
async def test_a_tool_that_needs_approval_waits_and_does_nothing(
    tmp_path: Path, tool: str, given: dict[str, Any]
) -> None:
    policy = {"egress": {"default": "ask"}}
    harness = Talks(tmp_path, calls((tool, given)), GOOD, policy=policy)
    row = await harness.do(llm("a", tools=(tool,), max_tool_calls=1))
    assert row.status == "awaiting_approval"
    assert (await harness.wait(row.id)).details["purpose"] == "policy"
    assert await harness.events(row.id, Performing) == []
    row = await harness.decide(row.id, "deny", reason="no need")
    assert row.status == "completed", row.error
    assert "no need" in harness.said()
    assert not (harness.workspace / "made").exists()
    await harness.close()


async def test_the_count_survives_a_pause(tmp_path: Path) -> None:
    """Approved by another process than the one that asked: the first call still counts."""
    policy = {"tools": {"allow": ["*"]}, "commands": {"ask": ["*"]}}
    first = Talks(tmp_path, calls(("Bash", {"command": "echo 1 >> made"})), policy=policy)
    row = await first.do(llm("a", tools=("Bash",), max_tool_calls=1))
    assert row.status == "awaiting_approval"
    await first.close()
    second = Talks(tmp_path, calls(("Bash", {"command": "echo 2 >> made"}), first=2), policy=policy)
    second.pipeline = first.pipeline
    row = await second.decide(row.id, "approve")
    assert row.error is not None
    assert row.error.message == "Step a failed: tool-call limit exceeded (max=1)"
    assert second.made("made") == ["1"]
    await second.close()


WRITE = ("Bash", {"command": "echo x >> made"})
WRITE_AND_HANG = ("Bash", {"command": "echo x >> made; sleep 60"})
READ = ("Read", {"path": "x"})


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([calls(WRITE_AND_HANG), calls(WRITE, first=5), GOOD], "in_doubt"),
        ([calls(WRITE), "no JSON", calls(WRITE, first=5), GOOD], "output_contract"),
        ([calls(("Read", {"path": "missing"}), WRITE), calls(WRITE, first=5), GOOD], "not_found"),
    ],
)
async def test_it_is_not_retried_once_a_tool_has_changed_something(
    tmp_path: Path, lines: list[Line], code: str
) -> None:
    harness = Talks(tmp_path, *lines)
    tools = ("Bash", "Read")
    row = await harness.do(
        llm("a", tools=tools, max_tool_calls=3, max_repairs=0, timeout=6.0, retry=Retry(3, 0.0)),
    )
    if code == "in_doubt":
        row = await harness.decide(row.id, "stop")
    assert row.error is not None
    assert row.error.code == code
    assert harness.made("made") == ["x"]
    await harness.close()


@pytest.mark.parametrize(
    "first", [[calls(READ), "no JSON"], ["no JSON"], [Says(GOOD, finish="length")], [calls(("Bash", {"command": "x"}))]]
)
async def test_it_is_retried_if_nothing_was_changed(tmp_path: Path, first: list[Line]) -> None:
    policy = {**ANYTHING, "commands": {"ask": ["*"]}}
    harness = Talks(tmp_path, *first, *(["no JSON"] if len(first) == 1 else []), GOOD, policy=policy)
    (harness.workspace / "x").write_text("text")
    row = await harness.do(
        llm("a", tools=("Bash", "Read"), max_tool_calls=3, max_repairs=0, retry=Retry(3, 0.0)),
    )
    if row.status == "awaiting_approval":
        row = await harness.decide(row.id, "deny")
    assert row.status == "completed", row.error
    assert await harness.notes(row.id, "attempt")
    await harness.close()


async def test_a_call_that_is_sent_again_counts_once_and_is_made_once(tmp_path: Path) -> None:
    harness = Talks(tmp_path, calls(WRITE), calls(WRITE), GOOD)
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=1))
    assert row.status == "completed", row.error
    assert harness.made("made") == ["x"]
    await harness.close()


# --- approval, model and budgets ---


async def test_a_model_is_not_asked_before_a_person_has_approved(tmp_path: Path) -> None:
    harness = Talks(tmp_path, GOOD)
    row = await harness.do(cli("log", "echo", "one commit"), llm("a", "Draft it.", name="Draft", approval=True))
    assert row.status == "awaiting_approval"
    assert harness.model.requests == []
    wait = await harness.wait(row.id)
    assert wait.details["purpose"] == "step"
    assert wait.details["preview"]["prompt"].startswith("Draft it.")
    assert wait.details["preview"]["output of log"] == "one commit\n"
    assert (await harness.decide(row.id, "approve")).status == "completed"
    row = await harness.do(llm("a", approval=True))
    assert (await harness.decide(row.id, "deny")).status == "cancelled"
    assert len(harness.model.requests) == 1
    await harness.close()


async def test_a_step_can_name_its_model(tmp_path: Path) -> None:
    harness = Talks(tmp_path, GOOD, GOOD)
    row = await harness.do(llm("a", model="test/other"), llm("b"))
    assert [event.model for event in await harness.events(row.id, ModelAsked)] == ["test/other", "test/scripted"]
    await harness.close()


async def test_a_budget_of_tokens_ends_the_step_before_the_next_call(tmp_path: Path) -> None:
    harness = Talks(tmp_path, *(calls(("Bash", {"command": "true"}), first=n) for n in range(9)))
    row = await harness.do(llm("a", tools=("Bash",), max_tool_calls=9, max_tokens=200))
    assert row.error is not None
    assert row.error.code == "step_budget"
    replies = [event.outcome for event in await harness.events(row.id, Performed) if isinstance(event.outcome, Reply)]
    assert sum(reply.usage.input + reply.usage.output for reply in replies) < 400
    assert 0 < len(harness.model.requests) < 9
    await harness.close()


async def test_what_is_too_long_for_the_budget_is_not_sent(tmp_path: Path) -> None:
    harness = Talks(tmp_path, GOOD)
    row = await harness.do(llm("a", "word " * 1000, max_tokens=500))
    assert row.error is not None
    assert row.error.code == "step_budget"
    assert harness.model.requests == []
    await harness.close()


async def test_a_model_that_takes_too_long_fails_the_step(tmp_path: Path) -> None:
    harness = Talks(tmp_path, Says(GOOD, wait_for=asyncio.Event()))
    row = await harness.do(llm("a", timeout=0.2))
    assert row.error is not None
    assert row.error.code == "timeout"
    await harness.close()
