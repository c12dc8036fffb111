"""Whole workflows on the real engine, and cases that the conformance cases cannot express."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.dialects.graph import Graph
from cuebook.dialects.graph.check import check
from cuebook.dialects.graph.run import state
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.gate.sandbox import choose
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import All, AskModel, CallTool, ReadSource
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Call, Store
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import BUILT_IN, FIRST_BUILT_IN
from cuebook.performers.agent_tools import agent_tools
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.tools.toolbox import Toolbox
from cuebook.testing import ModelError, Says
from tests.dialects.graph.harness import GraphHarness, flow, skill, tool, way

SHARED = Path(__file__).resolve().parents[5] / "shared/data/graph"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared workflows are not here")


# --- whole workflows ------------------------------------------------------------------------------------------


class Shelf:
    """Lists the tools of a toolbox and has no skills."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        scheme, _, name = effect.source.partition(":")
        if scheme != "tools":
            return Failed("not_found", f"There is no {effect.source}.")
        specs = await self._box.specs(name)
        return Source(Text(msgspec.json.encode(specs).decode()))


FILE_OPS = {
    "write": {"calls": [{"tool": "Write", "input": {"path": "hello.txt", "content": "Hello from SWEny!"}}]},
    "read": {"calls": [{"tool": "Read", "input": {"path": "hello.txt"}}]},
    "delete": {"calls": [{"tool": "Bash", "input": {"command": "rm hello.txt"}}]},
}


def file_ops() -> str:
    nodes = {node: {"skills": ["github"]} for node in FILE_OPS}
    return flow(*FILE_OPS, nodes=nodes)


async def test_file_operations_are_real(store: Store, tmp_path: Path) -> None:
    shared = SHARED / "examples/file-ops.yml"
    text = shared.read_text() if shared.is_file() else file_ops()
    box = Toolbox(agent_tools(tmp_path, commands=CommandPerformer(choose(), tmp_path), http=None))
    seen: list[str] = []
    harness = GraphHarness(store, run={node: [{**said, "then": "Done."}] for node, said in FILE_OPS.items()})

    class Watched:
        async def perform(self, effect: CallTool, call: Call) -> Any:
            outcome = await box.perform(effect, call)
            file = tmp_path / "hello.txt"
            seen.append(f"{effect.tool}: {file.read_text() if file.exists() else 'no file'}")
            return outcome

    performers = harness.service._engine.performers
    harness.service._engine.performers = {**performers, CallTool: Watched(), ReadSource: Shelf(box)}
    row = await harness.run(text)
    assert row.status == "completed", row.error
    assert seen == ["Write: Hello from SWEny!", "Read: Hello from SWEny!", "Bash: no file"]
    assert await harness.way(row.id) == ["write", "read", "delete"]
    results = await harness.results(row.id)
    (read,) = results["read"]["toolCalls"]
    assert "Hello from SWEny!" in json.dumps(read["output"])
    warned = [event["code"] for event in await harness.events(row.id) if event["type"] == "node:warning"]
    assert warned == ["unknown_skill"] * 3, "a skill that is not there is a warning and no more"


SEARCH = {"calls": [{"tool": "linear_search_issues", "input": {"query": "TypeError"}}]}
FINDING = {
    "title": "Null project", "root_cause": "No guard", "severity": "high", "is_duplicate": False,
    "fix_approach": "Add a guard", "fix_complexity": "simple",
}  # fmt: skip
INVESTIGATED = {"findings": [FINDING], "novel_count": 1, "highest_severity": "high", "recommendation": "Fix it"}
ISSUE = {
    "issueIdentifier": "OFF-12", "issueTitle": "Null project", "issueUrl": "https://linear.app/OFF-12",
    "issues": [{"identifier": "OFF-12", "action": "created"}],
}  # fmt: skip
FIX: dict[str, Any] = {
    "branch": "off-12-guard",
    "commit_sha": "abc",
    "files_changed": ["a.ts"],
    "test_files_changed": [],
}
TRIAGE: dict[str, Any] = {
    "gather": {"fails": "The turn limit was reached."},
    "investigate": {**SEARCH, "data": INVESTIGATED},
    "create_issue": [
        {"then": {**ISSUE, "issueIdentifier": "sentry-1"}, **SEARCH},
        {"then": ISSUE, "calls": [{"tool": "linear_create_issue", "input": {"title": "Null project"}}]},
    ],
    "implement": [
        {**FIX, "test_status": "not-run"},
        {**FIX, "test_status": "pass", "test_files_changed": ["a.spec.ts"]},
    ],
    "create_pr": {"calls": [{"tool": "github_create_pr", "input": {"title": "[OFF-12] fix"}}], "then": "Opened."},
}


