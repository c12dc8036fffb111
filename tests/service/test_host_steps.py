"""Host mode: the model calls of a run are answered by assistants, on every store and in every dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource, Send
from cuebook.kernel.errors import BadInput, Leased, NotFound, Refused, WaitClosed
from cuebook.kernel.events import ModelAsked, Noted, Performed, Warned
from cuebook.kernel.outcomes import Done, Reply, Source, ToolResult
from cuebook.kernel.ports import Call, Performer, Store
from cuebook.kernel.run import HOST, Budget, Settings
from cuebook.service.host_steps import MOST_REFUSED, HostStep
from cuebook.service.service import Principal, Service

ANN, BOB, EVE = Principal("ann"), Principal("bob"), Principal("eve", tenant="elsewhere")
TWO_STEPS = (
    "# Report\n\n## STEP 1: Colour\n\nName a colour.\n\n@output(colour)\n\n## STEP 2: Line\n\nWrite about {{colour}}.\n"
)
GRAPH = """\
id: sort
name: Sort
entry: read
nodes:
  read:
    name: Read
    instruction: Say what it is.
    output: {type: object, properties: {kind: {type: string, enum: [good, bad]}}, required: [kind]}
    disallowed_tools: &none [Read, Write, Edit, Glob, Grep, Bash, WebFetch, WebSearch]
  praise: {name: Praise, instruction: Praise it., disallowed_tools: *none}
  scold: {name: Scold, instruction: Scold it., disallowed_tools: *none}
edges:
  - {from: read, to: praise, when: it deserves praise}
  - {from: read, to: scold, when: it does not}
"""
PIPELINE = """\
id: guess
name: Guess
steps:
  - id: guess
    command: llm
    llm: {model: default, prompt: Guess., max_tokens: 2000, max_repairs: 1, tools: {allow: [Read]}, max_tool_calls: 2}
    output: {type: json, schema: {type: object, properties: {number: {type: integer}}, required: [number]}}
"""
PROGRAM = """\
# Greeter
Greets people.

## Main() -> None
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Greet the user)
- 02:YLD for exit
"""
GREETS = """\
recap – begun
plan – greet
`Step["Main:01:QUE"]` `Say("user", "Welcome")`
trig? no
`Step["Main:02:YLD"]` yld exit
"""


class _World:
    """Performs everything but model calls: messages, one tool, and the list that describes it."""

    def __init__(self) -> None:
        self.calls: list[CallTool] = []

    async def perform(self, effect: Effect, call: Call) -> Any:
        if isinstance(effect, Send):
            return Done()
        if isinstance(effect, CallTool):
            self.calls.append(effect)
            return ToolResult("seven")
        tools = [{"name": "Read", "description": "Reads a file.", "parameters": {"type": "object"}}]
        return Source(Text(json.dumps(tools)))


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


Make = Callable[[], Service]


@pytest.fixture
async def make(store: Store, clock: _Clock, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes services on one store, as processes would."""
    made: list[Service] = []

    def one() -> Service:
        world = _World()
        performers: dict[type[Effect], Performer] = {CallTool: world, ReadSource: world, Send: world}
        service = Service(
            store,
            performers,
            key_file=tmp_path / "key",
            listen_every=0.02,
            clock=clock,
            watches=registry.WATCHES,
            host_lease=60.0,
        )
        made.append(service)
        return service

    yield one
    for service in made:
        await service._engine.close()


@pytest.fixture
def service(make: Make) -> Service:
    return make()


async def begin(service: Service, text: str = TWO_STEPS, name: str = "report.md", **settings: Any) -> str:
    row = await service.start(Playbook.from_text(text, name), {}, Settings(model=HOST, **settings), ANN)
    waiting = await service.drive(row.id)
    assert (waiting.status, waiting.reason) == ("awaiting_input", "model")
    return row.id


async def take(service: Service, run: str, who: Principal = ANN, claim: str = "") -> HostStep:
    return await service.host_steps.take(await service.get(run, who), who, claim)


async def complete(service: Service, run: str, claim: str, result: Any, who: Principal = ANN) -> Any:
    return await service.host_steps.complete(await service.get(run, who), claim, result, who)


