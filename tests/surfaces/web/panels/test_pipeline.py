"""A pipeline's page: its timeline and evidence, live and opened later; and the example that comes with Cuebook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.dom import LivePage
from tests.surfaces.web.panels.test_program import screen
from tests.surfaces.web.served_app import ServedApp, Sse

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "newcomers-note.yml"
LONG = "a line that says little\n" * 400
HELD = f"""\
name: Held
steps:
  - {{id: first, name: First, command: cli echo one, effect: read}}
  - id: held
    name: Held
    command: cli sh -c 'until test -s go; do sleep 0.02; done; cat go >&2; exit 3'
    effect: read
  - {{id: asked, name: Asked, command: cli tee made.txt, stdin: "{LONG[:23]}", approval: required}}
  - {{id: last, name: Last, command: cli echo last, effect: read}}
"""


@pytest.fixture
async def careful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    """The web app without a policy file."""
    made = ServedApp(tmp_path, monkeypatch, policy="")
    yield made
    await made.stop()


async def opened(web: ServedApp, text: str, step: str, status: str) -> tuple[str, LivePage, asyncio.Task[list[Sse]]]:
    """A run that has reached a step, its page at that moment, and a reader of its stream."""
    await web.serve()
    run = await web.begin(playbook=web.book("held.yml", text))
    async with asyncio.timeout(30):
        while (first := await screen(web, run)).by_id(f"head-{step}") is None or (
            first[f"head-{step}"].attributes["data-status"] != status
        ):
            await asyncio.sleep(0.02)
    return run, first, asyncio.create_task(web.all_events(run, first.after))


def statuses(page: LivePage, step: str, number: int) -> set[str | None]:
    """The status of a step in each place of a page."""
    bar = page["timeline"].find("div", class_="share")[number]
    return {one.attributes["data-status"] for one in (page[f"head-{step}"], page[f"evidence-{number}"], bar)}


@pytest.mark.parametrize(("how", "status"), [("cancel", "cancelled"), ("fail", "failed")])
async def test_an_ended_run_looks_the_same_live_and_reopened(web: ServedApp, how: str, status: str) -> None:
    run, first, reading = await opened(web, HELD, "held", "running")
    assert statuses(first, "held", 1) == {"running"}
    assert first["timeline"].find("span", class_="amount")[1].words == "running"
    if how == "cancel":
        await web.post(f"/api/runs/{run}/cancel", 202)
    else:
        (web.work / "go").write_text(f"{LONG}why it failed\n")
    live = LivePage(first.html, await reading)
    last = await screen(web, run)
    assert last["run-status"].attributes["data-status"] == status
    assert live.main == last.main
    assert statuses(last, "held", 1) == {status}
    assert {last[f"evidence-{number}"].attributes["data-status"] for number in (2, 3)} == {"skipped"}
    if how == "fail":
        assert last["head-held"].find("p", class_="reason")[0].text.endswith("says little\nwhy it failed")
        assert last["text-held"].find("pre", class_="raw errors")[0].text == f"{LONG}why it failed\n"


async def test_a_step_that_was_denied_has_not_failed(web: ServedApp) -> None:
    text = HELD.replace("until test -s go; do sleep 0.02; done; cat go >&2; exit 3", "true")
    run, first, reading = await opened(web, text, "asked", "awaiting_approval")
    wait = await web.waiting(run)
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="deny", reason="no")
    live, last = LivePage(first.html, await reading), await screen(web, run)
    assert live.main == last.main
    assert statuses(last, "asked", 2) == {"denied"}
    assert "denied" in last["head-asked"].words


async def test_the_example_runs_with_nothing_configured(
    careful: ServedApp,
) -> None:
    await careful.model(ScriptedModel(['{"kind": "a program"}'])).serve()
    book = careful.book(EXAMPLE.name, EXAMPLE.read_text(encoding="utf-8"))
    (careful.work / "lamp.py").touch()
    run = await careful.begin(playbook=book)
    wait = await careful.waiting(run)
    page = await screen(careful, run)
    assert "This looks like a program." in page[f"wait-{wait['wait']}"].text
    assert not careful.made("newcomers.md")
    await careful.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve")
    await careful.until(run, "completed")
    note = (careful.work / "newcomers.md").read_text(encoding="utf-8")
    assert note.startswith("# For newcomers\n\nThis looks like a program.")
    assert "lamp.py" in note
    assert (await careful.client.get(f"/api/runs/{run}/artifact")).text == note
    assert "postcondition: holds" in (await screen(careful, run))["evidence-2"].words


LOOP = f"""\
name: Held
steps:
  - id: each
    for_each: {list(range(24))}
    concurrency: 4
    on_error: continue
    steps:
      - {{id: tried, command: "cli sh -c 'test $$0 != 7' ${{item}}", effect: read}}
  - {{id: held, command: "cli sh -c 'until test -e go; do sleep 0.02; done'", effect: read}}
"""


async def test_a_long_loop_is_counted_with_its_failures_first_and_the_rest_folded(web: ServedApp) -> None:
    run, first, reading = await opened(web, LOOP, "held", "running")
    (web.work / "go").touch()
    live = LivePage(first.html, await reading)
    last = await screen(web, run)
    assert live.main == last.main
    assert "24 items: 1 failed, 23 completed" in last["items"].words
    assert "each[7]" in last["items"].words
    assert (
        len(last["timeline"].find("div", class_="share")) == 4
    )  # the loop, the item that failed, its step, and the last
    assert len([one for one in last["cards"].find("article") if "data-item" in one.attributes]) == 48
    assert last["evidence-1"].attributes["data-status"] == "failed"  # of the step inside, in all items together
