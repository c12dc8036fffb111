"""The service that every surface calls: start, answer, resume, decide, cancel, retry, fork and view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, AskHuman, AskModel, Breakpoint, CallTool, Program, RunCommand
from cuebook.kernel.errors import AlreadyAnswered, BadInput, NotFound, Refused
from cuebook.kernel.events import (
    ArtifactMade,
    ModelAsked,
    Performed,
    RunFinished,
    StepFinished,
    StepStarted,
    TextChunk,
    TextReset,
)
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Call, Estimate, Store
from cuebook.kernel.run import Budget, Settings
from cuebook.service.service import Principal, Service
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import PROGRAMS, EchoModel, Held, begin, eventually, lines, performers, program_of

YOU = Principal("you")


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(store, performers(tmp_path), programs=program_of, key_file=tmp_path / "key", listen_every=0.02)
    yield made
    await made._engine.close()


async def ask(service: Service, question: AskHuman, run: str = "run") -> str:
    """A run that waits for one answer and returns it; returns the id of the wait."""

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        answer = yield question
        return answer.value

    PROGRAMS[f"asking {run}"] = lambda inputs: start
    await begin(service._engine, f"asking {run}", run)
    assert (await service.drive(run)).status == "awaiting_input"
    (wait,) = await service.waits(run)
    return wait.id


# --- starting ---------------------------------------------------------------------------------------------

BOOK = """# Greeting

## INPUTS

- `name` (string): Whom to greet

## STEP 1: Greet

Say hello to {{name}}.
"""


async def test_a_playbooks_text_becomes_a_run(store: Store, tmp_path: Path) -> None:
    service = Service(store, performers(tmp_path))
    row = await service.start(
        Playbook.from_text(BOOK, "greeting.md"), {"name": "Ada"}, Settings(model="test/echo"), YOU
    )
    assert (row.owner, row.tenant, row.dialect, row.status, row.model) == (
        "you", "local", "markdown", "pending", "test/echo",
    )  # fmt: skip
    assert await store.playbook(row.playbook) == BOOK, "it keeps the exact text"
    assert (await service.drive(row.id)).status == "completed"
    assert "hello to Ada" in str((await service.view(row.id)).outputs["1"])
    await service._engine.close()


@pytest.mark.parametrize(("text", "inputs"), [(BOOK, {}), ("no playbook at all", {}), ("# Only a title\n", {})])
async def test_bad_input_creates_nothing(text: str, inputs: dict[str, Any], store: Store) -> None:
    service = Service(store, {})
    with pytest.raises(BadInput):
        await service.start(Playbook.from_text(text, "greeting.txt"), inputs, Settings())
    assert await service.runs() == []


# --- answering --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "said", "kept"),
    [
        (AskHuman("?", "confirm"), " YES ", "yes"),
        (AskHuman("?", "confirm"), "y", "yes"),
        (AskHuman("?", "confirm"), "False", "no"),
        (AskHuman("?", "select", ("Red", "Green")), "green", "Green"),
        (AskHuman("?", "select", ("Red", "Green")), " Red ", "Red"),
        (AskHuman("?", "select", ("red", "Red")), "Red", "Red"),
        (AskHuman("?"), " as it is ", " as it is "),
        (AskHuman("?"), "", ""),
    ],
)
async def test_an_answer_is_stored_as_the_question_spells_it(
    question: AskHuman, said: str, kept: str, service: Service
) -> None:
    wait = await ask(service, question)
    assert (await service.answer(wait, said, YOU)).answer == {"value": kept}
    assert (await service.drive("run")).status == "completed"
    assert (await service.view("run")).result == kept


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (AskHuman("?", "confirm"), "maybe"),
        (AskHuman("?", "confirm"), ""),
        (AskHuman("?", "select", ("Red", "Green")), "Blue"),
        (AskHuman("?", "select", ("Red", "Green")), ""),
    ],
)
async def test_an_invalid_answer_leaves_the_question_open(question: AskHuman, said: str, service: Service) -> None:
    wait = await ask(service, question)
    with pytest.raises(BadInput) as refusal:
        await service.answer(wait, said)
    assert refusal.value.fix
    assert [w.id for w in await service.inbox()] == [wait]


async def test_a_question_is_answered_once(service: Service) -> None:
    wait = await ask(service, AskHuman("?"))
    await service.answer(wait, "one", YOU)
    with pytest.raises(AlreadyAnswered, match="by you"):
        await service.answer(wait, "two")
    with pytest.raises(NotFound):
        await service.answer("nothing", "two")


async def test_a_pause_is_resumed_and_not_answered(service: Service) -> None:
    await begin(service._engine, "everything", settings=Settings(breakpoints=("1",)))
    assert (await service.drive("run")).status == "paused"
    (wait,) = await service.inbox()
    with pytest.raises(BadInput, match="resume"):
        await service.answer(wait.id, "yes")
    with pytest.raises(BadInput, match="resume"):
        await service.decide(wait.id, "repeat")


# --- resuming ---------------------------------------------------------------------------------------------


async def test_resume_passes_values_and_settings(service: Service) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield StepFinished("1")
        resumed = yield Breakpoint("1")
        reply = yield AskModel("hello")
        return [resumed.overrides, resumed.by, reply.text]

    PROGRAMS["pausing"] = lambda inputs: start
    await begin(service._engine, "pausing", settings=Settings(model="test/one", breakpoints=("1",)))
    await service.drive("run")
    await service.resume("run", YOU, overrides={"tone": "kind"}, settings={"model": "test/two"})
    row = await service.drive("run")
    assert (row.status, row.model) == ("completed", "test/two")
    assert (await service.view("run")).result == [{"tone": "kind"}, "you", "echo hello"]


async def test_a_run_that_is_not_paused_cannot_be_resumed(service: Service) -> None:
    await ask(service, AskHuman("?"))
    with pytest.raises(Refused, match="answer"):
        await service.resume("run")
    await service.answer((await service.inbox())[0].id, "x")
    await service.drive("run")
    with pytest.raises(Refused, match="completed"):
        await service.resume("run")


class Priced(EchoModel):
    """An echo that estimates its cost in advance."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        return Estimate(10, 100, self.cost)


