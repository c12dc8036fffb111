"""Child playbooks through the whole service, in every dialect: files on disk, real commands, one inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.playbook import Playbook, read
from cuebook.gate.roles import Principal
from cuebook.kernel.context import ToolCall
from cuebook.kernel.errors import Refused, WaitClosed
from cuebook.kernel.events import RunStarted
from cuebook.kernel.run import RunRow
from cuebook.testing import Says, ScriptedModel
from cuebook.wiring.surroundings import MachineSurroundings
from tests.support.runtime import RuntimeHarness

PIPELINE = """
name: Greeting
args:
  name: {type: string, required: true}
  times: {type: integer, default: 1}
steps:
  - id: check
    command: cli sh -c 'echo "$CUEBOOK_ARG_NAME" >> log'
    approval: required
  - id: say
    command: cli echo '{"text":"hi ${name}","times":${times}}'
"""
MARKDOWN = """# Greeting

## INPUTS
- `name` (string): A name

## STEP 1: Ask
@elicit(confirm, "Greet {{name}}?")

## STEP 2: Greet
Say hello to {{name}}.
"""
GRAPH = """
id: greeting
name: Greeting
description: Greets somebody
entry: greet
nodes:
  greet: {name: Greet, instruction: Say hello.}
edges: []
"""
SECRETIVE = """name: Kid
args: {word: {type: string, secret: true}}
steps: [{id: a, command: 'cli sh -c "echo $${#WORD}"', env: {WORD: '${word}'}}]
"""
PROGRAM = """# Greeter
Greets.

## Greet($name) -> Any
### Triggers
- T1:BGN At the beginning
### Steps
- 01:RET {"text": $name}
"""


def _read(path: Path) -> Playbook:
    return read(path.read_text(), path.name, path=path)


class Place:
    def __init__(self, runtime: RuntimeHarness) -> None:
        self.runtime = runtime
        self.work = runtime.work

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def open(self, *says: Any) -> None:
        if says:
            self.runtime.models["test"] = ScriptedModel(list(says))
        self.runtime.open()
        self.service = self.runtime.service

    async def start(self, path: Path, who: Principal = Principal(), **inputs: Any) -> RunRow:
        book = _read(path)
        settings = self.runtime.wiring.settings(folder=path.parent, document=book.document)
        return await self.service.start(book, inputs, settings, who)

    async def run(self, path: Path, **inputs: Any) -> RunRow:
        """Drives a run to its end, approves everything and answers every question with yes."""
        row = await self.start(path, **inputs)
        return await self.settle(row.id)

    async def settle(self, run: str) -> RunRow:
        row = await self.service.drive(run)
        while row.status in ("awaiting_approval", "awaiting_input"):
            for wait in await self.service.waits(run):
                if wait.kind == "question":
                    await self.service.answer(wait.id, "yes")
                else:
                    await self.service.decide(wait.id, "approve")
            row = await self.service.drive(run)
        return row

    async def output(self, run: str, step: str) -> str:
        return str((await self.service.view(run)).outputs[step])

    def findings(self, path: Path) -> list[tuple[str, int | None]]:
        dialect = read(path.read_text(), path.name).dialect
        found = dialect.check(path.read_text(), str(path), MachineSurroundings(str(path)))
        return [(one.code, one.line) for one in found if one.severity == "error"]


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    runtime = RuntimeHarness(tmp_path, monkeypatch)
    monkeypatch.chdir(runtime.work)
    made = Place(runtime)
    yield made
    if hasattr(runtime, "service"):
        await runtime.close()


def calls(child: str, inputs: str = "{name: Ann}") -> str:
    return f"""
name: Parent
steps:
  - id: greet
    playbook: {child}
    with: {inputs}
  - id: after
    command: cli echo 'got ${{greet.stdout}}'
