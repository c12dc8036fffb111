"""The guide to Markdown playbooks: each of its playbooks runs, and so does every command in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import cuebook
from cuebook.dialects.markdown.check import check
from cuebook.dialects.markdown.parse import parse
from cuebook.testing import MemoryStore, ScriptedModel
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, Reader, blocks
from tests.support.model_server import ModelServer

STYLE = 'Write in plain words. Never use the words "unfortunately" and "policy".'
SAVED = {"prompts/house-style.md": STYLE, "manuals/lamp.md": "# The lamp\n"}
BLOCKS = blocks(DOCS / "guides" / "markdown.md")
PLAYBOOKS = [block for block in BLOCKS if (block.language, block.ticks) == ("markdown", 4)]
PARTS = [block for block in BLOCKS if (block.language, block.ticks) == ("markdown", 3)]
WHOLE = PLAYBOOKS[-1].text
each = pytest.mark.parametrize("text", [one.text for one in PLAYBOOKS], ids=[f"line {one.line}" for one in PLAYBOOKS])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the guide has its readers save."""
    work = tmp_path / "work"
    for name, text in SAVED.items():
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(work)
    return work


def test_the_guide_has_its_playbooks_and_parts() -> None:
    assert len(PLAYBOOKS) >= 8
    assert len(PARTS) == 2
    assert [block.text for block in BLOCKS if block.language == "text"] == [f"{STYLE}\n"]
    for written in ("@output(", "@elicit(", "@prompt(", "@tool(", "```if ", "```elif ", "```else```", "## ARTIFACTS"):
        assert written in WHOLE


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_playbook_is_parsed_as_intended(part: Block) -> None:
    (step,) = parse(f"# Reply\n\n{part.text.replace('STEP 3', 'STEP 1')}", "guide").steps
    assert step.prompt or step.tool
    assert "@" not in step.content


def test_the_parts_go_into_the_playbook_that_was_saved_last() -> None:
    """The guide has its readers change a step and add one, and the result has no findings."""
    changed, added = PARTS
    saved = next(one.text for one in reversed(PLAYBOOKS) if one.line < changed.line)
    told = "## STEP 3: Answer\n\nA customer wrote:\n\n{{message}}\n"
    assert saved.count(told) == 1
    assert check(f"{saved.replace(told, changed.text)}\n{added.text}", "reply.playbook.md") == []


@each
@pytest.mark.usefixtures("folder")
def test_a_playbook_of_the_guide_completes_unattended(text: str) -> None:
    inputs = {"message": "Hello"} if "`message` (text):" in text else {}
    result = cuebook.run(
        text, inputs, model=ScriptedModel(lambda asked: "praise"), store=MemoryStore(), unattended=True
    )
    assert (result.status, result.error) == ("completed", None)


def test_the_whole_playbook_takes_the_described_path(folder: Path) -> None:
    (folder / "reply.playbook.md").write_text(WHOLE)
    model = ScriptedModel(["Complaint.", "We are sorry.", "Your lamp"])
    result = cuebook.run(
        "reply.playbook.md", model=model, store=MemoryStore(), answers={"2": "plain", "4a": "a refund", "5": "yes"}
    )
    assert (result.status, result.warnings) == ("completed", ())
    ran = [step.label for step in result.steps if step.status == "completed"]
    assert ran == ["1", "2", "3", "4", "4a", "5", "6", "6a"]
    assert result.values["found"] == "manuals/lamp.md"
    assert (result.values["reply"], result.values["released"]) == ("We are sorry.", "yes")
    reply = model.requests[1].messages
    assert reply[-1].text.startswith(f"{STYLE}\n\nA customer of Lamps and More wrote:")
    assert reply[-1].text.endswith(
        "Write a plain reply of at most 3 sentences that apologises and offers what the person in charge said."
    )
    assert "a refund" in reply[0].text
    assert result.artifact is not None
    assert (result.artifact.type, result.artifact.content) == ("markdown", "Your lamp")


def test_a_reply_that_is_not_released_gets_no_subject_line(folder: Path) -> None:
    (folder / "reply.playbook.md").write_text(WHOLE)
    model = ScriptedModel(["question", "Turn it on."])
    result = cuebook.run("reply.playbook.md", model=model, store=MemoryStore(), answers={"2": "warm", "5": "no"})
    assert result.ok
    assert [step.status for step in result.steps if step.label == "6"] == ["skipped"]
    assert "manuals/lamp.md" in model.requests[1].messages[-1].text
    assert result.artifact is not None
    assert result.artifact.content == "no"


# --- the commands ---


@pytest.mark.timeout(400)  # dozens of processes
def test_every_command_of_the_guide_does_what_it_says(cli: CommandLine, server: ModelServer) -> None:
    cli.write("mail.txt", "The lamp is too bright.")
    for name, text in SAVED.items():
        (cli.work / name).parent.mkdir()
        cli.write(name, text)
    reader = Reader(cli, server)
    waiting: list[str] = []
    for block in BLOCKS:
        if block in PLAYBOOKS:
            cli.write("reply.playbook.md", block.text)
        waiting += reader.types_all(block.commands)
    assert waiting == [
        "cuebook run reply.playbook.md --max-tokens 60 --no-ask",
        "cuebook answer RUN warm",
        "cuebook run reply.playbook.md --max-tokens 60 --break 1",
        "cuebook resume RUN --set kind=praise",
    ]