@pytest.mark.parametrize(
    ("budget", "cost", "raised"),
    [(Budget(money=1.0), 1.0, {"budget": {"money": 9.0}}), (Budget(money=1.0), None, {})],
)
async def test_a_spent_budget_is_raised_by_resuming(
    budget: Budget, cost: float | None, raised: dict[str, Any], store: Store
) -> None:
    def start(state: Any) -> Program[Any]:
        yield AskModel("one")
        yield AskModel("two")

    PROGRAMS["spending twice"] = lambda inputs: start
    service = Service(store, {AskModel: Priced(cost=cost)}, programs=program_of)
    await begin(service._engine, "spending twice", settings=Settings(budget=budget))
    row = await service.drive("run")
    assert (row.status, row.reason) == ("paused", "budget")
    if raised:
        await service.resume("run")
        assert (await service.drive("run")).reason == "budget", "it is estimated again, and as before"
        assert len(await service.inbox()) == 1, "it still waits"
    await service.resume("run", settings=raised)
    assert (await service.drive("run")).status == "completed"
    await service._engine.close()


async def test_a_spent_budget_is_compared_with_the_current_estimate(store: Store) -> None:
    def start(state: Any) -> Program[Any]:
        yield AskModel("one")

    PROGRAMS["spending once"] = lambda inputs: start
    service = Service(store, {AskModel: Priced(cost=24.603)}, programs=program_of)
    await begin(service._engine, "spending once", settings=Settings(budget=Budget(money=0.00002)))
    await service.drive("run")
    (wait,) = await service.inbox()
    assert wait.prompt == "The next call may bring the run to $24.6030; its budget is $0.000020."
    await service._engine.close()
    service = Service(store, {AskModel: Priced(cost=0.00001)}, programs=program_of)
    await service.resume("run")
    assert (await service.drive("run")).status == "completed"
    await service._engine.close()


