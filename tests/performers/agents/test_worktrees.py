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
