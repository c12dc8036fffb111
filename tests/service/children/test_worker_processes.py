"""A worker is killed while a child is at work or waits: another one continues parent and child, and repeats nothing that ended."""

from __future__ import annotations

import signal
from pathlib import Path

from cuebook.dialects.playbook import read
from tests.service.test_worker_processes import (
    Workers,
    asked,
    driver_of,
    ended,
    lines,
    runtime,
    until,
    workers,
)
from tests.support.programs import eventually
from tests.support.runtime import RuntimeHarness

__all__ = ["runtime", "workers"]

KID = """
name: Kid
steps:
  - id: first
    command: cli sh -c 'echo first >> log'
  - id: slow
    command: cli sh -c 'echo slow >> log; until test -e go; do sleep 0.05; done'
    effect: read
  - id: gated
    command: cli sh -c 'echo gated >> log'
    approval: required
"""
PARENT = """
name: Parent
steps:
  - id: before
    command: cli sh -c 'echo before >> log'
  - id: kid
    playbook: kid.yml
  - id: after
    command: cli sh -c 'echo after >> log'
"""


def written(runtime: RuntimeHarness) -> Path:
    (runtime.work / "kid.yml").write_text(KID.replace("echo slow >> log; ", ""))
    path = runtime.work / "parent.yml"
    path.write_text(PARENT)
    return path


async def test_a_killed_worker_loses_neither_parent_nor_child(runtime: RuntimeHarness, workers: Workers) -> None:
    workers.hire()
    workers.hire()
    path = written(runtime)
    book = read(PARENT, path.name, path=path)
    settings = runtime.wiring.settings(folder=path.parent, document=book.document)
    run = (await runtime.service.start(book, {}, settings)).id

    async def begun() -> bool:
        """Whether the outcome of the child's first step, which may not be repeated, is recorded."""
        children = await runtime.service.children(run)
        steps = await runtime.service.steps(children[0].id) if children else []
        return any((step.label, step.status) == ("first", "completed") for step in steps)

    await eventually(begun, 90)
    assert lines(runtime) == ["before", "first"]
    driver_of(run, workers, runtime).send_signal(signal.SIGKILL)
    (runtime.work / "go").touch()
    await until(runtime, run, lambda row: row.status == "awaiting_approval")
    waiting = await asked(runtime, run)
    (child,) = await runtime.service.children(run)
    assert child.status == "awaiting_approval"
    assert waiting["requiresApproval"]["kind"] != "retry", "a step that only reads is repeated without a question"
    await runtime.resume(waiting, True, waitMs=0)
    assert await ended(runtime, run) == "completed"
    assert (await runtime.service.row(child.id)).status == "completed"
    assert lines(runtime) == ["before", "first", "gated", "after"]
    for one in (run, child.id):
        assert (await runtime.service.verify(one)).problem == ""
