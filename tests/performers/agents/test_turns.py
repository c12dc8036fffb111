"""What an agent says and does in one turn: text, plan, tool calls, usage, tools of the step, limits of its sandbox."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.service.runs.tool_calls import call_object
from cuebook.surfaces.cli.terminal.calls_in_words import brief
from tests.performers.agents.harness import AgentHarness


async def test_an_agent_answers_a_step_and_its_work_is_in_the_journal(harness: AgentHarness) -> None:
    harness.configure("usage")
    harness.open()
    run = await harness.do("plan Fix it", "call make test", "say All tests pass.")
    assert (run.status, await harness.said(run)) == ("completed", "All tests pass.")
    (plan,) = await harness.notes(run, "agent_plan")
    assert plan["entries"] == [{"text": "Fix it", "status": "in_progress"}]
    calls = await harness.notes(run, "agent_call")
    assert [(one["title"], one["status"], one["output"]) for one in calls] == [
        ("make test", "pending", ""),
        ("make test", "completed", "fine"),
    ]
    assert (run.totals.input, run.totals.output, run.totals.unknown_costs) == (7, 5, 1)


async def test_the_own_calls_and_the_plan_of_an_agent_are_shown_with_the_calls_of_the_run(
    harness: AgentHarness,
) -> None:
    harness.open()
    run = await harness.do("plan Fix it", "call make test", "say All tests pass.")
    view = await harness.service.view(run.id)
    (call,) = view.calls
    assert (call.agent, call.tool, call.title, call.headline) == ("acp/test", "execute", "make test", "make test")
    assert (call.status, call.result, call.step) == ("completed", "fine", "1")
    assert call.seconds is not None
    assert call_object(call)["agent"] == "acp/test"
    assert [(plan.step, [(one.text, one.status) for one in plan.items]) for plan in view.plans] == [
        ("1", [("Fix it", "in_progress")])
    ]
    assert any("make test" in line and "by acp/test itself" in line for line in brief(view.calls, view.plans))


async def test_a_call_that_an_agent_began_and_did_not_end_is_not_finished_when_the_run_ends(
    harness: AgentHarness,
) -> None:
    harness.open()
    run = await harness.do("begin make test", "say Done.")
    view = await harness.service.view(run.id)
    assert [(call.status, call.seconds) for call in view.calls] == [("stopped", None)]


async def test_a_cost_that_the_agent_reports_is_counted_once(harness: AgentHarness) -> None:
    harness.open()
    run = await harness.do("cost 0.25", "say Done.")
    assert (run.totals.cost, run.totals.unknown_costs) == (0.25, 0)


async def test_an_agent_sees_only_its_own_environment_and_writes_only_to_the_workspace(
    harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED_TOKEN", "not-for-agents")
    outside = harness.folder / "outside.txt"
    harness.open()
    run = await harness.do("env UNRELATED_TOKEN", f"touch {outside}", f"touch {harness.work}/inside.txt")
    said = "".join(str(outcome.content) for outcome in await harness.outcomes(run))
    assert run.status == "completed"
    assert "not-for-agents" not in said
    assert (outside.exists(), harness.made("inside.txt")) == (False, True)


async def test_a_secret_of_the_agent_reaches_it_alone_and_is_masked(
    harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-open-0123456789")
    harness.configure(secret_env={"AGENT_KEY": "env:MY_KEY"})
    harness.open()
    run = await harness.do("env AGENT_KEY", "env MY_KEY")
    everything = str([entry.event for entry in await harness.entries(run)])
    assert run.status == "completed"
    assert "AGENT_KEY=" in everything
    assert "sesame-open-0123456789" not in everything


async def test_the_files_of_credentials_are_in_its_home_and_their_parts_are_masked(harness: AgentHarness) -> None:
    token = "abcdefghij-0123456789-token"
    (harness.home / "login.json").write_text(json.dumps({"login": {"token": token}}))
    harness.configure(secret_files={".agent/login.json": f"file:{harness.home}/login.json"})
    harness.open()
    command = (
        "cat $HOME/.agent/login.json > seen.txt; { echo x > $HOME/.agent/login.json; } || echo unchanged >> seen.txt"
    )
    run = await harness.do(f"execute {command}", "read seen.txt")
    run = await harness.decide(run, "approve")
    assert run.status == "completed"
    assert token in (harness.work / "seen.txt").read_text()
    assert "unchanged" in (harness.work / "seen.txt").read_text()
    assert list((harness.home / "data" / "cuebook" / "agents").glob("*/*/credentials")) == []
    everything = str([entry.event for entry in await harness.entries(run)])
    assert "login" in everything
    assert token not in everything


async def test_an_agent_calls_the_tools_of_its_node_through_the_gate(harness: AgentHarness) -> None:
    harness.rule('[tools]\nallow = ["*"]\n')
    graph = {
        "id": "g",
        "name": "g",
        "description": "d",
        "entry": "a",
        "nodes": {"a": {"name": "A", "instruction": 'do: tool WebFetch {"url": "http://127.0.0.1:9/x"}', "skills": []}},
        "edges": [],
    }
    harness.open()
    run = await harness.do(text=json.dumps(graph))
    said = str((await harness.outcomes(run))[-1].content)
    assert run.status == "completed"
    assert "['WebFetch'" in said
    assert "127.0.0.1" in said


async def test_without_its_package_an_agent_is_refused_before_the_run(
    harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "acp" else find(name))
    harness.open()
    with pytest.raises(BadInput, match=r"agent-client-protocol.*whl\[agents\]"):
        await harness.start("say Hello.")


async def test_an_unknown_agent_is_refused_with_the_names_of_the_others(harness: AgentHarness) -> None:
    harness.open()
    with pytest.raises(BadInput, match="no coding agent `opncode`") as refused:
        harness.wiring.providers.check("acp/opncode")
    assert "Did you mean `acp/opencode`" in refused.value.fix


async def test_an_agent_reaches_its_hosts_and_no_others(harness: AgentHarness) -> None:
    with answering("the model's answer") as port:
        harness.rule(f'[egress]\nallow = ["127.0.0.1:{port}"]\n')
        harness.configure(hosts=[f"127.0.0.1:{port}"])
        harness.open()
        run = await harness.do(f"fetch http://127.0.0.1:{port}/")
        assert await harness.said(run) == "the model's answer"
        harness.configure(hosts=[])
        await harness.reopen()
        run = await harness.do(f"fetch http://127.0.0.1:{port}/")
        assert "the model's answer" not in await harness.said(run)


async def test_an_agent_with_hosts_is_asked_about_once_for_its_session(harness: AgentHarness) -> None:
    harness.rule('preset = "agent"\n')
    harness.configure(hosts=["api.example.com"])
    harness.open()
    run = await harness.do("execute touch one.txt", "say Done.")
    (wait,) = await harness.waits(run)
    assert (run.status, wait.prompt.startswith("Ask acp/test")) == ("awaiting_approval", True)
    run = await harness.decide(run, "approve")
    assert run.status == "completed", await harness.waits(run)
    assert (harness.work / "one.txt").exists()
    assert len(await harness.asked(run)) == 1


async def test_a_policy_can_deny_the_host_of_an_agent(harness: AgentHarness) -> None:
    harness.rule('[egress]\ndeny = ["https://api.example.com/**"]\n')
    harness.configure(hosts=["api.example.com"])
    harness.open()
    run = await harness.do("say Hello.")
    assert (run.status, run.error.code if run.error else "") == ("failed", "forbidden")


@contextmanager
def answering(text: str) -> Iterator[int]:
    """A server on loopback that answers every request with this text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