async def do(service: Service, run: str, result: Any) -> Any:
    """Takes the next step, completes it, and drives the run until it waits again."""
    step = await take(service, run)
    done = await complete(service, run, step.claim, result)
    await service.drive(run)
    return done


async def replies(service: Service, run: str) -> list[str]:
    events = [entry.event async for entry in service.entries(run)]
    outcomes = [event.outcome for event in events if isinstance(event, Performed)]
    return [one.text for one in outcomes if isinstance(one, Reply)]


# --- taking and completing ---


async def test_each_model_call_is_a_step_for_an_assistant(service: Service, clock: _Clock) -> None:
    run = await begin(service)
    assert await service.inbox(ANN) == []
    first = await take(service, run)
    assert (first.wait.kind, first.wait.place.step) == ("model", "1")
    assert first.wait.expires == clock.now + 86_400
    assert "Name a colour." in first.messages[-1].text
    clock.now += 30
    assert not (await complete(service, run, first.claim, "green")).refused
    assert (await service.drive(run)).reason == "model"
    second = await take(service, run)
    assert "Write about green." in second.messages[-1].text
    await complete(service, run, second.claim, "Green.")
    ended = await service.drive(run)
    assert ended.status == "completed"
    assert (ended.totals.calls, ended.totals.unknown_costs, ended.totals.cost) == (2, 2, 0.0)
    assert ended.totals.seconds >= 30
    assert await replies(service, run) == ["green", "Green."]
    assert (await service.verify(run, ANN)).broken_at is None


async def test_a_step_is_kept_for_the_assistant_that_took_it(service: Service, clock: _Clock) -> None:
    run = await begin(service)
    step = await take(service, run)
    for other in (ANN, BOB):
        with pytest.raises(Leased, match="may take it over in 60 s"):
            await take(service, run, other)
    with pytest.raises(Leased):
        await take(service, run, BOB, step.claim)
    clock.now += 40
    assert (await take(service, run, claim=step.claim)).until == clock.now + 60
    clock.now += 40
    with pytest.raises(Leased):
        await take(service, run, BOB)


async def test_after_the_lease_another_assistant_takes_over(service: Service, clock: _Clock) -> None:
    run = await begin(service)
    first = await take(service, run)
    clock.now += 60
    second = await take(service, run, BOB)
    assert second.wait.id == first.wait.id
    with pytest.raises(Leased, match="is not valid: bob has the step under another claim"):
        await complete(service, run, first.claim, "red")
    assert not (await complete(service, run, second.claim, "blue", BOB)).repeated
    await service.drive(run)
    assert await replies(service, run) == ["blue"]


async def test_an_expired_lease_stays_valid_until_someone_takes_over(service: Service, clock: _Clock) -> None:
    run = await begin(service)
    step = await take(service, run)
    clock.now += 3600
    assert not (await complete(service, run, step.claim, "red")).refused


async def test_completing_twice_changes_nothing(service: Service) -> None:
    run = await begin(service)
    step = await take(service, run)
    await complete(service, run, step.claim, "red")
    for _ in range(2):
        again = await complete(service, run, step.claim, "blue")
        assert (again.repeated, again.refused) == (True, "")
        await service.drive(run)
    assert await replies(service, run) == ["red"]
    with pytest.raises(Leased):
        await complete(service, run, f"{step.wait.id}.000000000000", "blue")
    assert await replies(service, run) == ["red"]


async def test_of_two_assistants_one_completes_a_step(make: Make, clock: _Clock) -> None:
    one, two = make(), make()
    run = await begin(one)
    step = await take(one, run)
    clock.now += 60

    async def late() -> Any:
        return await complete(two, run, (await take(two, run, BOB)).claim, "blue", BOB)

    results = await asyncio.gather(complete(one, run, step.claim, "red"), late(), return_exceptions=True)
    accepted = [
        said for said, result in zip(("red", "blue"), results, strict=True) if not isinstance(result, Exception)
    ]
    assert len(accepted) == 1
    await one.drive(run)
    assert await replies(one, run) == accepted


