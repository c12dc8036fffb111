"""A comparison below its surfaces: what the store keeps, how runs are judged, and who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service.comparisons import COMPARISON, Cell, Comparison
from cuebook.testing.cases import Called, Expected, Words
from cuebook.testing.comparison.driver import CostLimit, drive_all, unfinished
from cuebook.testing.comparison.plan import MOST_RUNS, models_in, plan, read_cases
from cuebook.testing.comparison.results import checked
from cuebook.testing.comparison.table import Share, table_of, table_of_runs
from cuebook.testing.expectations import Outcome, checks
from cuebook.testing.stage import ToolRequest
from tests.support.runtime import GATED, RuntimeHarness

ANN = Principal("ann", roles=frozenset({"runner", "approver"}))
BOB = Principal("bob", roles=frozenset({"viewer"}))
ROOT = Principal("root", roles=frozenset({"admin"}))
BREW = "# Brew\n\n## SYSTEM\n\nTalk of tea.\n\n## INPUTS\n\n- `kind` (string: green): Which tea\n\n## STEP 1: Brew\n\nBrew {{kind}} tea.\n"
CASES = """\
- name: green
- name: Bob's tea
  inputs: {kind: of Bob}
  expect:
    outputs: {"1": {contains: tea}}
    system: {contains: tea}
"""


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch)
    made.models = {"test": ScriptedModel(["Some tea."], cycle=True)}
    made.open(**{"access.runs": "owner"})
    yield made
    await made.service.close()


async def compared(runtime: RuntimeHarness, who: Principal, text: str = BREW, cases: str = CASES) -> Comparison:
    file = runtime.work / "cases.yaml"
    file.write_text(cases)
    playbook = Playbook.from_text(text, "brew.md" if text == BREW else "brew.yml")
    models = ["test/one", "test/two"] if text == BREW else []
    made = plan(runtime.wiring, [playbook], models, read_cases(file, playbook), file, 1)
    service = runtime.service
    comparison = await service.comparisons.add(made.comparison(service, who), who)
    left = unfinished(comparison, {}, who.tenant)
    assert await drive_all(service, made, comparison, {}, left, lambda cell, row, problem: None, who)
    return comparison


async def test_only_those_who_see_the_runs_see_the_comparison_and_it_goes_with_them(runtime: RuntimeHarness) -> None:
    service = runtime.service
    comparison = await compared(runtime, ANN)
    table = await table_of(service, comparison, ANN)
    assert [(one.label, one.verdicts["passed"]) for one in table.columns] == [("test/one", 2), ("test/two", 2)]
    runs = [one.run for one in table.results]
    for who, there in ((ANN, True), (ROOT, True), (BOB, False)):
        assert [one.id for one in await service.comparisons.listed(who)] == [comparison.id] * there
        if there:
            assert (await service.comparisons.get(comparison.id[:6], who)).id == comparison.id
            continue
        with pytest.raises(NotFound):
            await service.comparisons.get(comparison.id, who)
        with pytest.raises(NotFound):
            await table_of_runs(service, runs, who)
    kept = str(await service.kept(ANN.tenant, COMPARISON))
    assert "of Bob" not in kept  # inputs are only in the runs
    assert "Bob's tea" in kept

    await service.retention.erase(ROOT, inputs={"kind": "of Bob"})
    assert "Bob" not in str(await service.kept(ANN.tenant, COMPARISON))
    left = await table_of(service, await service.comparisons.get(comparison.id, ANN), ANN)
    assert [row.name for row in left.rows] == ["green"]
    assert unfinished(left.comparison or comparison, await service.comparisons.rows(comparison, ANN), ANN.tenant) == []
    await service.retention.erase(ROOT, owner="ann")
    assert await service.kept(ANN.tenant, COMPARISON) == {}


async def test_a_run_that_waits_is_judged_again_when_it_has_ended(runtime: RuntimeHarness) -> None:
    cases = (
        "- name: all\n  expect:\n    status: awaiting_approval\n    commands: {list: echo, write: tee}\n"
        "- name: wrong\n  expect:\n    status: awaiting_approval\n    commands: {count: wc}\n    approvals: [write]\n"
    )
    comparison = await compared(runtime, ANN, GATED, cases)
    table = await table_of(runtime.service, comparison, ANN)
    every, wrong = (row.groups[0].results[0] for row in table.rows)
    assert every.verdict == wrong.verdict == "waiting"  # although that was expected
    assert wrong.checks["steps that asked for approval"] == "passed"
    assert every.checks["command of step list"] == "passed"
    while waits := await runtime.service.inbox(ANN):  # each asks again if the other has changed its file
        await runtime.service.decide(waits[0].id, "approve", ANN)
        await runtime.service.drive(waits[0].run)
    again = await table_of(runtime.service, comparison, ANN)
    done = again.rows[0].groups[0].results[0]
    assert done.checks["command of step write"] == "passed"
    assert done.checks["status"] == "failed"
    assert done.verdict == "failed"


async def test_of_two_starts_of_a_cell_there_is_one_run(runtime: RuntimeHarness) -> None:
    playbook = Playbook.from_text(BREW, "brew.md")
    made = plan(runtime.wiring, [playbook], ["test/one"], read_cases(None, playbook), None, 3)
    service = runtime.service
    comparison = await service.comparisons.add(made.comparison(service, ANN), ANN)
    assert (await service.comparisons.same(made.mark(service), ANN)) == comparison
    assert await service.comparisons.same(made.mark(service), ROOT) is None
    cell = Cell(0, 0, 1)
    rows = await asyncio.gather(*(made.start(service, comparison, cell, ANN, None) for _ in range(3)))
    assert {row.id for row in rows} == {comparison.run_of(cell, ANN.tenant)}
    table = await table_of(service, comparison, ANN)
    assert [one.verdict for one in table.results] == ["not started", "unfinished", "not started"]
    assert table.columns[0].same_verdict == Share()
    with pytest.raises(BadInput, match="at most"):
        plan(runtime.wiring, [playbook], ["test/one"], read_cases(None, playbook), None, MOST_RUNS + 1)


async def test_money_is_set_aside_before_a_run_starts() -> None:
    limit = CostLimit(1.0, 0.1)
    first, second, unknown = Cell(0, 0, 0), Cell(0, 0, 1), Cell(0, 0, 2)
    assert await limit.take(first, 0.5) == 0.5
    waiting = asyncio.create_task(limit.take(second, 0.6))
    await asyncio.sleep(0)
    assert not waiting.done()
    await limit.pay(first, 0.2)
    assert await waiting == 0.6
    await limit.pay(second, 0.6)
    assert await limit.take(first, 0.5) is None  # and nothing is under way that could leave more
    assert await limit.take(unknown, None) == pytest.approx(0.1)


def test_what_the_journal_does_not_have_is_not_checked() -> None:
    expected = Expected(calls=(Called(1, "Read", {"path": "a"}),), commands={"one": Words(2, contains=("ls",))})
    lacking = Outcome(status="completed", unrecorded=frozenset(("calls",)))
    assert [checked(one, lacking)[0] for one in checks(expected)] == ["passed", "not checked", "failed"]
    called = Outcome(status="completed", calls=(ToolRequest("one", "Read", {"path": "a"}),))
    assert [checked(one, called)[0] for one in checks(expected)] == ["passed", "passed", "failed"]


def test_a_chain_of_models_is_one_model() -> None:
    assert models_in("a/x, b/y,a/x, c/z, then d/w") == ("a/x", "b/y", "c/z, then d/w")
