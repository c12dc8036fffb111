"""A program's page: the conversation as it streams, the current line, and why a reply was rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects import registry
from cuebook.dialects.presentation.preview import played
from cuebook.kernel.run import Settings
from cuebook.performers.models.model import Model, Request
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from cuebook.surfaces.web.drawing.layout import laid_out
from cuebook.surfaces.web.live.watch import opened
from cuebook.surfaces.web.panels import conversation
from tests.support.doubling_program import AGAIN, ASK, DESK, JUMP, TAKE, THANK
from tests.support.sampling import many, some
from tests.surfaces.web.dom import LivePage
from tests.surfaces.web.markup import TRICKS, Markup
from tests.surfaces.web.served_app import Dripping, ServedApp, Sse
from tests.surfaces.web.stream_reader import Reader

BILL = Path(__file__).parents[4] / "examples" / "bill" / "bill.pbasm"

LOOP = """\
# Counter

## Main($most:int) -> int
### Triggers
- T1:BGN At the beginning
### Steps
- 01:EXE $count:int = 0
- 02:CND While $count < $most
  - 02.01:EXE $count = $count + 1
  - 02.02:QUE Say(user, $count)
  - 02.03:YLD for call
  - 02.04:JMP 02
- 03:RET $count
"""

TWO = """\
# First
Begins.

## Main()
Hands something over.
### Triggers
- T1:BGN At the beginning
### Steps
- 01:EXE $x:int = 1
- 02:QUE Second.Rate(x=$x)
- 03:YLD for call
- 04:RET

# Second
Rates.

