"""Rollbacks of steps inside loops, branches and reactions: offered per item in the reverse order in which they were done."""

from __future__ import annotations

from cuebook.dialects.pipeline.parse import parse
from cuebook.kernel.events import Performing, StepFinished
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import later, same_on_replay
from tests.dialects.pipeline.run.test_undo import decided, ended

ORDERS = """\
name: Orders
steps:
  - id: open
    command: cli touch opened
    rollback: cli rm opened
  - id: book
    for_each: [A, B, C]
    as: order
    key: ${order}
    steps:
      - id: number
        command: cli printf %s7 ${order}
      - id: reserve
        command: cli touch reserved-${number.stdout}
        rollback: cli rm reserved-${number.stdout}
      - id: charge
        command: cli sh -c 'test ! -e broken-'$$0'; touch charged-'$$0 ${order}
        rollback: cli rm charged-${order}
        rollback_hint: Refund ${order}.
  - id: announce
    parallel: all
    branches:
      mail:
        - id: send
          command: cli sh -c 'echo 42; touch sent'
          rollback: cli rm sent no-such-${send.stdout}
      log:
        - id: write
          command: cli touch written
          approval: required
          on_denied:
            - id: instead
              command: cli touch instead
              rollback: cli rm instead
  - id: last
    command: cli rm go
"""


async def ran(harness: PipelineHarness, run: str) -> list[str]:
    return [entry.place.step for entry in await harness.entries(run) if isinstance(entry.event, Performing)]


async def test_every_place_is_undone_in_reverse_order_and_a_retry_does_it_again(harness: PipelineHarness) -> None:
    row = await ended(harness, ORDERS, ("write", "deny"))
    offers = [
        *("undo.instead", "undo.send"),
        *(
            "undo.charge[C]",
            "undo.reserve[C]",
            "undo.charge[B]",
            "undo.reserve[B]",
            "undo.charge[A]",
            "undo.reserve[A]",
        ),
        "undo.open",
    ]
    kept = {"undo.charge[B]", "undo.reserve[B]", "undo.reserve[A]", "undo.open"}
    wait = await harness.wait(row.id)
    assert "Step last failed" in str(wait.details["preview"]) + wait.prompt
    row = await decided(harness, row, *((label, "deny" if label in kept else "approve") for label in offers))
    assert row.status == "failed"
    assert row.error is not None
    assert "Undone: instead, charge[C], reserve[C], charge[A]. Not undone: send (failed: " in row.error.message
    assert "charge[B]: Refund ${order}." in row.error.fix
    left = sorted(path.name for path in harness.workspace.iterdir())
    assert left == ["charged-B", "opened", "reserved-A7", "reserved-B7"], (
        left
    )  # the rollback of send fails after its work
    await same_on_replay(harness, row.id)

    before = len(await ran(harness, row.id))
    (harness.workspace / "go").touch()
    await harness.service.retry(row.id)
    row = await decided(harness, await harness.service.drive(row.id), ("write", "approve"))
    assert row.status == "completed", row.error
    again = (await ran(harness, row.id))[before:]
    assert sorted(again) == [
        "charge[A]",
        "charge[C]",
        "last",
        "reserve[C]",
        "send",
        "write",
    ]  # B is kept; the rest follows
    assert (await harness.service.verify(row.id)).broken_at is None
    await same_on_replay(harness, row.id)


ITEMS = """\
name: Items
steps:
  - id: make
    for_each: [a, b, c, d]
    key: ${item}
    command: cli sh -c 'touch $$0; test ! -e stop-$$0' ${item}
    approval: required
    rollback: cli rm ${item}
"""


async def test_a_failed_item_is_undone_and_repeated_while_the_others_are_kept(harness: PipelineHarness) -> None:
    text = ITEMS.replace("    approval: required\n", "").replace("    key", "    concurrency: 4\n    key")
    (harness.workspace / "stop-b").touch()
    harness.pipeline = parse(text, "items.yml")
    row = await harness.do()
    wait = await harness.wait(row.id)
    assert wait.details["preview"]["item"] in wait.place.step
    fates = {"undo.make[b]": "approve", "undo.make[d]": "approve"}
    offered = []
    while row.status == "awaiting_approval":
        wait = await harness.wait(row.id)
        offered.append(wait.place.step)
        await harness.service.decide(wait.id, fates.get(wait.place.step, "deny"))  # type: ignore[arg-type]
        row = await harness.service.drive(row.id)
    finished = [one.label for one in await harness.events(row.id, StepFinished) if one.label.startswith("make[")]
    assert offered == [f"undo.{label}" for label in reversed(finished)]
    assert row.error is not None
    assert sorted(row.error.details["undone"]) == ["make[b]", "make[d]"]
    assert sorted(path.name for path in harness.workspace.iterdir()) == ["a", "c", "stop-b"]
    (harness.workspace / "stop-b").unlink()
    before = len(await ran(harness, row.id))
    await harness.service.retry(row.id)
    row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert sorted((await ran(harness, row.id))[before:]) == ["make[b]", "make[d]"]
    await same_on_replay(harness, row.id)


async def test_a_cancelled_loop_offers_to_undo_the_items_that_were_done(harness: PipelineHarness) -> None:
    row = await ended(harness, ITEMS, *((f"make[{item}]", "approve") for item in "ab"))
    assert row.status == "awaiting_approval"
    await harness.service.cancel(row.id, "Enough")
    row = await harness.service.drive(row.id)
    row = await decided(harness, row, ("undo.make[b]", "approve"), ("undo.make[a]", "approve"))
    assert row.status == "cancelled"
    assert row.error is not None
    assert "Undone: make[b], make[a]." in row.error.message
    assert not list(harness.workspace.iterdir())
    await harness.service.retry(row.id)
    row = await decided(
        harness, await harness.service.drive(row.id), *((f"make[{item}]", "approve") for item in "abcd")
    )
    assert row.status == "completed", row.error
    assert sorted(path.name for path in harness.workspace.iterdir()) == ["a", "b", "c", "d"]
    await same_on_replay(harness, row.id)


async def test_branches_that_lost_a_race_are_undone_too(harness: PipelineHarness) -> None:
    row = await ended(
        harness,
        """\
name: Race
steps:
  - id: race
    parallel: any
    branches:
      slow:
        - {id: first, command: cli touch first, rollback: cli rm first}
        - {id: asks, command: cli touch asked, approval: required}
      fast:
        - {id: until, command: cli test -e first, effect: read, wait: {until: "$until.exit_code == 0", every: 1s, timeout: 1h}}
        - {id: second, command: cli touch second, approval: required, rollback: cli rm second}
  - {id: stop, command: cli false}
""",
    )
    waits = {one.place.step: one for one in await harness.store.waits(run=row.id)}
    while "second" not in waits:
        row = await later(harness, 2, row.id)
        waits = {one.place.step: one for one in await harness.store.waits(run=row.id)}
    await harness.service.decide(waits["second"].id, "approve")
    row = await harness.service.drive(row.id)
    row = await decided(harness, row, ("undo.second", "approve"), ("undo.first", "approve"))
    assert row.status == "failed"
    assert not list(harness.workspace.iterdir())
    await same_on_replay(harness, row.id)