@needs_shared
async def test_triage_runs_to_its_end(store: Store) -> None:
    linear = ("linear_search_issues", "linear_create_issue", "linear_add_comment", "linear_update_issue")
    github = ("github_search_issues", "github_create_issue", "github_add_comment", "github_create_pr")
    texts = {
        "skill:linear": skill("linear", *linear, instruction="Be sparing with issues."),
        "skill:github": skill("github", *github),
        "skill:slack": skill("slack", configured=False, missing=["SLACK_WEBHOOK_URL"]),
        **{f"tools:{name}": tool(name) for name in ("Read", "Write", "Edit", "Bash", "WebFetch", "WebSearch")},
    }
    harness = GraphHarness(
        store,
        run=TRIAGE,
        route={"investigate": "create_issue", "create_issue": "implement", "implement": "create_pr"},
        ask=[
            "VERDICT: yes\nREASONING: Not run, so this does not apply.",
            "I must run the tests.",
            "VERDICT: yes\nREASONING: There is a spec file.",
        ],
        tools={
            "linear_search_issues": [[]],
            "linear_create_issue": {"identifier": "OFF-12"},
            "github_create_pr": {"number": 7},
        },
        texts=texts,
    )
    row = await harness.run((SHARED / "workflows/triage.yml").read_text(), {"alert": "TypeError"})
    assert row.status == "completed", row.error
    trace = await harness.trace(row.id)
    assert trace["steps"] == [
        {"node": "gather", "status": "success", "iteration": 1},
        {"node": "investigate", "status": "success", "iteration": 1},
        {"node": "create_issue", "status": "success", "iteration": 1, "repairs": 1},
        {"node": "implement", "status": "failed", "iteration": 1, "retryAttempt": 0},
        {"node": "implement", "status": "success", "iteration": 1, "retryAttempt": 1},
        {"node": "create_pr", "status": "success", "iteration": 1},
        {"node": "notify", "status": "success", "iteration": 1},
    ]
    assert [(edge["from"], edge["to"], edge["asked"]) for edge in trace["edges"]] == [
        ("gather", "investigate", False),
        ("investigate", "create_issue", True),
        ("create_issue", "implement", True),
        ("implement", "create_pr", True),
        ("create_pr", "notify", False),
    ]
    assert trace["edges"][1]["reason"].startswith("novel_count is greater than 0")
    assert harness.calls == [
        "run gather", "run investigate", "run investigate", "route investigate",
        "run create_issue", "run create_issue", "run create_issue", "run create_issue",
        "route create_issue", "run implement", "ask implement", "ask implement", "run implement", "ask implement",
        "route implement", "run create_pr", "run create_pr", "run notify",
    ]  # fmt: skip
    results = await harness.results(row.id)
    assert results["gather"]["data"]["fail_soft"] is True
    assert results["create_issue"]["data"] == ISSUE
    assert [call["tool"] for call in results["create_issue"]["toolCalls"]] == [
        "linear_search_issues", "linear_create_issue",
    ]  # fmt: skip
    (gather,) = harness.asked("run", "gather")
    assert gather.tools == [
        "Read", "Bash", "WebFetch", "WebSearch", "github_search_issues", "linear_search_issues", "Task",
    ]  # fmt: skip
    assert "## Skill: Linear" in gather.prompt
    assert "WebFetch" not in harness.asked("run", "implement")[0].tools
    route = harness.asked("route", "investigate")[0].context
    assert set(route["investigate"]) == {"evals", *INVESTIGATED}, "declared properties and verdicts, nothing else"
    warned = [event["reason"] for event in await harness.events(row.id) if event["type"] == "node:warning"]
    assert any("SLACK_WEBHOOK_URL" in said for said in warned)