@pytest.mark.parametrize("settings", [{"max_tokens": "many"}, {"budget": {"money": "lots"}}, {"breakpoints": 5}])
async def test_invalid_settings_are_refused_and_the_run_can_continue(
    settings: dict[str, Any], service: Service
) -> None:
    await begin(service._engine, "everything", settings=Settings(breakpoints=("1",)))
    await service.drive("run")
    with pytest.raises(BadInput):
        await service.resume("run", settings=settings)
    with pytest.raises(BadInput):
        await service.fork("run", "1", settings=settings)
    await service.resume("run")
    assert (await service.drive("run")).status == "awaiting_input"


# --- deciding ---------------------------------------------------------------------------------------------


async def doubt(store: Store, tmp_path: Path, effect: Any = None) -> tuple[Service, Held]:
    """A run whose process ended in the middle of an effect."""
    held = Held()

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        outcome = yield effect or CallTool("hold")
        return str(getattr(outcome, "value", None) or getattr(outcome, "stdout", ""))

    PROGRAMS["doubtful"] = lambda inputs: start
    service = Service(
        store, {**performers(tmp_path, hold=held), RunCommand: held}, programs=program_of, key_file=tmp_path / "key"
    )
    driving = asyncio.create_task(service.drive(await begin(service._engine, "doubtful")))
    await held.entered.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    held.go.set()
    assert (await service.drive("run")).status == "awaiting_approval"
    return service, held


@pytest.mark.parametrize(
    ("decision", "outcome", "status", "result", "performed"),
    [
        ("repeat", None, "completed", "held", 1),
        ("stop", None, "failed", None, 0),
        ("done", {"value": "seen"}, "completed", "seen", 0),
        ("done", {"is": "ToolResult", "value": "seen"}, "completed", "seen", 0),
        ("done", {"is": "Failed", "code": "no", "message": "It did not."}, "failed", None, 0),
    ],
)
async def test_a_person_decides_about_an_effect_in_doubt(
    decision: Any, outcome: Any, status: str, result: Any, performed: int, store: Store, tmp_path: Path
) -> None:
    service, held = await doubt(store, tmp_path)
    (wait,) = await service.inbox()
    await service.decide(wait.id, decision, YOU, outcome=outcome)
    assert (await service.drive("run")).status == status
    assert (await service.view("run")).result == result
    assert held.performed == performed
    await service._engine.close()


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        ("done", None),
        ("done", {"is": "HttpResponse", "status": 200}),
        ("done", {"is": "Failed"}),
        ("done", {"is": "nothing known"}),
        ("perhaps", None),
    ],
)
async def test_an_invalid_decision_is_refused_and_the_doubt_remains(
    decision: Any, outcome: Any, store: Store, tmp_path: Path
) -> None:
    service, _ = await doubt(store, tmp_path)
    (wait,) = await service.inbox()
    with pytest.raises(BadInput):
        await service.decide(wait.id, decision, outcome=outcome)
    with pytest.raises(BadInput, match="decide"):
        await service.answer(wait.id, "yes")
    assert [w.id for w in await service.inbox()] == [wait.id]
    await service._engine.close()


@pytest.mark.parametrize(
    "outcome", [{"exit_code": "zero"}, {"exit_code": 0, "stdout": 5}, {"exit_code": 0, "stdout": {}}]
)
async def test_an_outcome_must_match_its_effect(outcome: dict[str, Any], store: Store, tmp_path: Path) -> None:
    service, _ = await doubt(store, tmp_path, RunCommand(("make",)))
    (wait,) = await service.inbox()
    with pytest.raises(BadInput, match=r"--outcome '\{\"exit_code\": 0, \"stdout\": "):
        await service.decide(wait.id, "done", outcome=outcome)
    await service.decide(wait.id, "done", outcome={"exit_code": 0, "stdout": "made"})
    assert (await service.drive("run")).status == "completed"
    assert (await service.view("run")).result == "made"
    await service._engine.close()


# --- stopping and trying again ------------------------------------------------------------------------------