async def test_a_restart_loses_neither_the_claim_nor_the_result(make: Make) -> None:
    before = make()
    run = await begin(before)
    step = await take(before, run)
    after = make()
    assert (await take(after, run, claim=step.claim)).messages == step.messages
    await complete(after, run, step.claim, "red")
    third = make()  # the process that took the result ended before it continued the run
    assert (await complete(third, run, step.claim, "red")).repeated
    assert (await third.drive(run)).step == "2"
    assert await replies(third, run) == ["red"]
    asked = [entry async for entry in third.entries(run) if isinstance(entry.event, ModelAsked)]
    assert len(asked) == 2


async def test_a_step_that_nobody_does_expires(service: Service, clock: _Clock) -> None:
    run = await begin(service, pause_expiry=100.0)
    step = await take(service, run)
    clock.now += 101
    with pytest.raises(WaitClosed):
        await complete(service, run, step.claim, "red")
    await service.settle()
    row = await service.get(run, ANN)
    assert (row.status, row.error and row.error.message) == ("expired", "No assistant did this step in time.")


async def test_a_cancelled_run_takes_no_result(service: Service) -> None:
    run = await begin(service)
    step = await take(service, run)
    await service.cancel(run, who=ANN)
    with pytest.raises(WaitClosed):
        await complete(service, run, step.claim, "red")
    assert (await service.drive(run)).status == "cancelled"
    with pytest.raises(Refused, match="no step for an assistant"):
        await take(service, run)


async def test_only_time_and_steps_limit_an_assistant(service: Service, clock: _Clock) -> None:
    run = await begin(service, budget=Budget(money=0.01, tokens=10, seconds=50))
    step = await take(service, run)
    clock.now += 55
    await complete(service, run, step.claim, "red")
    row = await service.drive(run)
    assert (row.status, row.reason) == ("paused", "budget")
    (wait,) = await service.waits(run)
    assert wait.details["code"] == "seconds"


# --- who may do what ---


async def test_an_assistant_needs_the_role_and_the_tenant(service: Service) -> None:
    run = await begin(service)
    step = await take(service, run)
    viewer = Principal("ann", roles=frozenset({"viewer"}))
    row = await service.get(run, ANN)
    for act in (
        lambda: service.host_steps.take(row, viewer, step.claim),
        lambda: service.host_steps.complete(row, step.claim, "red", viewer),
        lambda: service.host_steps.call(row, step.claim, "Read", {}, viewer),
    ):
        with pytest.raises(NotAllowed):
            await _tried(act)
    with pytest.raises(NotFound):
        await service.get(run, EVE)
    with pytest.raises(NotFound):
        await service.host_steps.complete(row, step.claim, "red", Principal("ann", tenant="elsewhere"))


async def _tried(act: Callable[[], Awaitable[Any]]) -> None:
    await act()


async def test_a_claim_completes_only_its_own_step(service: Service) -> None:
    one, two = await begin(service), await begin(service)
    step = await take(service, one)
    with pytest.raises(NotFound):
        await complete(service, two, step.claim, "red")
    with pytest.raises(NotFound):
        await complete(service, one, "w0123456789abcdef.0123456789ab", "red")
    with pytest.raises(BadInput, match="The claim is missing"):
        await complete(service, one, "", "red")
    with pytest.raises(Leased, match="was given to ann, and only ann can use it"):
        await complete(service, one, step.claim, "red", BOB)
    with pytest.raises(BadInput, match="a step for the assistant"):
        await service.answer(step.wait.id, "red", ANN)
    with pytest.raises(BadInput):
        await service.decide(step.wait.id, "approve", ANN)


# --- every dialect ---


async def edges(service: Service, run: str) -> list[dict[str, Any]]:
    """The edges in the run's trace."""
    playbook = await service.playbook_of(await service.get(run, ANN))
    assert playbook is not None
    trace = playbook.observed([entry async for entry in service.entries(run)]).trace()
    assert trace is not None
    return list(trace["trace"]["edges"])


