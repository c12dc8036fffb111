"""The page of a run with its own worktree shows what it changed, before and after the merge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cuebook.kernel.context import ToolCall
from cuebook.performers.models.scripted import Says, ScriptedModel
from tests.surfaces.web.served_app import ServedApp

pytestmark = pytest.mark.needs("git")

GRAPH = """\
id: one
name: One
entry: work
nodes:
  work: {name: Work, instruction: Do it.}
edges: []
x_cuebook:
  workspace: worktree
"""
POLICY = '[files]\nallow = ["write:**"]\n\n[tools]\nallow = ["Write"]\n'


def commit_all(folder: Path) -> None:
    for line in ("init -q -b main", "add -A", "-c user.name=S -c user.email=s@example.org commit -q -m first"):
        subprocess.run(("git", *line.split()), cwd=folder, check=True)


async def test_the_page_shows_the_changes_and_merges_them_after_the_approval(web: ServedApp) -> None:
    web.rule(POLICY)
    book = web.book("one.yml", GRAPH)
    commit_all(web.work)
    written = ToolCall("call-1", "Write", {"path": "made.txt", "content": "made by <the model>\n"})
    await web.model(ScriptedModel([Says("", calls=(written,)), Says("Done.")])).serve()
    run = await web.begin(playbook=book)
    wait = await web.waiting(run)
    assert wait["prompt"] == "Merge the changes in 1 file into main"
    assert not (web.work / "made.txt").exists()
    page = (await web.client.get(f"/runs/{run}")).text
    assert page.count("+made by &lt;the model&gt;") >= 2, "in the step and at the approval"
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve")
    await web.until(run, "completed")
    assert (web.work / "made.txt").read_text() == "made by <the model>\n"
    page = (await web.client.get(f"/runs/{run}")).text
    assert "+made by &lt;the model&gt;" in page
    assert "Merged into main." in page
