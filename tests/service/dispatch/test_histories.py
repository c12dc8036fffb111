"""Recorded histories of workflows are replayed: workers of this release continue what an earlier one began."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.workflow import RunWorkflow

HISTORIES = {path.stem: path.read_text() for path in (Path(__file__).parent / "histories").glob("*.json")}


@pytest.mark.parametrize("name", sorted(HISTORIES))
async def test_a_recorded_history_can_be_continued(name: str) -> None:
    history = WorkflowHistory.from_json(name, HISTORIES[name])
    await Replayer(workflows=[RunWorkflow]).replay_workflow(history)


async def test_a_workflow_that_does_something_else_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "ACTIVATE", "something-else")
    history = WorkflowHistory.from_json("cancelled", HISTORIES["cancelled"])
    with pytest.raises(Exception, match="something-else"):
        await Replayer(workflows=[RunWorkflow]).replay_workflow(history)