async def test_cancel_stops_a_waiting_run(service: Service, tmp_path: Path) -> None:
    await begin(service._engine, "undoing")
    await service.drive("run")
    await service.cancel("run", "Not today.", YOU)
    row = await service.drive("run")
    assert row.status == "cancelled"
    assert row.error is not None
    assert "Not today." in row.error.message
    assert lines(tmp_path) == ["do", "undo"]
    with pytest.raises(Refused, match="cancelled"):
        await service.cancel("run")


async def test_cancel_stops_an_active_run_gracefully(store: Store, tmp_path: Path) -> None:
    for number in range(5):
        held = Held()
        service = Service(store, performers(tmp_path, hold=held), programs=program_of, listen_every=0.001)
        run = await begin(service._engine, "undoing", f"run{number}", hold=True)
        driving = asyncio.create_task(service.drive(run))
        await held.entered.wait()
        await service.cancel(run)
        assert (await driving).status == "cancelled"
        await service._engine.close()
    assert lines(tmp_path) == ["do", "undo"] * 5, "heard twice or not, one request is one cancel"


async def test_retry_continues_where_the_run_failed(service: Service, tmp_path: Path) -> None:
    await begin(service._engine, "failing")
    assert (await service.drive("run")).status == "failed"
    with pytest.raises(Refused, match="retry"):
        await service.resume("run")
    await service.retry("run")
    assert (await service.drive("run")).status == "completed"
    assert lines(tmp_path).count("step 2") == 1
    with pytest.raises(Refused, match="completed"):
        await service.retry("run")


async def test_retry_of_the_whole_step(service: Service, tmp_path: Path) -> None:
    await begin(service._engine, "failing")
    await service.drive("run")
    await service.retry("run", whole_step=True)
    assert (await service.drive("run")).status == "completed"
    assert lines(tmp_path).count("step 2") == 2


async def finished(service: Service, name: str = "everything", run: str = "run") -> None:
    await begin(service._engine, name, run)
    await service.drive(run)
    for wait in await service.waits(run):
        await service.answer(wait.id, "yes")
    assert (await service.drive(run)).status == "completed"


async def test_restart_keeps_what_came_before_the_step(service: Service, tmp_path: Path) -> None:
    await finished(service)
    row = await service.restart("run", "3", who=YOU)
    assert (row.parent, row.owner, row.status) == ("run", "you", "pending")
    assert (await service.drive(row.id)).status == "completed"
    assert lines(tmp_path) == ["one", "two", "three", "two", "three"]
    assert (await service.view(row.id)).values == {"draft": "echo draft"}


async def test_a_fork_takes_values_and_settings(service: Service) -> None:
    await finished(service)
    row = await service.fork("run", "3", values={"draft": "mine"}, settings={"model": "test/other"})
    assert (await service.drive(row.id)).model == "test/other"
    assert (await service.view(row.id)).result["final"] == "echo final"
    again = await service.fork(row.id, "1")
    assert (await service.drive(again.id)).status == "awaiting_input"


@pytest.mark.parametrize(("step", "options"), [("9", {}), ("4", {}), ("1", {"visit": 2}), ("1", {"path": "x"})])
async def test_a_fork_from_a_step_not_reached_says_which_were(
    step: str, options: dict[str, Any], service: Service
) -> None:
    await begin(service._engine, "everything")
    await service.drive("run")
    with pytest.raises(BadInput, match=r"Steps it has reached: 1, 2\."):
        await service.fork("run", step, **options)
    assert len(await service.runs()) == 1


async def test_a_message_reaches_the_run_that_waits_for_it(service: Service) -> None:
    await begin(service._engine, "waiting", seconds=0)
    assert (await service.drive("run")).reason == "message"
    assert await service.inbox() == [], "it waits for no person"
    await service.send("run", "other", 1)
    await service.send("run", "news", {"a": [1]}, YOU)
    assert (await service.drive("run")).status == "completed"
    assert (await service.view("run")).result == ["Message", {"a": [1]}]
    with pytest.raises(Refused):
        await service.send("run", "news", 2)