# --- actions of a person ---------------------------------------------------------------------------------------


async def test_a_node_waits_for_approval(store: Store) -> None:
    text = flow("a", "b", x_cuebook={"nodes": {"b": {"approval": "Really?"}}})
    harness = GraphHarness(store)
    row = await harness.run(text)
    assert row.status == "awaiting_approval"
    (wait,) = await store.waits(run=row.id)
    assert (wait.prompt, wait.kind, wait.options) == ("Really?", "approval", ("approve", "deny"))
    assert harness.calls == ["run a"]
    with pytest.raises(NotAllowed):
        await harness.service.decide(wait.id, "approve", Principal("eve", roles=frozenset({"runner"})))
    await harness.service.decide(wait.id, "approve")
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.calls == ["run a", "run b"]


async def test_a_node_that_is_not_approved_is_not_run(store: Store) -> None:
    text = flow("a", "b", "c", x_cuebook={"nodes": {"b": {"approval": "Really?"}}})
    harness = GraphHarness(store)
    row = await harness.run(text)
    (wait,) = await store.waits(run=row.id)
    await harness.service.decide(wait.id, "deny", reason="Not today.")
    row = await harness.service.drive(row.id)
    assert (row.status, row.error.code if row.error else "") == ("cancelled", "denied")
    assert harness.calls == ["run a"], "what comes after it is not run either"
    assert "denied it: Not today." in (await harness.results(row.id))["b"]["data"]["error"]
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    (wait,) = await store.waits(run=row.id)
    await harness.service.decide(wait.id, "approve")
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.calls == ["run a", "run b", "run c"]


async def test_strict_leaves_approvals_budgets_and_halting_as_they_are(store: Store) -> None:
    nodes = {"b": {"approval": "Really?", "context": ["input"]}}
    harness = GraphHarness(store, run={"a": {"fails": "Down."}})
    row = await harness.run(flow("a", "b", x_cuebook={"on_failure": "halt"}), strict_spec=True)
    assert (row.status, harness.calls) == ("failed", ["run a"])
    harness = GraphHarness(store)
    row = await harness.run(flow("a", "b", x_cuebook={"nodes": nodes}), strict_spec=True)
    assert row.status == "awaiting_approval"
    (wait,) = await store.waits(run=row.id)
    await harness.service.decide(wait.id, "approve")
    await harness.service.drive(row.id)
    assert "a" in harness.asked("run", "b")[0].context, "projection is off"
    harness = GraphHarness(store)
    row = await harness.run(flow("a", "b", x_cuebook={"max_steps": 1}), strict_spec=True)
    assert row.error is not None
    assert row.error.code == "MAX_STEPS"


async def test_a_retry_asks_for_the_way_again_and_runs_no_node_again(store: Store) -> None:
    text = flow("a", "b", "c", edges=way("a b", "b c when it is ready"))
    harness = GraphHarness(store, route={"b": ["none", "c"]})
    row = await harness.run(text)
    assert row.error is not None
    assert row.error.code == "NO_ROUTE"
    await harness.service.retry(row.id)
    assert (await harness.service.drive(row.id)).status == "completed"
    assert harness.calls == ["run a", "run b", "route b", "route b", "run c"]


async def test_data_is_kept_where_the_budget_ends_at_a_judge(store: Store) -> None:
    node = {"eval": [{"name": "e", "kind": "judge", "rubric": "Good?"}]}
    harness = GraphHarness(store, run={"a": {"x": 1}}, ask=["VERDICT: yes"])
    row = await harness.run(flow("a", nodes={"a": node}, x_cuebook={"nodes": {"a": {"budget": {"tokens": 1}}}}))
    assert row.status == "failed"
    data = (await harness.results(row.id))["a"]["data"]
    assert data["x"] == 1
    assert "budget" in data["error"]


