"""A connection that is cut at any event continues exactly there: nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.performers.models.model import ModelError, Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from cuebook.surfaces.web.live.watch import opened
from tests.support.sampling import some
from tests.surfaces.web.served_app import Dripping, ServedApp, Sse
from tests.surfaces.web.stream_reader import Reader

MARKDOWN = """\
# Trip

## INPUTS

- `place` (string: Ghent): Where to

## STEP 1: Plan

Plan a day in {{place}}.

@output(plan)

## STEP 2: Ask

@elicit(select, "How?", "by train", "by bike")

Go there as was said.

@output(way)

## STEP 3: Choose

```if place == "Ghent"```

### STEP 3a: Stay

Find a bed.

### STEP 3b: Eat

Find a table.

```else```

### STEP 3c: Leave

Go home.

```endif```

## STEP 4: Say

@elicit(confirm, "Is that all?")
"""

GRAPH = """\
id: views
name: Views
description: Three views at once
entry: frame
inputs:
  decision: {type: string, description: What, required: true}
nodes:
  frame: {name: Frame, instruction: State the decision.}
  cost: {name: Cost, instruction: What does it cost.}
  risk: {name: Risk, instruction: What can go wrong.}
  advise: {name: Advise, instruction: Weigh.}
edges:
  - {from: frame, to: cost}
  - {from: cost, to: risk}
  - {from: risk, to: advise}
x_cuebook:
  fan_out:
    - {node: frame, to: [cost, risk], join: advise, max_concurrency: 2}
  nodes:
    advise: {approval: "Shall they be weighed?"}
"""

PIPELINE = """\
name: Gated
steps:
  - {id: list, command: "cli echo one two", effect: read}
  - {id: write, command: "cli tee made.txt", stdin: $list.stdout, approval: required}
  - {id: count, command: "cli wc -w made.txt", effect: read}