"""


async def test_a_pipeline_starts_a_pipeline_and_uses_its_result(place: Place) -> None:
    place.write("kids/greeting.yml", PIPELINE)
    parent = place.write(
        "parent.yml", calls("kids/greeting.yml", "{name: Ann, times: 2}").replace("stdout", "json.text")
    )
    place.open()
    row = await place.run(parent)
    assert row.status == "completed", row.error
    assert await place.output(row.id, "after") == "got hi Ann\n"
    assert (place.work / "log").read_text() == "Ann\n"
    (child,) = await place.service.children(row.id)
    assert (child.name, child.status, child.owner, child.tenant) == ("greeting.yml", "completed", row.owner, row.tenant)
    assert [one.id for one in await place.service.runs()] == [row.id], "children are listed by their parents"


@pytest.mark.parametrize(
    ("name", "text", "inputs", "says", "output"),
    [
        ("greeting.md", MARKDOWN, "{name: Ann}", ["Hello, Ann!"], "Hello, Ann!"),
        ("greeting.yml", GRAPH, "{}", ["hello"], '{"summary":"hello"}'),
        ("greeting.pbasm", PROGRAM, "{name: Ann}", [], '"text":"Ann"'),
    ],
)
async def test_a_pipeline_starts_a_playbook_of_any_dialect(
    place: Place, name: str, text: str, inputs: str, says: list[str], output: str
) -> None:
    place.write(f"kids/{name}", text)
    parent = place.write("parent.yml", calls(f"kids/{name}", inputs))
    place.open(*(says or ["unused"]))
    row = await place.run(parent)
    assert row.status == "completed", row.error
    assert output in await place.output(row.id, "greet")
    (child,) = await place.service.children(row.id)
    assert row.totals.calls == child.totals.calls == len(says)


async def test_a_markdown_step_starts_a_playbook(place: Place) -> None:
    place.write("greeting.yml", PIPELINE)
    text = '# Parent\n\n## STEP 1: Greet\n@tool(playbook, greeting.yml, {"name": "{{whom}}", "times": 3})\n@output(said)\n\n'
    text = (
        text.replace("# Parent\n", "# Parent\n\n## INPUTS\n- `whom` (string): Who\n")
        + "## STEP 2: Next\nRepeat {{said}}.\n"
    )
    parent = place.write("parent.md", text)
    place.open("done")
    row = await place.run(parent, whom="Ann")
    assert row.status == "completed", row.error
    assert '"times":3' in await place.output(row.id, "1")
    assert place.findings(parent) == []


async def test_a_graphs_model_starts_a_playbook_as_a_tool(place: Place) -> None:
    place.write("greeting.yml", PIPELINE)
    graph = GRAPH.replace("instruction: Say hello.", "instruction: Greet Ann., skills: ['playbook:greeting.yml']")
    parent = place.write("parent.yml", graph)
    call = ToolCall("c1", "playbook_greeting_yml", {"name": "Ann"})
    place.open(Says("", calls=(call,)), '{"summary": "done"}')
    row = await place.run(parent)
    assert row.status == "completed", row.error
    model = place.runtime.models["test"]
    assert isinstance(model, ScriptedModel)
    (spec,) = [tool for tool in model.requests[0].tools if tool.name == "playbook_greeting_yml"]
    assert spec.parameters["required"] == ["name"]
    assert "hi Ann" in str(model.requests[1].messages[-1])
    assert (await place.service.children(row.id))[0].status == "completed"
    assert place.findings(parent) == []


async def test_a_model_chooses_no_secret_of_a_playbook(place: Place) -> None:
    place.write("kid.yml", SECRETIVE.replace("secret: true", "secret: true, required: false"))
    graph = GRAPH.replace("instruction: Say hello.", "instruction: Count., skills: ['playbook:kid.yml']")
    parent = place.write("parent.yml", graph)
    call = ToolCall("c1", "playbook_kid_yml", {"word": "env:HOME"})
    place.open(Says("", calls=(call,)), '{"summary": "done"}')
    row = await place.run(parent)
    assert row.status == "completed", row.error
    model = place.runtime.models["test"]
    assert isinstance(model, ScriptedModel)
    (spec,) = [tool for tool in model.requests[0].tools if tool.name == "playbook_kid_yml"]
    assert spec.parameters["properties"] == {}
    assert "takes no word" in str(model.requests[1].messages[-1])
    assert await place.service.children(row.id) == []
    place.write("kid.yml", SECRETIVE.replace("secret: true", "secret: true, required: true"))
    assert [code for code, _ in place.findings(parent)] == ["CHILD_INPUTS"]


async def test_a_program_starts_a_playbook_of_a_remote_agent(place: Place) -> None:
    place.write("greeting.yml", PIPELINE)
    steps = '- 01:QUE $said:dict = Helper.greeting(name="Ann")\n- 02:YLD for call\n- 03:RET $said'
    agent = "# Helper\nmetadata:\n  remote:\n    type: playbook\n    playbooks: [greeting.yml]\n---\nGreets.\n"
    text = f"# Desk\nWorks.\n\n## Main() -> Any\n### Triggers\n- T1:BGN At the beginning\n### Steps\n{steps}\n\n{agent}"
    parent = place.write("desk.pbasm", text)
    place.open("unused")
    row = await place.run(parent)
    assert row.status == "completed", row.error
    assert "hi Ann" in str((await place.service.view(row.id)).result)
    assert place.findings(parent) == []


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "parent", "code", "words"),
    [
        ({}, calls("nowhere.yml"), "UNKNOWN_CHILD", "nowhere.yml"),
        ({}, calls("nobody"), "UNKNOWN_CHILD", "nobody"),
        ({"kid.yml": "name: x\nsteps: []\n"}, calls("kid.yml"), "BROKEN_CHILD", "kid.yml"),
        ({"kid.yml": PIPELINE}, calls("kid.yml", "{}"), "CHILD_INPUTS", "name is missing"),
        ({"kid.yml": PIPELINE}, calls("kid.yml", "{name: a, nam: b}"), "CHILD_INPUTS", "no input nam"),
        ({"kid.yml": PIPELINE}, calls("kid.yml", "{name: a, times: many}"), "CHILD_INPUTS", "times"),
        (
            {"kid.yml": SECRETIVE},
            "name: Parent\nargs: {place: {type: string, default: HOME}}\nsteps:\n"
            "  - {id: greet, playbook: kid.yml, with: {word: 'env:${place}'}}\n",
            "CHILD_INPUTS",
            "word must be the handle",
        ),
        ({}, calls("parent.yml", "{}"), "CHILD_CYCLE", "parent.yml -> parent.yml"),
        (
            {"kid.yml": calls("parent.yml", "{}")},
            calls("kid.yml", "{}"),
            "CHILD_CYCLE",
            "parent.yml -> kid.yml -> parent.yml",
        ),
        (
            {f"k{n}.yml": calls(f"k{n + 1}.yml", "{}") for n in range(1, 7)}
            | {"k7.yml": "name: x\nsteps: [{id: a, command: cli ls}]\n"},
            calls("k1.yml", "{}"),
            "CHILD_DEPTH",
            "more than 5 levels",
        ),
    ],
)
async def test_what_cannot_be_started_is_refused_with_its_line(
    place: Place, files: dict[str, str], parent: str, code: str, words: str
) -> None:
    for name, text in files.items():
        place.write(name, text)
    path = place.write("parent.yml", parent)
    assert place.findings(path) == [(code, 4)]
    place.open()
    with pytest.raises(InvalidPlaybook) as refused:
        await place.start(path)
    assert words in refused.value.message
    assert refused.value.problems[0].line == 4
    assert await place.service.runs() == []


async def test_inputs_that_become_known_later_fail_the_step(place: Place) -> None:
    place.write("kid.yml", PIPELINE)
    text = calls("kid.yml", "{name: Ann, times: $count.stdout}").replace(
        "steps:", "steps:\n  - id: count\n    command: cli echo many"
    )
    path = place.write("parent.yml", text)
    place.open()
    row = await place.run(path)
    assert row.status == "failed"
    assert row.error is not None
    assert "times" in row.error.message
    assert await place.service.children(row.id) == []


async def test_the_text_of_a_child_is_pinned_when_its_parent_starts(place: Place) -> None:
    kid = place.write("kid.yml", PIPELINE)
    path = place.write("parent.yml", calls("kid.yml"))
    place.open()
    row = await place.start(path)
    kid.write_text("name: Other\nsteps: [{id: a, command: cli rm -rf all}]\n")
    row = await place.settle(row.id)
    assert row.status == "completed", row.error
    assert (place.work / "log").read_text() == "Ann\n"


async def test_a_child_is_controlled_through_its_parent(place: Place) -> None:
    place.write("kid.yml", PIPELINE)
    path = place.write("parent.yml", calls("kid.yml"))
    place.open()
    row = await place.start(path)
    await place.service.drive(row.id)
    (child,) = await place.service.children(row.id)
    for act in (place.service.cancel, place.service.retry, place.service.resume):
        with pytest.raises(Refused, match=f"was started by run {row.id}"):
            await act(child.id)
    (wait,) = await place.service.inbox()
    assert (wait.run, wait.place.step) == (row.id, "greet")
    assert wait.details["child"]["step"] == "check"
    await place.service.cancel(row.id, "stop")
    assert await place.service.inbox() == []
    assert (await place.service.drive(row.id)).status == "cancelled"
    assert (await place.service.row(child.id)).status == "cancelled"
    with pytest.raises(WaitClosed):
        await place.service.decide(wait.id, "approve")


async def test_a_child_follows_the_policy_and_its_own_rules(place: Place) -> None:
    place.write(
        "kid.yml",
        "name: Kid\nallowed_domains: [example.com]\nsteps: [{id: get, command: http GET https://elsewhere.invalid/}]\n",
    )
    path = place.write("parent.yml", calls("kid.yml", "{}"))
    place.open()
    row = await place.run(path)
    (child,) = await place.service.children(row.id)
    started = [e.event async for e in place.service.entries(child.id) if isinstance(e.event, RunStarted)]
    assert "example.com" in str(started[0].policy)
    place.runtime.rule('[commands]\ndeny = ["rm *"]\n')
    place.write("kid.yml", "name: Kid\nsteps: [{id: get, command: cli rm log}]\n")
    row = await place.run(path)
    assert row.error is not None
    assert row.error.code == "child_failed"


async def test_starting_a_child_can_need_an_approval_of_its_own(place: Place) -> None:
    place.write("kid.yml", "name: Kid\nsteps: [{id: a, command: cli echo done}]\n")
    text = calls("kid.yml", "{}").replace("with: {}", "approval: required")
    path = place.write("parent.yml", text)
    place.open()
    row = await place.start(path)
    await place.service.drive(row.id)
    assert await place.service.children(row.id) == []
    (wait,) = await place.service.inbox()
    assert wait.details["preview"]["playbook"] == "kid.yml"
    await place.service.decide(wait.id, "approve")
    assert (await place.settle(row.id)).status == "completed"


async def test_a_secret_is_handed_to_a_child_as_its_handle(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KID_WORD", "a-very-secret-word")
    place.write("kid.yml", SECRETIVE)
    path = place.write("parent.yml", calls("kid.yml", "{word: 'secret:env:KID_WORD'}"))
    place.runtime.rule('[commands]\nallow = ["*"]\n[secrets]\nallow = ["env:KID_WORD"]\n')
    place.open()
    row = await place.run(path)
    assert row.status == "completed", row.error
    assert await place.output(row.id, "after") == "got 18\n"
    assert b"a-very-secret-word" not in place.runtime.store.read_bytes()