async def test_drive_waits_for_a_timer_by_itself(service: Service) -> None:
    await begin(service._engine, "waiting", seconds=0.05, patience=0.05)
    await service.send("run", "news", 1)
    assert (await service.drive("run")).status == "completed"


# --- tokens -----------------------------------------------------------------------------------------------


async def test_a_token_decides_its_own_wait_once(service: Service, tmp_path: Path) -> None:
    one, other = await ask(service, AskHuman("?"), "one"), await ask(service, AskHuman("?"), "other")
    token = service.token(one)
    assert token == service.token(one)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    for wrong in ("", "x", "é", token[:-1], service.token(other)):
        with pytest.raises(Refused):
            await service.answer(one, "yes", token=wrong)
    with pytest.raises(Refused):
        await service.answer(other, "yes", token=token)
    await service.answer(one, "yes", token=token)
    with pytest.raises(AlreadyAnswered):
        await service.answer(one, "again", token=token)


async def test_tokens_outlive_the_process_and_need_its_key(store: Store, tmp_path: Path) -> None:
    def made(name: str | None) -> Service:
        return Service(store, {}, programs=program_of, key_file=tmp_path / name if name else None)

    assert made("key").token("w") == made("key").token("w")
    assert made("key").token("w") != made("other").token("w")
    with pytest.raises(Refused, match="need a key"):
        made(None).token("w")


# --- looking ----------------------------------------------------------------------------------------------


async def test_a_view_shows_everything(service: Service) -> None:
    def start(state: Any) -> Program[Any]:
        yield StepStarted("1", "Write")
        yield StepFinished("1", output=Text("draft"))
        yield StepStarted("1", "Write")
        yield StepFinished("1", output=Text("final"))
        yield ArtifactMade(Text("<p>"), "html")
        yield AskHuman("Good?")
        return {"done": True}

    PROGRAMS["shown"] = lambda inputs: start
    await begin(service._engine, "shown")
    await service.drive("run")
    view = await service.view("run")
    assert [(s.label, s.visit) for s in view.steps] == [("1", 1), ("1", 2)]
    assert [w.prompt for w in view.waits] == ["Good?"]
    assert (view.outputs, view.result) == ({"1": Text("final")}, None)
    assert view.artifact == ArtifactMade(Text("<p>"), "html")
    await service.answer(view.waits[0].id, "yes")
    await service.drive("run")
    assert (await service.view("run")).result == {"done": True}
    assert (await service.verify("run")).broken_at is None
    assert (await service.replay("run")).complete


async def test_a_view_omits_records_voided_by_a_retry(service: Service) -> None:
    await begin(service._engine, "failing")
    await service.drive("run")
    await service.retry("run", whole_step=True)
    await service.drive("run")
    assert [(s.label, s.visit, s.status) for s in (await service.view("run")).steps] == [
        ("1", 1, "completed"), ("2", 1, "completed"), ("3", 1, "completed"),
    ]  # fmt: skip


async def test_a_run_is_found_by_the_beginning_of_its_id(service: Service) -> None:
    for run in ("abcd", "abef", "xyz"):
        await begin(service._engine, "counting", run)
    assert (await service.get("x")).id == "xyz"
    assert (await service.get("abcd")).id == "abcd"
    with pytest.raises(BadInput, match="matches 2 runs"):
        await service.get("ab")
    for unknown in ("q", ""):
        with pytest.raises(NotFound):
            await service.get(unknown)
    assert [row.id for row in await service.runs(status=["completed"])] == []


async def test_the_inbox_lists_the_waits_for_people(service: Service) -> None:
    await ask(service, AskHuman("First?"), "one")
    await begin(service._engine, "waiting", "two", seconds=1000)
    await service.take_up("two")
    await ask(service, AskHuman("Second?"), "three")
    assert [wait.prompt for wait in await service.inbox()] == ["First?", "Second?"]


# --- events -----------------------------------------------------------------------------------------------

Seen = Entry | TextChunk | TextReset