## Rate($x:int) -> str
metadata:
public: true
---
### Steps
- 01:EXE $word:str = "much"
- 02:RET $word
"""


async def begun(web: ServedApp, model: Model, text: str = DESK, name: str = "desk.pbasm", **fields: Any) -> str:
    await web.model(model).serve()
    return await web.begin(playbook=web.book(name, text), **fields)


async def talk(web: ServedApp, run: str, answers: Sequence[str]) -> None:
    """Answers the questions one after the other, and waits for the end."""
    await answered(web, run, answers)
    await web.until(run, "completed", "failed")


async def answered(web: ServedApp, run: str, answers: Sequence[str]) -> None:
    async with asyncio.timeout(30):
        for answer in answers:
            while not (waits := (await web.get(f"/api/runs/{run}"))["waits"]):
                await asyncio.sleep(0.01)
            await web.post(f"/api/waits/{waits[0]['wait']}/answer", 200, value=answer)


async def screen(web: ServedApp, run: str) -> LivePage:
    """The page as it is now."""
    response = await web.client.get(f"/runs/{run}")
    assert response.status_code == 200, response.text
    return LivePage(response.text)


async def lived(web: ServedApp, run: str, answers: Sequence[str]) -> tuple[LivePage, list[Sse]]:
    """The opened page, and the events of its stream until the end."""
    first = await screen(web, run)
    talking = asyncio.create_task(talk(web, run, answers))
    events = await web.all_events(run, first.after)
    await talking
    return first, events


async def test_a_conversation_cut_at_any_event_continues_exactly_there(web: ServedApp) -> None:
    """Also in the middle of a reply that is partly shown; the page ends up the same as one opened later."""
    script = [Says(one, chunk=9) for one in (ASK, AGAIN, JUMP, TAKE, THANK)]
    run = await begun(web, Dripping(ScriptedModel(script)))
    first, live = await lived(web, run, ["many", "21"])
    assert (await web.get(f"/api/runs/{run}"))["status"] == "completed"
    assert {"elicitation", "variable-update", "status"} <= {event.event for event in live}
    assert all(event.data.keys() == {"step", "content"} for event in live if event.event == "step-content")
    whole, last = Reader(live).seen, (await screen(web, run)).main
    for number, event in some(list(enumerate(live)), 10):
        rest = await web.all_events(run, event.id)
        assert Reader(live[: number + 1] + rest).seen == whole, event
        assert LivePage(first.html, live[: number + 1] + rest).main == last, event
    assert await web.all_events(run, live[-1].id) == []


async def test_messages_are_shown_while_the_reply_is_streaming(web: ServedApp) -> None:
    gate = asyncio.Event()
    words = '"Which number?")`'
    held = Says(ASK, chunk=9, wait_for=gate, pause_at=ASK.index(words) + len(words) + 9)
    run = await begun(web, ScriptedModel([held]))
    first = await screen(web, run)
    events: list[Sse] = []
    async with asyncio.timeout(20), web.stream(run, first.after) as stream:
        async for event in stream:
            events.append(event)
            if "Which number?" in LivePage(first.html, events)["said"].words:
                break
    assert events[-1].event == "step-update"
    opened_now = await screen(web, run)
    assert opened_now["said"].words == "Desk Which number?"
    assert "The model is working on line 02 of Main." in opened_now["asks"].words
    assert LivePage(first.html, events)["asks"].words == opened_now["asks"].words
    gate.set()
    await web.waiting(run)
    after = await screen(web, run)
    assert after["said"].words == "Desk Which number?"  # sent by now, and still shown only once


async def test_a_restarted_reply_is_shown_once(web: ServedApp) -> None:
    script: list[Line] = [Says(ASK.replace("Which", "What"), chunk=5, drop_after=len(ASK) - 8), Says(ASK, chunk=9)]
    run = await begun(web, Dripping(ScriptedModel(script), 0.02))
    first = await screen(web, run)
    events: list[Sse] = []
    seen: set[str] = set()
    async with asyncio.timeout(20), web.stream(run, first.after) as stream:
        async for event in stream:
            events.append(event)
            seen.add(LivePage(first.html, events)["said"].words)
            if event.event == "elicitation":
                break
    assert "Desk What number?" in seen  # it was shown, and then removed
    assert LivePage(first.html, events)["said"].words == "Desk Which number?"
    assert LivePage(first.html, events).main == (await screen(web, run)).main


async def test_a_question_is_asked_in_the_conversation_and_nowhere_else(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([ASK, TAKE, THANK]))
    wait = await web.waiting(run)
    now = await screen(web, run)
    assert now["run-status"].attributes["data-status"] == "awaiting_input"
    forms = [one for one in now.root.walk() if one.tag == "form" and one.attributes.get("data-kind") == "question"]
    assert [one.id for one in forms] == [f"wait-{wait['wait']}"]
    assert forms[0] in list(now["asks"].walk())
    assert forms[0].find("input", name="value")
    assert not now["run-waits"].words
    await talk(web, run, ["21"])
    over = await screen(web, run)
    assert over["said"].words == "Desk Which number? you 21 Desk It is 42. Thanks!"
    assert over["asks"].words == "The conversation is over."


async def test_a_rejected_reply_shows_why_and_the_legal_lines(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([JUMP, ASK]))
    await web.waiting(run)
    now = await screen(web, run)
    words = now["refused"].words
    for one in ("C4", "Main:06", "Legal next", "02:QUE", "retried with these details (1 of 2)", "Position Main:"):
        assert one in words, (one, words)
    assert "Nobody may see this" not in now["said"].words


async def test_a_run_that_fails_by_refusals_shows_its_line_and_can_be_retried(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([JUMP, JUMP, JUMP, ASK, TAKE, THANK]))
    first, live = await lived(web, run, [])
    failed = await screen(web, run)
    assert LivePage(first.html, live).main == failed.main
    assert failed["refused"].words.count("C4") == 3
    assert failed["listing-1"].attributes["data-line"] == "failed"
    assert "Desk.Main :02" in failed["stack"].words
    await web.post(f"/api/runs/{run}/retry", 202)
    await talk(web, run, ["21"])
    rest = await web.all_events(run, live[-1].id)
    last = await screen(web, run)
    assert last["outcome"].words.startswith("Outcome Returned 42")
    assert LivePage(first.html, live + rest).main == last.main


async def test_the_listing_the_stack_and_the_types_follow_the_run(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([ASK, TAKE, THANK]), breakpoints="Twice:01")
    wait = await web.waiting(run)
    now = await screen(web, run)
    assert now["listing"].words.startswith("Desk.Main 01 EXE $count:int = 0")
    assert now["listing-1"].attributes["aria-current"] == "step"
    assert now["listing-0"].attributes["data-line"] == "passed"
    assert now["stack"].words == "Desk.Main :02"
    await web.post(f"/api/waits/{wait['wait']}/answer", 200, value="21")
    await web.until(run, "paused")
    now = await screen(web, run)
    assert now["listing"].words.startswith("Desk.Twice 01 EXE $product:int")
    assert now["stack"].words == "Desk.Twice :01 $number 21 Desk.Main :04"
    assert [now[f"var-{name}"].words for name in ("count", "number", "product")] == [
        "count int 0",
        "number int 21",
        "product int 42",
    ]
    assert "decision" in now["asks"].words
    await web.post(f"/api/runs/{run}/resume", 202)
    await web.until(run, "completed")
    over = await screen(web, run)
    assert over["outcome"].words == (
        "Outcome Returned 42 Model turns 3 Lines executed 9 Executed without a model 4 lines"
    )
    assert over["stack"].words == "It is empty."
    assert "9 steps" in over["run-status"].words
    assert "of" not in over["run-status"].words.split()


async def test_a_long_loop_does_not_grow_the_page(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often its lines are executed, each has one card; and the conversation keeps its end."""
    most = many(60, conversation.MOST)
    monkeypatch.setattr(conversation, "MOST", most)
    run = await begun(web, ScriptedModel([]), LOOP, "loop.pbasm", inputs={"most": str(most + 3)})
    first, live = await lived(web, run, [])
    last = await screen(web, run)
    assert LivePage(first.html, live).main == last.main
    cards = [one.id for one in last["cards"].find("article")]
    numbers = ("01", "02", "02.2E01", "02.2E02", "02.2E03", "02.2E04", "03")
    assert cards == [f"step-Main.3A{number}" for number in numbers]
    assert len(last["rail"].find("li")) == len(cards)
    assert f"Lines executed {5 * (most + 3) + 3:,}" in last["outcome"].words
    assert last["listing-1"].words == f"02 CND While $count < $most ×{most + 4}"
    assert len(last["said"].find("li")) == most
    assert last["earlier"].words == "3 earlier turns not shown."
    short = await web.begin(playbook="loop", inputs={"most": "2"})
    await web.until(short, "completed")
    fewer = await screen(web, short)
    rest = [len(one.main) - len(list(one["said"].lines())) for one in (last, fewer)]
    assert abs(rest[0] - rest[1]) < 80


