"""The guide to workflow graphs: each of its workflows runs, and so does every command in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.graph.check import check
from cuebook.testing import MemoryStore, ScriptedModel
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Reader, blocks
from tests.support.model_server import ModelServer
from tests.surfaces.cli.dialects.test_graph_runs import SORT

BLOCKS = blocks(DOCS / "guides" / "graphs.md")
WORKFLOWS = [block for block in BLOCKS if block.language == "yaml" and block.text.startswith("id:")]
(CASES,) = [block for block in BLOCKS if block.language == "yaml" and block.text.startswith("- name:")]
(POLICY,) = [block for block in BLOCKS if block.language == "toml"]
(SHOP,) = [block for block in BLOCKS if block.language == "text"]
each = pytest.mark.parametrize("text", [one.text for one in WORKFLOWS], ids=[f"line {one.line}" for one in WORKFLOWS])

SAYS = {
    "what kind of message": '{"kind": "complaint"}',
    "fits the kind": '{"text": "We are sorry."}',
    "can be sent": '{"ready": true}',
}


def said(prompt: str) -> str:
    """A model that does what it is asked to, is satisfied, and takes the first edge."""
    if prompt.startswith("Which of these conditions"):
        first = prompt.split("\n- ")[1].partition(":")[0]
        return json.dumps({"choice": "none" if "not ready" in prompt else first, "reason": "It holds."})
    if prompt.startswith("Write one that does this"):
        return f"```yaml\n{SORT}```"
    return next((reply for words, reply in SAYS.items() if words in prompt), "Dear customer, thank you.")


def answered(request: dict[str, Any]) -> str:
    return said(str(request["messages"][-1]["content"]))


@each
def test_a_workflow_of_the_guide_runs_to_its_end(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "shop.md").write_text(SHOP.text)
    (work / "mail.yml").write_text(text)
    model = ScriptedModel(lambda asked: said(asked.messages[-1].text))
    result = cuebook.run("mail.yml", model=model, store=MemoryStore())
    assert (result.status, result.error, result.warnings) == ("completed", None, ())
    assert set(result.values) == {step.label for step in result.steps if step.status == "completed"}
    assert set(result.values) <= set(GRAPH.parse(text, "mail.yml").nodes)


@each
def test_nothing_is_wrong_with_a_workflow_of_the_guide(text: str) -> None:
    assert [one for one in check(text, "mail.yml") if one.severity != "note"] == []


def test_the_guide_covers_every_field() -> None:
    assert len(WORKFLOWS) >= 5
    whole = "".join(block.text for block in WORKFLOWS)
    for key in (
        "output:",
        "eval:",
        "retry:",
        "requires:",
        "skills:",
        "rules:",
        "context:",
        "max_iterations:",
        "guards:",
        "fan_out:",
        "parallel:",
    ):
        assert key in whole


@pytest.mark.timeout(300)  # dozens of processes
def test_every_command_of_the_guide_does_what_it_says(cli: CommandLine, server: ModelServer) -> None:
    server.script = answered
    cli.write("shop.md", SHOP.text)
    reader = Reader(cli, server)
    waiting: list[str] = []
    for block in BLOCKS:
        if block in WORKFLOWS:
            cli.write("mail.yml", block.text)
        if block == CASES:
            cli.write("mail.test.yaml", block.text)
        waiting += reader.types_all(block.commands)
    assert waiting == ["cuebook run mail.yml --break write"]
    assert (cli.work / "drafted.yml").read_text() == SORT
    assert (cli.work / "orders.yml").is_file()


def test_a_node_works_alone_under_the_policy_of_the_guide(cli: CommandLine, server: ModelServer) -> None:
    (cli.config.parent / "policy.toml").write_text(POLICY.text)
    flow = {"id": "f", "name": "F", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Do it."}}, "edges": []}
    script = 'for one in 1 2; do echo "$one" >> made.txt; done; cat < made.txt | wc -l'
    server.replies = [
        {"tool": "Bash", "arguments": {"command": script}},
        {"tool": "Edit", "arguments": {"path": "made.txt", "old": "2", "new": "two"}},
        {"tool": "Write", "arguments": {"path": "notes/done.txt", "content": "Done."}},
        {"tool": "Bash", "arguments": {"command": "git push"}},
        {"tool": "Write", "arguments": {"path": ".git/hooks/x", "content": "Done."}},
        "Done.",
    ]
    ran = cli.call("run", cli.write("f.json", json.dumps(flow)))
    assert ran.code == 0, ran.err
    assert (cli.work / "made.txt").read_text() == "1\ntwo\n"
    assert (cli.work / "notes" / "done.txt").read_text() == "Done."
    told = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    assert [("policy denies" in said) for said in told] == [False, False, False, True, True]
    assert not (cli.work / ".git").exists()