async def read(service: Service, after: str = "0", *, follow: bool = False) -> list[Seen]:
    return [event async for event in service.events("run", after, follow=follow)]


def numbers(events: list[Seen]) -> list[int]:
    return [event.seq for event in events if isinstance(event, Entry)]


async def test_events_can_be_read_again_from_any_id(service: Service) -> None:
    await finished(service)
    everything = await read(service)
    assert numbers(everything) == list(range(1, len(everything) + 1))
    assert await read(service) == everything
    for after in (1, 7, len(everything) - 1, len(everything)):
        assert await read(service, str(after)) == everything[after:]
    assert await read(service, follow=True) == everything, "a run that has ended is not waited for"


async def test_a_follower_sees_each_record_once_and_each_text_once_in_order(service: Service) -> None:
    await begin(service._engine, "everything")
    reading = asyncio.create_task(read(service, follow=True))
    await asyncio.sleep(0)
    await service.drive("run")
    seen = await reading
    assert numbers(seen) == list(range(1, numbers(seen)[-1] + 1))
    chunks = [event for event in seen if isinstance(event, TextChunk)]
    assert [chunk.offset for chunk in chunks] == [len("".join(c.text for c in chunks[:n])) for n in range(len(chunks))]
    assert "echo draft".startswith("".join(chunk.text for chunk in chunks))
    asked = next(n for n, e in enumerate(seen) if isinstance(e, Entry) and isinstance(e.event, ModelAsked))
    done = next(n for n, e in enumerate(seen) if isinstance(e, Entry) and isinstance(e.event, Performed))
    assert all(asked < seen.index(chunk) < done for chunk in chunks)


