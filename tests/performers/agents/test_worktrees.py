"""A coding agent in the worktree of its run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from cuebook.dialects.playbook import Playbook
from tests.performers.agents.harness import AgentHarness

pytestmark = pytest.mark.needs("git")

TASK = "# Task\n\n## STEP 1: Work\n\nDo this:\ndo: touch {work}/outside.txt\ndo: touch inside.txt\ndo: say Done.\n"


def commit_all(folder: Path) -> None:
    for line in ("init -q -b main", "-c user.name=S -c user.email=s@example.org commit -q --allow-empty -m first"):
        subprocess.run(("git", *line.split()), cwd=folder, check=True)


async def test_an_agent_can_change_its_worktree_and_nothing_else(harness: AgentHarness) -> None:
    commit_all(harness.work)
    harness.open()
    playbook = Playbook.from_text(TASK.format(work=harness.work), "task")
    settings = harness.wiring.settings(document=playbook.document)
    settings = msgspec.structs.replace(settings, options={"worktree": True})
    row = await harness.service.start(playbook, {}, settings)
    run = await harness.service.drive(row.id)
    assert run.status == "awaiting_approval", run.error
    assert sorted(one.name for one in harness.work.iterdir()) == [".git"]
    (wait,) = await harness.waits(run)
    assert wait.prompt == "Merge the changes in 1 file into main"
    assert "inside.txt" in wait.details["preview"]["changes"]
    run = await harness.decide(run, "approve")
    assert run.status == "completed", run.error
    assert sorted(one.name for one in harness.work.iterdir()) == [".git", "inside.txt"]


TWO = """\
id: two
name: Two
entry: start
model: acp/tester
nodes:
  start: {{name: Start, instruction: "do: touch both.txt"}}
  left: {{name: Left, instruction: "do: touch {work}/outside.txt\\ndo: touch left.txt\\ndo: say Done."}}
  right: {{name: Right, instruction: "do: touch right.txt\\ndo: say Done."}}
  end: {{name: End, instruction: "do: touch end.txt\\ndo: say Done."}}
edges:
  - {{from: start, to: left}}
  - {{from: start, to: right}}
  - {{from: left, to: end}}
  - {{from: right, to: end}}
x_cuebook:
  parallel: true
  nodes:
    left: {{workspace: worktree}}
    right: {{workspace: worktree}}
"""


async def test_agents_in_parallel_branches_have_worktrees_of_their_own(harness: AgentHarness) -> None:
    commit_all(harness.work)
    harness.open()
    playbook = Playbook.from_text(TWO.format(work=harness.work), "two.yml")
    row = await harness.service.start(playbook, {}, harness.wiring.settings(document=playbook.document))
    run = await harness.service.drive(row.id)
    assert run.status == "awaiting_approval", run.error
    view = await harness.service.view(run.id)
    diffs = {label: str(text) for label, text in view.outputs.items() if label.startswith("worktree.merge:")}
    assert "left.txt" in diffs["worktree.merge:left"]
    assert "right.txt" not in diffs["worktree.merge:left"]
    assert "right.txt" in diffs["worktree.merge:right"]
    assert sorted(one.name for one in harness.work.iterdir()) == [".git"]
    assert (await harness.decide(run, "approve")).status == "completed"
    assert sorted(one.name for one in harness.work.iterdir()) == [
        ".git",
        "both.txt",
        "end.txt",
        "left.txt",
        "right.txt",
    ]