async def test_a_breakpoint_pauses_and_values_can_be_changed(store: Store) -> None:
    harness = GraphHarness(store, run={"a": {"x": 1}})
    text = flow("a", "b")
    row = await harness.start(text)
    await harness.service.cancel(row.id)
    settings = Settings(model="test/scripted", breakpoints=("a",))
    row = await harness.service.start(Playbook.from_text(text, "flow.yml"), {"q": 1}, settings)
    assert (await harness.service.drive(row.id)).status == "paused"
    await harness.service.resume(row.id, overrides={"a.x": 2, "q": 5})
    assert (await harness.service.drive(row.id)).status == "completed"
    (asked,) = harness.asked("run", "b")
    assert asked.context["a"] == {"x": 2}
    assert "The input q was changed during the run: 5" in asked.blocks


async def test_a_run_is_restarted_from_a_node(store: Store) -> None:
    harness = GraphHarness(store, run={"a": {"x": 1}, "b": [{"n": 1}, {"n": 2}]})
    row = await harness.run(flow("a", "b", "c"))
    fork = await harness.service.restart(row.id, "b")
    assert (await harness.service.drive(fork.id)).status == "completed"
    assert harness.calls == ["run a", "run b", "run c", "run b", "run c"]
    assert (await harness.results(fork.id))["b"]["data"] == {"n": 2}
    assert await harness.way(fork.id) == ["a", "b", "c"]


async def test_a_fork_may_change_what_a_node_found(store: Store) -> None:
    harness = GraphHarness(store, run={"a": {"x": 1}})
    row = await harness.run(flow("a", "b"))
    fork = await harness.service.fork(row.id, "b", values={"a": {"x": 9}})
    await harness.service.drive(fork.id)
    assert harness.asked("run", "b")[-1].context["a"] == {"x": 9}


async def test_a_failed_node_is_retried_from_its_beginning(store: Store) -> None:
    """Even if no effect failed, and other nodes ran after it."""
    node = {"eval": [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}]}
    harness = GraphHarness(store, run={"b": [{"y": 1}, {"x": 1}]})
    row = await harness.run(flow("a", "b", "c", nodes={"b": node}))
    assert row.status == "failed"
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert (row.status, row.totals.steps_done) == ("completed", 3), "what was taken back is not counted"
    assert harness.calls == ["run a", "run b", "run c", "run b", "run c"]
    assert (await harness.service.verify(row.id)).problem == ""


# --- models and tools --------------------------------------------------------------------------------------------


async def test_a_model_that_does_not_support_tools_continues_without_them(store: Store) -> None:
    harness = GraphHarness(store, texts={"tools:Read": tool("Read")})
    perform = harness.script.perform

    class Simple:
        async def perform(self, effect: AskModel, call: Call) -> Any:
            if effect.tools:
                return Failed("tools_unsupported", "It takes no tools.")
            return await perform(effect, call)

    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: Simple()}
    row = await harness.run(flow("a", "b"))
    assert row.status == "completed"
    warned = [entry.event.code for entry in await harness.entries(row.id) if isinstance(entry.event, Warned)]
    assert warned == ["tools_unsupported"], "it is found out once"


async def test_tools_that_need_another_tool_are_not_offered_without_it(store: Store) -> None:
    texts = {f"tools:{name}": tool(name) for name in BUILT_IN}
    harness = GraphHarness(store, texts=texts)
    every = {"disallowed_tools": list(FIRST_BUILT_IN)}
    row = await harness.run(flow("a", "b", "c", nodes={"b": {"disallowed_tools": ["Bash"]}, "c": every}))
    assert row.status == "completed"
    assert harness.asked("run", "a")[0].tools == [*BUILT_IN, "Task"]
    assert set(BUILT_IN) - set(harness.asked("run", "b")[0].tools) == {"Bash", "BashOutput", "KillBash"}
    assert harness.asked("run", "c")[0].tools == [], "a plan alone is of no use"