async def test_a_judge_of_its_own_work_is_marked(service: Service) -> None:
    judged = GRAPH.partition("edges:")[0].replace(
        "  read:\n    name: Read\n",
        "  read:\n    name: Read\n    eval: [{name: fair, kind: judge, rubric: Is it fair?}]\n",
    )
    run = await begin(service, f"{judged.partition('  praise:')[0]}edges: []\n", "sort.yml")
    await do(service, run, {"kind": "good"})
    await do(service, run, "VERDICT: yes\nREASONING: It is.")
    assert (await service.get(run, ANN)).status == "completed"
    events = [entry.event async for entry in service.entries(run)]
    (noted,) = [event.data for event in events if isinstance(event, Noted) and event.name == "evals"]
    assert noted["evals"][0]["self_judged"] is True


async def test_a_graph_checks_the_schema_and_marks_its_own_router(service: Service) -> None:
    run = await begin(service, GRAPH, "sort.yml")
    step = await take(service, run)
    assert step.schema is not None
    for wrong, why in (("good", "not JSON"), ('{"kind": "odd"}', "does not follow the schema"), ("", "empty")):
        refused = await complete(service, run, step.claim, wrong)
        assert why in refused.refused
    again = await take(service, run, claim=step.claim)
    assert (len(again.refused), again.left) == (3, MOST_REFUSED - 3)
    assert not (await complete(service, run, step.claim, {"kind": "good"})).refused
    await service.drive(run)
    await do(service, run, {"choice": "praise", "reason": "It is good."})
    await do(service, run, "Well done.")
    assert (await service.get(run, ANN)).status == "completed"
    events = [entry.event async for entry in service.entries(run)]
    (warning,) = [event for event in events if isinstance(event, Warned) and event.code == "self_judged"]
    assert "also judged it" in warning.message
    (edge,) = await edges(service, run)
    assert (edge["to"], edge["self_judged"]) == ("praise", True)


async def test_refusals_end_with_a_failed_step(service: Service) -> None:
    run = await begin(service, GRAPH, "sort.yml")
    step = await take(service, run)
    for left in range(MOST_REFUSED - 1, -1, -1):
        assert (await complete(service, run, step.claim, "no JSON")).left == left
    await service.drive(run)
    (failed,) = [step for step in await service.steps(run) if step.label == "read"]
    assert failed.status == "failed"
    assert "refused 5 times" in failed.reason


async def test_a_pipelines_contract_asks_again_and_its_tools_pass_by_the_run(service: Service) -> None:
    run = await begin(service, PIPELINE, "guess.yml")
    step = await take(service, run)
    assert [tool.name for tool in step.tools] == ["Read"]
    row = await service.get(run, ANN)
    with pytest.raises(BadInput, match="may not use the tool 'Bash'"):
        await service.host_steps.call(row, step.claim, "Bash", {}, ANN)
    await service.host_steps.call(row, step.claim, "Read", {"path": "a.txt"}, ANN)
    assert (await service.host_steps.call(row, step.claim, "Read", {"path": "a.txt"}, ANN)).repeated
    await service.drive(run)
    after = await take(service, run)
    assert after.results == ("seven",)
    assert not (await complete(service, run, after.claim, '```json\n{"number": 7}\n```')).refused
    assert (await service.drive(run)).status == "completed"


async def test_a_program_is_verified_and_its_watch_reads_the_whole_text(service: Service) -> None:
    run = await begin(service, PROGRAM, "greeter.pbasm")
    refused = await do(service, run, "I would rather not.")
    assert not refused.refused
    reasons = await service.host_steps.refused_since(await service.get(run, ANN), refused.wait.id)
    assert reasons
    step = await take(service, run)
    assert set(reasons) <= set(step.refused)
    await complete(service, run, step.claim, GREETS)
    assert (await service.drive(run)).status == "completed"
    playbook = await service.playbook_of(await service.get(run, ANN))
    assert playbook is not None
    assert (await service.verify(run, ANN)).broken_at is None
    assert (await service.replay(run, ANN)).complete


async def test_only_the_steps_of_the_assistants_model_wait(service: Service) -> None:
    text = "id: one\nname: One\nentry: a\nnodes:\n  a: {name: A, instruction: Hello., model: host}\nedges: []\n"
    row = await service.start(Playbook.from_text(text, "one.yml"), {}, Settings(model="test/echo"), ANN)
    assert (await service.drive(row.id)).reason == "model"
    assert AskModel(model=HOST).fingerprint == "AskModel host"