class Pieces:
    """A model that sends one piece each time it is released."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.next = asyncio.Semaphore(0)
        self.said = 0

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        for piece in self.pieces:
            await self.next.acquire()
            call.emit(piece)
            self.said += 1
        await self.next.acquire()
        return Reply(Text("".join(self.pieces)))

    async def has_said(self, number: int) -> bool:
        return self.said >= number


def one_question(state: Any) -> Program[Any]:
    return (yield AskModel("?")).text


PROGRAMS["one question"] = lambda inputs: one_question


async def test_a_reader_who_comes_back_gets_the_rest_of_the_text(store: Store) -> None:
    model = Pieces("Once ", "upon ", "a time")
    service = Service(store, {AskModel: model}, programs=program_of)
    driving = asyncio.create_task(service.drive(await begin(service._engine, "one question")))
    model.next.release()
    model.next.release()
    await eventually(lambda: model.has_said(2))
    asked = await eventually(lambda: _asked(service))
    streaming = service.events("run", f"{asked}.3")
    first = await anext(streaming)
    assert first == TextChunk("run", asked, "", 3, "e upon ")
    model.next.release()
    model.next.release()
    rest = [first, *[event async for event in streaming]]
    assert "".join(e.text for e in rest if isinstance(e, TextChunk)) == "e upon a time"
    await driving
    for offset in (0, 3, 7, 15, 16):
        later = await read(service, f"{asked}.{offset}")
        assert "".join(e.text for e in later if isinstance(e, TextChunk)) == "Once upon a time"[offset:]
        assert numbers(later)[0] == asked + 1
    await service._engine.close()


async def test_a_slow_reader_gets_every_text_whole_and_before_its_outcome(store: Store) -> None:
    model = Pieces("Once ", "upon ", "a time")
    service = Service(store, {AskModel: model}, programs=program_of)
    driving = asyncio.create_task(service.drive(await begin(service._engine, "one question")))
    streaming = service.events("run")
    seen = [await anext(streaming)]
    for _ in range(4):
        model.next.release()
    await driving
    seen += [event async for event in streaming]
    text = [event for event in seen if isinstance(event, TextChunk)]
    done = next(n for n, e in enumerate(seen) if isinstance(e, Entry) and isinstance(e.event, Performed))
    assert all(seen.index(chunk) < done for chunk in text)
    assert "".join(chunk.text for chunk in text) in ("", "Once upon a time"), "from its outcome alone, or all of it"
    await service._engine.close()


async def test_a_reader_who_stops_in_the_middle_of_a_text_gets_the_rest_of_it(store: Store) -> None:
    model = Pieces("Once ", "upon ", "a time")
    service = Service(store, {AskModel: model}, programs=program_of)
    driving = asyncio.create_task(service.drive(await begin(service._engine, "one question")))
    streaming = service.events("run")
    model.next.release()
    seen = [await anext(streaming)]
    while not isinstance(seen[-1], TextChunk):
        seen.append(await anext(streaming))
    for _ in range(3):
        model.next.release()
    await driving
    seen += [event async for event in streaming]
    text = [event for event in seen if isinstance(event, TextChunk)]
    done = next(n for n, e in enumerate(seen) if isinstance(e, Entry) and isinstance(e.event, Performed))
    assert "".join(chunk.text for chunk in text) == "Once upon a time"
    assert all(seen.index(chunk) < done for chunk in text)
    await service._engine.close()


async def _asked(service: Service) -> int:
    return next((e.seq for e in await read(service) if isinstance(e, Entry) and isinstance(e.event, ModelAsked)), 0)


async def test_texts_that_stream_at_once_do_not_mix(store: Store) -> None:
    class Two:
        def __init__(self) -> None:
            self.go = asyncio.Event()
            self.said = 0

        async def perform(self, effect: AskModel, call: Call) -> Reply:
            for piece in (effect.prompt * 3, effect.prompt * 2):
                call.emit(piece)
                self.said += 1
                await asyncio.sleep(0)
            await self.go.wait()
            return Reply(Text(effect.prompt * 5))

        async def both(self) -> bool:
            return self.said == 4

    def start(state: Any) -> Program[Any]:
        yield All((AskModel("a"), AskModel("b")))

    PROGRAMS["two questions"] = lambda inputs: start
    model = Two()
    service = Service(store, {AskModel: model}, programs=program_of)
    driving = asyncio.create_task(service.drive(await begin(service._engine, "two questions")))
    await eventually(model.both)
    await eventually(lambda: _asked(service))
    rest = {}
    async for event in service.events("run", follow=False):
        if isinstance(event, Entry) and isinstance(event.event, ModelAsked):
            again = service.events("run", f"{event.seq}.2")
            rest[str(event.event.prompt)] = await anext(again)
            await again.aclose()  # type: ignore[attr-defined]
    assert {prompt: chunk.text for prompt, chunk in rest.items() if isinstance(chunk, TextChunk)} == {
        "a": "aaa", "b": "bbb",
    }  # fmt: skip
    model.go.set()
    await driving
    await service._engine.close()


async def test_a_run_that_another_process_drives_can_be_followed(file_store: SqliteStore, tmp_path: Path) -> None:
    from tests.stores.processes import child, hear, tell

    service = Service(file_store, performers(tmp_path), programs=program_of, listen_every=0.02)
    await begin(service._engine, "undoing", hold=True)
    with child("race_process", tmp_path) as other:
        assert hear(other) == "ready"
        tell(other, "drive run")
        assert hear(other) == "holding"
        reading = asyncio.create_task(read(service, follow=True))
        driving = asyncio.create_task(service.drive("run"))
        await asyncio.sleep(0.05)
        assert not driving.done(), "it is driven elsewhere: this one follows"
        (tmp_path / "go").touch()
        assert await asyncio.to_thread(hear, other) == "completed"
        seen = await reading
        assert (await driving).status == "completed"
    last = seen[-1]
    assert isinstance(last, Entry)
    assert isinstance(last.event, RunFinished)
    assert numbers(seen) == list(range(1, len(seen) + 1))
    await service._engine.close()


async def test_closing_releases_everything(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    service = Service(store, performers(tmp_path), programs=program_of)
    await begin(service._engine, "everything")
    await service.drive("run")
    await service.close()
    again = Service(SqliteStore(tmp_path / "store.db"), performers(tmp_path), programs=program_of)
    assert (await again.get("run")).status == "awaiting_input"
    await again.close()