async def test_a_run_of_the_first_version_reads_the_tools_of_that_version(store: Store) -> None:
    texts = {f"tools:{name}": tool(name) for name in BUILT_IN}
    harness = GraphHarness(store, texts=texts)
    playbook = Playbook.from_text(flow("a"), "flow.json")
    program = playbook.dialect.start(playbook.document, {}, 1, {})(None)
    asked: list[str] = []
    sent: Any = None
    while not asked:
        effect = program.send(sent)
        sent = None
        if isinstance(effect, All):
            asked = [branch.source for branch in effect.branches if isinstance(branch, ReadSource)]
    assert asked == [f"tools:{name}" for name in FIRST_BUILT_IN]
    row = await harness.run(flow("a"))
    assert (row.status, row.interpreter) == ("completed", Graph.interpreter)


async def test_a_node_that_needs_tools_fails_without_them(store: Store) -> None:
    harness = GraphHarness(
        store, run={"a": [ModelErrorLine]}, texts={"skill:s": skill("s", "t"), "tools:Read": tool("Read")}
    )
    row = await harness.run(flow("a", nodes={"a": {"skills": ["s"]}}))
    assert row.status == "failed"


def ModelErrorLine() -> ModelError:
    return ModelError("tools_unsupported", "It takes no tools.")


async def test_a_server_that_a_skill_brings_is_the_nodes_own(store: Store) -> None:
    server = {"type": "stdio", "command": "serve", "args": ["--x"], "env": {"KEY": "what it is for"}}
    listed = [{"name": "tracker.find", "description": "", "parameters": {"type": "object"}}]
    harness = GraphHarness(
        store,
        run={"a": {"calls": [{"tool": "tracker_find", "input": {"q": 1}}], "then": "Found."}},
        tools={"tracker.find": {"n": 1}},
        texts={"tools:tracker.*": listed},
    )
    node = {
        "skills": ["tracker"],
        "eval": [{"name": "e", "kind": "function", "rule": {"any_tool_called": ["tracker.find"]}}],
    }
    performed: list[CallTool] = []
    call_tool = harness.tools.perform

    async def keep(effect: CallTool, call: Call) -> Any:
        performed.append(effect)
        return await call_tool(effect, call)

    harness.tools.perform = keep  # type: ignore[method-assign]
    row = await harness.run(flow("a", "b", nodes={"a": node}, skills={"tracker": {"mcp": server}}))
    assert row.status == "completed", row.error
    assert harness.asked("run", "a")[0].tools == ["tracker_find"]
    assert harness.asked("run", "b")[0].tools == [], "node-scoped"
    (effect,) = performed
    assert effect.server is not None
    assert (effect.tool, effect.server.command, effect.server.env_names) == ("tracker.find", ("serve", "--x"), ("KEY",))
    assert "what it is for" not in str(effect), "values in env are descriptions"
    assert harness.texts.read.count("tools:tracker.*") == 1


async def test_a_server_that_does_not_come_up_is_warned_of(store: Store) -> None:
    harness = GraphHarness(store, texts={"tools:tracker.*": Failed("unreachable", "It did not start.")})
    row = await harness.run(
        flow("a", nodes={"a": {"skills": ["t"]}}, skills={"t": {"mcp": {"url": "https://x.example"}}})
    )
    assert row.status == "completed"
    harness = GraphHarness(store, texts={"tools:t.*": Failed("unreachable", "It did not start.")})
    row = await harness.run(
        flow("a", nodes={"a": {"skills": ["t"]}}, skills={"t": {"mcp": {"url": "https://x.example"}}})
    )
    (warning,) = [event for event in await harness.events(row.id) if event["type"] == "node:warning"]
    assert "It did not start." in warning["reason"]


# --- bounds --------------------------------------------------------------------------------------------------------