"""

PLAYBOOKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "markdown": ("trip.md", MARKDOWN, {"breakpoints": "1,3a"}),
    "graph": ("views.yml", GRAPH, {"inputs": {"decision": "move"}}),
    "pipeline": ("gated.yml", PIPELINE, {}),
}


def says(request: Request) -> Says:
    """A text of some length for each request, in small pieces."""
    return Says(f"You asked for {len(request.messages[-1].text)} characters. " * 12, chunk=7)


async def attend(web: ServedApp, run: str) -> None:
    """The user: answers, approves and resumes until the run has ended."""
    while True:
        message = await web.until(run, "paused", "awaiting_input", "awaiting_approval", "completed", "failed")
        if message["status"] in ("completed", "failed"):
            return
        for wait in message["waits"]:
            match wait["kind"]:
                case "question":
                    value = wait["options"][0] if wait["options"] else "yes"
                    await web.post(f"/api/waits/{wait['wait']}/answer", None, value=value)
                case "approval":
                    await web.post(f"/api/waits/{wait['wait']}/decide", None, decision="approve")
                case _:
                    await web.post(f"/api/runs/{run}/resume")
        await asyncio.sleep(0.05)


async def recorded(web: ServedApp, run: str) -> list[Sse]:
    """The stream as it arrived during the run."""
    attending = asyncio.create_task(attend(web, run))
    events = await web.all_events(run)
    await attending
    return events


@pytest.mark.parametrize("dialect", list(PLAYBOOKS))
async def test_a_stream_cut_at_any_event_continues_exactly_there(web: ServedApp, dialect: str) -> None:
    name, text, fields = PLAYBOOKS[dialect]
    await web.model(Dripping(ScriptedModel(says))).serve()
    run = await web.begin(playbook=web.book(name, text), **fields)
    live = await recorded(web, run)
    assert live[-1].event == "status"
    assert {"markdown": "elicitation", "graph": "approval", "pipeline": "approval"}[dialect] in {e.event for e in live}
    assert len({event.id for event in live}) == len(live)
    whole = Reader(live).seen
    for number, event in some(list(enumerate(live)), 20):
        rest = await web.all_events(run, event.id)
        assert Reader(live[: number + 1] + rest).seen == whole, event
    assert Reader(await web.all_events(run)).seen == whole
    assert await web.all_events(run, live[-1].id) == []


@pytest.mark.parametrize("dialect", ["markdown", "graph"])
async def test_readers_that_reconnect_during_a_text_lose_nothing(web: ServedApp, dialect: str) -> None:
    name, text, fields = PLAYBOOKS[dialect]
    gate = asyncio.Event()

    def held(request: Request) -> Says:
        return Says(f"For {len(request.messages[-1].text)}: " + "word " * 60, chunk=5, wait_for=gate, pause_at=150)

    await web.model(ScriptedModel(held)).serve()
    run = await web.begin(playbook=web.book(name, text), **fields)
    begun: list[Sse] = []
    async with asyncio.timeout(20), web.stream(run) as stream:
        async for event in stream:  # the connection is cut in the middle of a text
            begun.append(event)
            if len(Reader(begun).tails.get({"markdown": "1", "graph": "frame"}[dialect], "")) >= 150:
                break
    readers = [asyncio.create_task(web.all_events(run, event.id)) for event in begun]
    await asyncio.sleep(0.3)
    gate.set()
    await attend(web, run)
    whole = Reader(await web.all_events(run)).seen
    for number, reader in enumerate(readers):
        assert Reader(begun[: number + 1] + await reader).seen == whole


async def test_several_concurrent_texts_continue_where_they_were(web: ServedApp) -> None:
    gate = asyncio.Event()

    def held(request: Request) -> Says:
        first = "State the decision" in request.messages[-1].text
        waits = {} if first else {"wait_for": gate, "pause_at": 90}
        return Says(f"For {len(request.messages[-1].text)}: " + "word " * 60, chunk=5, **waits)  # type: ignore[arg-type]

    await web.model(ScriptedModel(held)).serve()
    run = await web.begin(playbook=web.book("views.yml", GRAPH), inputs={"decision": "move"})
    begun: list[Sse] = []
    async with asyncio.timeout(20), web.stream(run) as stream:
        async for event in stream:
            begun.append(event)
            if event.id.count("~") == 2 and all(len(t) >= 90 for t in Reader(begun).tails.values() if t):
                break
    readers = [asyncio.create_task(web.all_events(run, event.id)) for event in begun]
    gate.set()
    await attend(web, run)
    whole = Reader(await web.all_events(run)).seen
    for number, reader in enumerate(readers):
        mixed = Reader(begun[: number + 1] + await reader)
        # Parallel steps were sent in one order; from the journal they come in the same order.
        assert mixed.seen == whole


async def test_a_restarted_text_is_shown_once(web: ServedApp) -> None:
    """The connection to the model breaks in the middle; the reader comes back with what was void."""
    lines = [Says("Half a wrong text that breaks off", chunk=4, drop_after=20), Says("The right text.", chunk=4)]
    await web.model(Dripping(ScriptedModel([*lines, "Fine."]), 0.05)).serve()
    book = web.book("two.md", "# Two\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n")
    run = await web.begin(playbook=book)
    live = await web.all_events(run)
    void = [number for number, event in enumerate(live) if "Half" in Reader(live[: number + 1]).tails.get("1", "")]
    assert void  # it was shown, and then removed
    assert Reader(live).streamed == [("1", "The right text."), ("2", "Fine.")]
    for number, event in enumerate(live):
        rest = await web.all_events(run, event.id)
        assert Reader(live[: number + 1] + rest).streamed == [("1", "The right text."), ("2", "Fine.")]


async def test_a_retry_redraws_the_failed_step(web: ServedApp) -> None:
    lines: list[Line] = ["Fine.", ModelError("bad_request", "No."), "Better."]
    await web.model(ScriptedModel(lines)).serve()
    book = web.book("two.md", "# Two\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\nDo B.\n\n## STEP 3: C\n\nDo C.\n")
    run = await web.begin(playbook=book, breakpoints="2")
    live = await web.all_events(run)
    assert (await web.get(f"/api/runs/{run}"))["status"] == "failed"
    await web.post(f"/api/runs/{run}/retry", 202)
    await web.until(run, "paused")
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    rest = await web.all_events(run, live[-1].id)
    whole = Reader(await web.all_events(run)).seen
    assert Reader(live + rest).seen == whole
    everything = live + rest
    for number, event in enumerate(everything):
        assert Reader(everything[: number + 1] + await web.all_events(run, event.id)).seen == whole
    row = await web.service.get(run)
    assert (await opened(web.site, row)).run.cancelled_by == "local"
    await web.post(f"/api/runs/{run}/retry", 202)
    await web.until(run, "paused")
    shown = (await opened(web.site, row)).run
    assert (shown.cancelled_by, shown.finished, shown.status) == (None, None, "paused")
    assert [(card.key, card.status) for card in shown] == [("1", "completed"), ("2", "paused"), ("3", "pending")]


async def test_a_whole_step_that_is_retried_starts_again(web: ServedApp) -> None:
    """Its sub-steps are removed until the run reaches them again, and its content is void."""
    lines: list[Line] = ["In.", "First try.", ModelError("bad_request", "No."), "Second try.", "Out."]
    await web.model(ScriptedModel(lines)).serve()
    text = '# Two\n\n## STEP 1: A\n\nDo A.\n\n@output(a)\n\n## STEP 2: B\n\nDo B.\n\n```if a == "In."```\n\n### STEP 2a: C\n\nDo C.\n\n### STEP 2b: D\n\nDo D.\n\n```endif```\n'
    run = await web.begin(playbook=web.book("two.md", text))
    live = await web.all_events(run)
    assert (await web.get(f"/api/runs/{run}"))["status"] == "failed"
    shown = await opened(web.site, await web.service.get(run))
    assert [(card.key, card.status) for card in shown.run] == [
        ("1", "completed"),
        ("2", "failed"),
        ("2a", "completed"),
        ("2b", "failed"),
    ]
    await web.post(f"/api/runs/{run}/retry", 202, whole_step=True)
    await web.until(run, "completed", "failed")
    everything = live + await web.all_events(run, live[-1].id)
    whole = Reader(await web.all_events(run)).seen
    for number, event in enumerate(everything):
        assert Reader(everything[: number + 1] + await web.all_events(run, event.id)).seen == whole
    shown = await opened(web.site, await web.service.get(run))
    rows = {(step.label, step.visit): step.status for step in await web.service.steps(run)}
    assert {(card.row.label, card.row.visit): card.status for card in shown.run} == rows
    assert shown.run.status == "completed"
    assert str(shown.run.cards["", "2b", 1].output) == "Second try."


async def test_a_fork_shows_what_it_inherits(web: ServedApp) -> None:
    await web.model(ScriptedModel(["One.", "Two.", "Two again."])).serve()
    book = web.book("two.md", "# Two\n\n## STEP 1: A\n\nDo A.\n\n@output(a)\n\n## STEP 2: B\n\nDo B.\n")
    first = await web.begin(playbook=book)
    await web.until(first, "completed")
    second = (await web.post(f"/api/runs/{first}/restart", 201, step="2"))["run"]
    await web.until(second, "completed")
    events = await web.all_events(second)
    assert Reader(events).streamed == [("1", "One."), ("2", "Two again.")]
    assert events[-1].event == "status"


async def test_plain_events_are_exact_too(web: ServedApp) -> None:
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook=web.book("views.yml", GRAPH), inputs={"decision": "move"})
    attending = asyncio.create_task(attend(web, run))
    live = await web.all_events(run, kind="events")
    await attending

    def seen(events: list[Sse]) -> tuple[Any, ...]:
        texts: dict[int, str] = {}
        for event in events:
            if event.event == "TextChunk":
                call = event.data["data"]["call"]
                assert event.data["data"]["offset"] == len(texts.get(call, ""))
                texts[call] = texts.get(call, "") + event.data["data"]["text"]
        return texts, [event.data for event in events if event.event != "TextChunk"]

    whole = seen(live)
    for number, event in enumerate(live):
        assert seen(live[: number + 1] + await web.all_events(run, event.id, "events")) == whole
    listed = await web.get(f"/api/runs/{run}/events?after={live[3].id}")
    assert [one["id"] for one in listed["events"]][-1] == live[-1].id == listed["after"]


@pytest.mark.parametrize("id", ["x", "1.2.3", "-1", "1~", "1.0~2.3", "9" * 40, "1.0~1.1.zzzzzzzz"])
async def test_an_invalid_event_id_is_refused(web: ServedApp, id: str) -> None:
    await web.model(ScriptedModel(["One."])).serve()
    run = await web.begin(text="# T\n\n## STEP 1: A\n\nDo A.\n", name="t.md")
    for kind in ("stream", "events"):
        response = await web.client.get(f"/api/runs/{run}/{kind}", params={"after": id})
        assert response.status_code == 400
        assert response.json()["code"] == "bad_event_id"
