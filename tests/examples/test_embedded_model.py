"""The first run with nothing configured: the embedded model, the shipped example, the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.performers.models.weights import find_weights
from tests.docs.test_graph_guide import SHOP, WORKFLOWS
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks
from tests.support.sampling import many

SOME = WORKFLOWS[: many(1, len(WORKFLOWS))]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WEIGHTS = find_weights()

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(WEIGHTS is None, reason="the weights of the embedded model are not installed"),
]


def test_the_example_of_the_demo_runs(bare_cli: CommandLine) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    ran = bare_cli.call("run", EXAMPLES / "launch-note.playbook.md", "--max-tokens", "24", "--json")
    shown = ran.object
    assert (ran.code, shown["status"], shown["model"]) == (0, "completed", "local/smollm2-135m")
    assert all(text.strip() for text in shown["outputs"].values())
    assert len(shown["outputs"]) == 3
    assert shown["totals"]["cost"] == 0
    assert shown["totals"]["output_tokens"] <= 72


def test_the_playbook_of_the_readme_apologises(bare_cli: CommandLine) -> None:
    """The README says so, with its own inputs."""
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    (playbook,) = (block.text for block in blocks(DOCS.parent / "README.md") if block.language == "markdown")
    bare_cli.write("reply.playbook.md", playbook)
    shown = bare_cli.call("run", "reply.playbook.md", "--answer", "3=plain", "--unattended", "--json").object
    assert (shown["status"], shown["outputs"]["1"]) == ("completed", "complaint")
    assert "sorry" in shown["outputs"]["4a"] or "apolog" in shown["outputs"]["4a"]
    assert len(shown["outputs"]["4a"].split()) < 60, "it was asked for two sentences"


def test_a_workflow_of_ours_is_routed_to_its_end(bare_cli: CommandLine) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    ran = bare_cli.call("run", EXAMPLES / "sort-message.yml", "--events")
    assert ran.code == 0, ran.err
    told = [event for event in ran.events if event.get("type") in ("route", "workflow:end")]
    assert [event["type"] for event in told] == ["route", "workflow:end"]
    route, end = told
    assert route["asked"] is True
    assert route["to"] in ("apologise", "explain", "thank")
    assert end["status"] == "completed"
    assert end["results"][route["to"]]["data"]["reply"].strip()


@pytest.mark.parametrize("text", [one.text for one in SOME], ids=[f"line {one.line}" for one in SOME])
def test_a_workflow_of_the_guide_runs_to_its_end(bare_cli: CommandLine, text: str) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    bare_cli.write("shop.md", SHOP.text)
    bare_cli.write("mail.yml", text)
    ran = bare_cli.call("run", "mail.yml", "--max-tokens", "60", "--json")
    assert (ran.code, ran.object["status"]) == (0, "completed"), ran.err
    assert "its model does not support tools" in ran.err
    assert "failed:" not in ran.err, "what is done again without tools has not failed"


def test_the_starter_workflow_completes(bare_cli: CommandLine) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    assert bare_cli.call("new", "orders", "--dialect", "graph").code == 0
    ran = bare_cli.call("run", "orders.yml", "--max-tokens", "60", "--json")
    assert (ran.code, ran.object["status"]) == (0, "completed"), ran.err