async def test_likely_mistakes_in_a_document_are_warnings_of_the_run(store: Store) -> None:
    judges = [{"name": f"j{n}", "kind": "judge", "rubric": "Good?"} for n in range(3)]
    for budget, warned in ((3, []), (2, ["playbook"])):
        harness = GraphHarness(store, ask=["VERDICT: yes\nREASONING: Yes."])
        row = await harness.run(flow("a", nodes={"a": {"eval": judges}}, judge_budget=budget))
        codes = [entry.event.code for entry in await harness.entries(row.id) if isinstance(entry.event, Warned)]
        assert codes == warned


async def test_judges_are_asked_together(store: Store) -> None:
    judges = [{"name": f"j{n}", "kind": "judge", "rubric": f"Good {n}?"} for n in range(3)]
    harness = GraphHarness(store, ask=["VERDICT: yes\nREASONING: Yes."])
    row = await harness.run(flow("a", nodes={"a": {"eval": judges}}))
    places = {entry.place.path for entry in await harness.entries(row.id) if type(entry.event).__name__ == "ModelAsked"}
    assert places == {"", "a#1.1[0]/", "a#1.1[1]/", "a#1.1[2]/"}


async def test_a_money_budget_needs_a_price(store: Store) -> None:
    node = {"eval": [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}], "retry": {"max": 3}}
    harness = GraphHarness(store, run={"a": {"y": 1}})
    row = await harness.run(flow("a", nodes={"a": node}, x_cuebook={"nodes": {"a": {"budget": {"money": 1}}}}))
    assert row.status == "failed"
    assert "the cost of its calls is unknown" in (await harness.results(row.id))["a"]["data"]["error"]


async def test_a_budget_may_end_at_a_judge(store: Store) -> None:
    node = {"eval": [{"name": "j", "kind": "judge", "rubric": "Good?"}]}
    harness = GraphHarness(store, ask=["VERDICT: yes\nREASONING: Yes."])
    text = flow("a", "b", nodes={"a": node}, x_cuebook={"nodes": {"a": {"budget": {"tokens": 1}}}})
    row = await harness.run(text)
    assert harness.calls == ["run a", "run b"]
    assert "budget of 1 tokens" in (await harness.results(row.id))["a"]["data"]["error"]


async def test_the_context_only_grows_at_its_end(store: Store) -> None:
    """As long as no node runs again, each context begins with the previous one."""
    harness = GraphHarness(store)
    await harness.run(flow("a", "b", "c", "d"))
    blocks = [asked.blocks for asked in harness.asked("run")]
    for before, after in itertools.pairwise(blocks):
        assert after[: len(before)] == before