async def test_parallel_calls_leave_no_cards_of_earlier_rounds(web: ServedApp) -> None:
    text = LOOP.replace(
        "  - 02.02:QUE Say(user, $count)\n",
        "  - 02.02:QUE $a:int = Half(x=$count)\n  - 02.03:QUE $b:int = Half(x=$count)\n",
    )
    text = text.replace("02.03:YLD", "02.04:YLD").replace("02.04:JMP", "02.05:JMP")
    text += "\n## Half($x:int) -> int\n### Steps\n- 01:EXE $y:int = $x + 1\n- 02:RET $y\n"
    run = await begun(web, ScriptedModel([]), text, "half.pbasm", inputs={"most": "12"})
    first, live = await lived(web, run, [])
    assert (await web.get(f"/api/runs/{run}"))["status"] == "completed"
    last = await screen(web, run)
    assert LivePage(first.html, live).main == last.main
    assert len(last["cards"].find("article")) <= 8 + 4


async def test_variables_of_several_agents_say_whose_they_are(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([]), TWO, "two.pbasm")
    await web.until(run, "completed", "failed")
    now = await screen(web, run)
    assert (now["var-x"].words, now["var-word"].words) == ("x int, First 1", "word str, Second much")


async def test_words_of_models_and_people_stay_words(web: ServedApp) -> None:
    said = [one for one in TRICKS if '"' not in one and "`" not in one and "\n" not in one and "\x00" not in one]
    script: Callable[[Request], str] = lambda request: ASK.replace("Which number?", said.pop())  # noqa: E731
    run = await begun(web, ScriptedModel(script))
    await answered(web, run, TRICKS[:12])
    async with asyncio.timeout(30):
        while (await screen(web, run))["said"].words.count("Desk") < 13:
            await asyncio.sleep(0.05)
    now = await web.client.get(f"/runs/{run}")
    assert Markup(now.text).dangers() == []
    assert (await screen(web, run))["said"].words.count("you ") >= 12


async def test_the_page_of_a_program_shows_its_agents_and_its_flow(web: ServedApp) -> None:
    web.book("bill.pbasm", BILL.read_text(encoding="utf-8"))
    await web.model(ScriptedModel([])).serve()
    page = await web.client.get("/playbooks/bill")
    words = Markup(page.text).words
    for one in (
        "BillDesk",
        "AskNumber($question:str, $least:float) -> float",
        "Toast",
        "asks a model once",
        "talks with you",
    ):
        assert one in words, one
    assert Markup(page.text).dangers() == []
    program = registry.named("program").parse(BILL.read_text(encoding="utf-8"), "bill.pbasm")
    assert [act.label for act in played(registry.named("program").preview(program, {}, Settings())).every_act()] == [
        "Main:01",
        "Toast",
    ]
    drawing = laid_out(registry.named("program").drawing(program)).drawing
    names = {box.id: box.id.rpartition("_")[2] for box in drawing.boxes}
    names |= {box.id: box.lines[0].partition("(")[0] for box in drawing.boxes if box.lines[0].startswith("BillDesk.")}
    ways = {(names[one.from_], names[one.to], one.label) for one in drawing.arrows}
    assert {("3", "4", "yes"), ("3", "15", "no"), ("14", "3", "")} <= ways
    assert ("4", "BillDesk.AskNumber", "") in ways
    assert laid_out(registry.named("program").drawing(program)).wide > 0


async def test_one_playbook_of_a_program_can_be_called(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([]), options={"call": "Twice(number=4)"})
    await web.until(run, "completed")
    now = await screen(web, run)
    assert now["outcome"].words.startswith("Outcome Returned 8 Model turns 0")
    form = (await web.client.get("/playbooks/desk/run")).text
    asked = Markup(form).by_id("call")
    assert (asked["data-group"], asked["data-name"]) == ("options", "call")
    assert 'value="Twice(number=)"' in form


async def test_a_fork_of_a_program_continues_from_its_line(web: ServedApp) -> None:
    run = await begun(web, ScriptedModel([ASK, TAKE, THANK, THANK.replace("It is 42", "Still 42")]))
    await talk(web, run, ["21"])
    made = (await web.post(f"/api/runs/{run}/restart", 201, step="Main:06"))["run"]
    await web.until(made, "completed", "failed")
    row = await web.service.get(made)
    seen = await opened(web.site, row)
    assert [card.row.label for card in seen.run][:2] == ["Main:01", "Main:02"]
    assert (await screen(web, made))["said"].words == "Desk Which number? you 21 Desk Still 42. Thanks!"
