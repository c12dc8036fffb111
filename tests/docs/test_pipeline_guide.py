"""The guide to pipelines: its pipelines have no findings, and every command in it does what it says."""

from __future__ import annotations

import json
import re

import pytest

from cuebook.dialects.pipeline.check import check
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, Reader, blocks
from tests.support.model_server import ModelServer

EXAMPLE = DOCS.parent / "examples" / "release" / "release.yml"
GUIDE = DOCS / "guides" / "pipelines.md"
BLOCKS = blocks(GUIDE)
PIPELINES = [block for block in BLOCKS if block.language == "yaml" and "\nsteps:\n" in block.text]
(CASES,) = [block for block in BLOCKS if block.language == "yaml" and block.text.startswith("- name:")]
(PICTURE,) = [block for block in BLOCKS if block.language == "mermaid"]
each = pytest.mark.parametrize("block", PIPELINES, ids=[f"line {one.line}" for one in PIPELINES])


def name_of(block: Block) -> str:
    """The file in which its readers save it."""
    return "playbooks/gate.yml" if block.text.startswith("id: gate\n") else "count.yml"


@each
def test_nothing_is_wrong_with_a_pipeline_of_the_guide(block: Block) -> None:
    assert [one for one in check(block.text, "count.yml") if one.severity != "note"] == []


def test_the_guide_starts_small_and_covers_every_field() -> None:
    assert PIPELINES[0].text.count("\n") == 5
    whole = "".join(block.text for block in PIPELINES)
    for written in (
        *("args:", "$list.stdout", "${folder}", "condition:", "schema:", "approval: required", "postcondition:"),
        *("secret: true", "with:", "retry:", "on_error:", "timeout_ms:", "allowed_domains:", "command: llm"),
        "rollback_hint:",
    ):
        assert written in whole
    typed = {command.split()[1] for block in BLOCKS for command in block.commands}
    assert typed >= {
        "run",
        "validate",
        "graph",
        "plan",
        "decide",
        "audit",
        "test",
        "runtime",
        "inbox",
        "restart",
        "new",
    }


def test_the_picture_matches_the_example(cli: CommandLine) -> None:
    assert cli.call("graph", EXAMPLE, "--mermaid").out == PICTURE.text


@pytest.mark.timeout(300)  # dozens of processes
def test_every_command_of_the_guide_does_what_it_says(cli: CommandLine, server: ModelServer) -> None:
    server.script = lambda request: json.dumps({"sentence": "They are about tea."})
    (cli.work / "playbooks").mkdir()
    cli.environ["HOOK_KEY"] = "a-key-of-some-length"
    reader = Reader(cli, server)
    waiting: list[str] = []
    token = ""
    for block in BLOCKS:
        if block in PIPELINES:
            cli.write(name_of(block), block.text)
        if block == CASES:
            cli.write("count.test.yaml", block.text)
        for command in block.commands:
            before = set(cli.work.iterdir())
            waiting += reader.types_all([command.replace("TOKEN", token)])
            if command.startswith("cuebook runtime") and "TOKEN" not in command:
                token = token_of(cli)
            if command.startswith("cuebook run "):
                assert not {path.name for path in set(cli.work.iterdir()) - before} & {"report.json", "report.txt"}
    assert waiting == [
        "cuebook run count.yml",
        """cuebook runtime '{"action": "run", "pipeline": "gate", "argsJson": "{\\"word\\": \\"good morning\\"}"}'""",
        "cuebook run files.yml --cwd playbooks --max-output 1000",
    ]
    assert json.loads((cli.work / "report.json").read_text())["kept"] is True
    assert (cli.work / "said.txt").read_text() == "good morning"
    assert len(server.requests) == 3


def token_of(cli: CommandLine) -> str:
    """The token of the envelope that was printed last."""
    (wait,) = [one for one in cli.call("inbox", "--json").object if one["step"] == "say"]
    return str(wait["wait"])


def test_the_shortened_outputs_are_those_of_the_program(cli: CommandLine) -> None:
    (plan,) = [block for block in BLOCKS if block.language == "text" and block.text.startswith("send\n")]
    (envelope,) = [block for block in BLOCKS if block.language == "json"]
    (secret,) = [block for block in PIPELINES if "secret: true" in block.text]
    cli.write("count.yml", secret.text)
    assert plan.text in re.sub(
        r"  (not known|if|tries|on error|secrets):.*\n", "", cli.call("plan", "count.yml", "--token", "env:T").out
    )
    (cli.work / "playbooks").mkdir()
    cli.write("playbooks/gate.yml", next(one.text for one in PIPELINES if one.text.startswith("id: gate")))
    given = cli.call("runtime", '{"action": "run", "pipeline": "gate"}').object
    shown = json.loads(envelope.text)
    assert set(shown) == set(given)
    assert (shown["ok"], shown["status"], shown["output"]) == (given["ok"], given["status"], given["output"])
    assert shown["requiresApproval"]["prompt"] == given["requiresApproval"]["prompt"]
    assert shown["requiresApproval"]["items"][0].items() <= given["requiresApproval"]["items"][0].items()
    assert shown["steps"][0].items() <= given["steps"][0].items()