async def test_a_long_run_is_not_slower_to_resume(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of many visits is replayed from its last checkpoint."""
    monkeypatch.setattr(state, "FIRST_CHECKPOINT", 16)
    edges = way("a b", "b a x1000")
    harness = GraphHarness(store)
    row = await harness.run(flow("a", "b", edges=edges), max_steps=75)
    assert row.status == "failed"
    claim = await store.claim(row.id, "other", harness.service.clock())
    began = [record for record in claim.records if record.kind == "StepStarted"]
    assert len(began) == 75 - 64
    assert len(await harness.way(row.id)) == 75


# --- replies that cannot be used -------------------------------------------------------------------------------


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    ("said", "times", "why"),
    [
        (Says("", finish="filter"), 1, "refused to answer"),
        (Says("I cannot help with that.", finish="filter"), 1, "I cannot help with that."),
        ("", 3, "reply was empty"),
        (" \n", 3, "reply was empty"),
    ],
)
async def test_a_refused_or_empty_reply_is_not_a_success(
    store: Store, said: Any, times: int, why: str, soft: bool
) -> None:
    harness = GraphHarness(store, run={"a": said})
    row = await harness.run(flow("a", nodes={"a": {"fail_soft": True} if soft else {}}))
    assert harness.calls == ["run a"] * times
    data = (await harness.results(row.id))["a"]["data"]
    assert why in data["error"]
    assert (row.status, data.get("fail_soft", False)) == (("completed", True) if soft else ("failed", False))


async def test_a_run_names_the_other_nodes_that_failed_in_one_sentence(store: Store) -> None:
    harness = GraphHarness(store, run={"a": ["", "", ""], "b": ["", "", ""]})
    row = await harness.run(flow("a", "b"))
    assert row.error is not None
    assert row.error.message == "Node a failed: The model's reply was empty (b failed as well)."


async def test_an_empty_reply_after_a_tool_call_is_asked_for_again(store: Store) -> None:
    run = {"a": [Says("", (ToolCall("1", "look"),)), "", "All seen."]}
    harness = GraphHarness(store, run=run, tools={"look": "seen"}, texts={"skill:s": skill("s", "look")})
    row = await harness.run(flow("a", nodes={"a": {"skills": ["s"]}}))
    assert (row.status, harness.calls) == ("completed", ["run a"] * 3)
    assert (await harness.results(row.id))["a"]["data"] == {"summary": "All seen."}


async def test_a_reply_that_is_cut_is_warned_of(store: Store) -> None:
    harness = GraphHarness(store, run={"a": Says("Once upon", finish="length")})
    row = await harness.run(flow("a"))
    assert row.status == "completed"
    assert [event["code"] for event in await harness.events(row.id) if event["type"] == "node:warning"] == ["reply_cut"]


async def test_a_refused_routing_question_takes_the_default_edge(store: Store) -> None:
    for edges, way_taken in ((way("a b when x", "a c"), ["a", "c"]), (way("a b when x", "a c when y"), ["a"])):
        harness = GraphHarness(store, route={"a": Says("No.", finish="filter")})
        row = await harness.run(flow("a", "b", "c", edges=edges))
        assert await harness.way(row.id) == way_taken
        assert harness.calls[:3] == ["run a", "route a", "route a"]
        assert row.status == ("completed" if "c" in way_taken else "failed")


async def test_an_edit_and_test_loop_continues_until_the_tests_pass(store: Store) -> None:
    """The same command fails in the same way each time; only the file changes."""
    turns: list[Any] = []
    for number in range(6):
        turns.append(Says("", (ToolCall(f"t{number}", "Bash", {"command": "make test"}),)))
        turns.append(Says("", (ToolCall(f"e{number}", "Edit", {"path": "a", "old": str(number), "new": "x"}),)))
    harness = GraphHarness(
        store,
        run={"a": [*turns, "Done."]},
        tools={"Bash": {"fails": "[exit code 1]"}, "Edit": "Replaced 1 occurrence in a."},
        texts={f"tools:{name}": tool(name) for name in ("Bash", "Edit")},
    )
    row = await harness.run(flow("a"))
    assert row.status == "completed", row.error
    assert len(harness.tools.called) == 12


# --- paths that are too long -------------------------------------------------------------------------------------


async def test_a_workflow_that_cannot_end_is_refused_before_anything_is_asked(store: Store) -> None:
    nodes = [f"n{number}" for number in range(201)]
    harness = GraphHarness(store)
    row = await harness.run(flow(*nodes))
    assert (row.status, harness.calls) == ("failed", [])
    assert row.error is not None
    assert (row.error.code, "at least 201 nodes, but the limit is 200" in row.error.message) == ("MAX_STEPS", True)
    (found,) = check(flow(*nodes), "flow.yml")
    assert (found.code, found.severity) == ("TOO_MANY_STEPS", "warning")
    assert check(flow(*nodes, x_cuebook={"max_steps": 201}), "flow.yml") == []
    assert (await harness.run(flow("a", "b", "c"), max_steps=3)).status == "completed"


async def test_a_workflow_that_may_end_is_run_up_to_the_limit(store: Store) -> None:
    """A shorter path, or an edge that is used up, may end it."""
    for edges in (way("a b", "b c when long", "b d when short", "c d"), way("a b", "b c x5", "c d")):
        harness = GraphHarness(store, route={"b": "c"})
        row = await harness.run(flow("a", "b", "c", "d", edges=edges), max_steps=3)
        assert (row.status, len(harness.asked("run"))) == ("failed", 3)
