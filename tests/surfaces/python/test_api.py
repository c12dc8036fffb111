"""Cuebook from Python: load, run and continue playbooks, and run Python programs."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import cuebook
from cuebook.kernel.effects import AskHuman, Now, RunCommand
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import Budget
from cuebook.testing import MemoryStore, ModelError, ScriptedModel

SRC = Path(__file__).resolve().parents[3] / "src"

TEA = """\
# Tea

Some words for people.

## INPUTS

- `kind` (enum: green, black): Which tea

## STEP 1: Choose

Choose a {{kind}} tea.

@output(tea)

## STEP 2: Ask

@elicit(select, "How many?", "one", "two")
@output(cups)

## STEP 3: Brew

Brew {{cups}} of {{tea}}.

## ARTIFACTS

type: mermaid
"""

GREEN = {"kind": "green"}


@pytest.fixture(autouse=True)
def work(bare_home: Path) -> Path:
    """A working folder with a playbook, in a home folder without configuration."""
    (bare_home / "tea.playbook.md").write_text(TEA)
    return bare_home


# --- importing and loading ----------------------------------------------------------------------------------


def test_importing_the_package_imports_none_of_its_parts() -> None:
    code = "import sys, cuebook; print([n for n in sys.modules if n.startswith('cuebook.')], 'asyncio' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[] False\n"


def test_every_name_is_there_for_people_and_for_type_checkers() -> None:
    for name in cuebook.__all__:
        assert getattr(cuebook, name) is not None
        assert name in dir(cuebook)
    stub = ast.parse((SRC / "cuebook" / "__init__.pyi").read_text())
    listed = [node.value for node in stub.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(listed[0]) == cuebook.__all__
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        cuebook.rum  # type: ignore[attr-defined]  # noqa: B018


def test_a_playbook_says_what_is_in_it() -> None:
    book = cuebook.load("tea.playbook.md")
    assert (book.title, book.description, book.name) == ("Tea", "Some words for people.", "tea.playbook.md")
    assert [(one.name, one.type, one.required, one.options) for one in book.inputs] == [
        ("kind", "enum", True, ("green", "black"))
    ]
    assert [(step.label, step.title) for step in book.steps] == [("1", "Choose"), ("2", "Ask"), ("3", "Brew")]
    assert book.warnings == ()
    assert [finding for finding in book.check() if finding.severity != "note"] == []


def test_a_check_finds_what_the_parser_passes_over() -> None:
    book = cuebook.Playbook.from_text("# T\n\n## STEP 1: Do\n\nDo {{it}}.\n")
    (finding,) = book.check()
    assert (finding.code, finding.line) == ("unknown_variable", 5)
    assert get_type_hints(cuebook.Playbook.check)["return"] == list[cuebook.Finding]


async def test_loading_has_an_async_twin() -> None:
    assert (await cuebook.aload(Path("tea.playbook.md"))).title == "Tea"


def test_what_cannot_be_loaded_says_why(work: Path) -> None:
    with pytest.raises(cuebook.BadInput, match=r"There is no file .*nothing\.md"):
        cuebook.load("nothing.md")
    (work / "latin.md").write_bytes(b"# T\xe9\n")
    with pytest.raises(cuebook.BadInput, match=r"latin\.md is not UTF-8 text"):
        cuebook.load("latin.md")
    with pytest.raises(cuebook.BadInput, match=r"cannot be read: .*null"):
        cuebook.load("a\0b")
    with open(work / "huge.md", "wb") as huge:
        huge.truncate(3_000_000_000)
    with pytest.raises(cuebook.InvalidPlaybook, match="Document exceeds 200KB size limit"):
        cuebook.load("huge.md")
    (work / "bad.md").write_text("## STEP 1: Do\n\nx\n")
    with pytest.raises(cuebook.InvalidPlaybook, match=r"bad\.md: No title found") as refusal:
        cuebook.run("bad.md")
    assert refusal.value.problems[0].code == "F1"


# --- running ------------------------------------------------------------------------------------------------


def test_a_run_waits_is_answered_and_ends() -> None:
    model = ScriptedModel(["Sencha", "graph TD"])
    waiting = cuebook.run("tea.playbook.md", GREEN, model=model, store=MemoryStore())
    assert (waiting.status, waiting.waiting, waiting.ok) == ("awaiting_input", True, False)
    (wait,) = waiting.waits
    assert (wait.kind, wait.step, wait.prompt, wait.type, wait.options) == (
        "question", "2", "How many?", "select", ("one", "two"),
    )  # fmt: skip
    done = waiting.answer("TWO")
    assert (done.run, done.status, done.ok, done.waits) == (waiting.run, "completed", True, ())
    assert (done.values["tea"], done.values["cups"]) == ("Sencha", "two")
    assert done.outputs == {"1": "Sencha", "2": "two", "3": "graph TD"}
    assert done.artifact is not None
    assert (done.artifact.content, done.artifact.type, done.artifact.suffix) == ("graph TD", "mermaid", ".mmd")
    assert (done.output, done.error, done.warnings) == ("graph TD", None, ())
    assert [(step.label, step.status, step.output) for step in done.steps][2] == ("3", "completed", "graph TD")
    assert done.tokens > 0
    assert done.cost is None, "the cost of a scripted model is unknown"
    assert [request.messages[-1].text for request in model.requests] == ["Choose a green tea.", "Brew two of Sencha."]


async def test_the_async_twins_do_the_same() -> None:
    model = ScriptedModel(["Sencha", "Done"])
    waiting = await cuebook.arun("tea.playbook.md", GREEN, model=model, store=MemoryStore())
    assert (await waiting.aanswer("one")).ok


async def test_the_others_refuse_to_block_a_running_loop() -> None:
    with pytest.raises(cuebook.BadInput, match="Await its async twin, arun"):
        cuebook.run("tea.playbook.md", GREEN)


def test_a_text_is_run_as_it_is() -> None:
    result = cuebook.run("# T\n\n## STEP 1: Do\n\nDo it.\n", model=ScriptedModel(["ok"]), store=MemoryStore())
    assert (result.ok, result.output) == (True, "ok")


def test_what_is_wrong_before_a_run_begins_is_raised() -> None:
    with pytest.raises(cuebook.BadInput, match="kind must be one of green, black"):
        cuebook.run("tea.playbook.md", {"kind": "red"}, model=ScriptedModel([]), store=MemoryStore())
    with pytest.raises(cuebook.BadInput, match="no provider `nobody`"):
        cuebook.run("tea.playbook.md", GREEN, model="nobody/x", store=MemoryStore())


@pytest.mark.parametrize("answer", [True, 1, None, ["one"], "\ud800"])
def test_an_answer_that_is_not_a_string_is_refused_beforehand_and_later(answer: Any) -> None:
    with pytest.raises(cuebook.BadInput, match="The answer for step 2"):
        cuebook.run(TEA, GREEN, model=ScriptedModel(["a"]), answers={2: answer}, store=MemoryStore())
    waiting = cuebook.run(TEA, GREEN, model=ScriptedModel(["a"]), store=MemoryStore())
    with pytest.raises(cuebook.BadInput, match="The answer given"):
        waiting.answer(answer)


def test_a_text_may_have_line_ends_of_any_kind() -> None:
    text = "# One\r\r## STEP 1: Do\r\rDo it.\r"
    assert cuebook.run(text, model=ScriptedModel(["done"]), store=MemoryStore()).output == "done"


def test_half_a_character_is_refused_as_any_bad_input() -> None:
    with pytest.raises(cuebook.BadInput, match=r"playbook\.md:\d+: Document contains a lone surrogate"):
        cuebook.run(f"{TEA}\n\ud800\n", GREEN, model=ScriptedModel(["a"]), store=MemoryStore())


def test_a_step_that_is_not_there_is_refused() -> None:
    for wrong in ({"answers": {"4": "x"}}, {"breakpoints": ["4"]}):
        with pytest.raises(cuebook.BadInput, match=r"has no step 4\. It has: 1, 2, 3\."):
            cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel([]), store=MemoryStore(), **wrong)


def test_an_answer_that_does_not_fit_leaves_it_waiting() -> None:
    waiting = cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel(["a", "b"]), store=MemoryStore())
    with pytest.raises(cuebook.BadInput, match="Choose one of: one, two"):
        waiting.answer("three")
    done = waiting.answer("one")
    assert done.ok
    with pytest.raises(cuebook.BadInput, match="is completed and is waiting for nothing"):
        done.answer("two")
    with pytest.raises(cuebook.BadInput, match="is waiting for question"):
        waiting.decide("approve")


def test_answers_may_be_given_beforehand_or_left_to_defaults() -> None:
    given = cuebook.run(
        "tea.playbook.md", GREEN, model=ScriptedModel(["a", "b"]), store=MemoryStore(), answers={2: "two"}
    )
    assert (given.ok, given.values["cups"]) == (True, "two")
    alone = cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel(["a", "b"]), store=MemoryStore(), unattended=True)
    assert (alone.ok, alone.values["cups"]) == (True, "one")


def test_a_pause_is_ended_with_other_values() -> None:
    model = ScriptedModel(["Sencha", "Done"])
    paused = cuebook.run(
        "tea.playbook.md", GREEN, model=model, store=MemoryStore(), breakpoints=[1], answers={"2": "one"}
    )
    assert (paused.status, paused.waits[0].kind) == ("paused", "breakpoint")
    assert paused.resume({"tea": "Assam"}).ok
    assert model.requests[-1].messages[-1].text == "Brew one of Assam."


SORT = """\
id: sort
name: Sort
entry: read
inputs:
  tone: {type: string, enum: [kind, plain]}
nodes:
  read:
    name: Read
    instruction: Read it.
    output: {type: object, properties: {count: {type: number}}}
  answer: {name: Answer, instruction: Answer it.}
edges: [{from: read, to: answer}]
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tone": "rude"}, 'tone must be one of "kind", "plain", not "rude"'),
        ({"read.count": "many"}, "does not match the declared output of node read"),
        ({"read.count": float("nan")}, "cannot be represented in JSON"),
        ({"reed.count": 2}, "There is no value named 'reed.count'. Known names: tone, read."),
        ({"answer": {"summary": "x"}}, "The node 'answer' has no result yet"),
    ],
)
def test_values_of_a_workflow_that_do_not_fit_leave_it_paused(change: dict[str, Any], why: str) -> None:
    model = ScriptedModel(['{"count": 1}', "Done"])
    paused = cuebook.run(SORT, {"tone": "kind"}, model=model, store=MemoryStore(), breakpoints=["read"])
    with pytest.raises(cuebook.BadInput, match=re.escape(why)):
        paused.resume(change)
    assert paused.resume({"tone": "plain", "read.count": 2}).values["read"] == {"count": 2}


def test_values_of_a_playbook_that_do_not_fit_leave_it_paused() -> None:
    model = ScriptedModel(["Sencha", "Done"])
    paused = cuebook.run(
        "tea.playbook.md", GREEN, model=model, store=MemoryStore(), breakpoints=[1], answers={"2": "one"}
    )
    with pytest.raises(cuebook.BadInput, match=r"has no value named 'teas'\. It has: kind, tea, cups\."):
        paused.resume({"teas": "Assam"})
    with pytest.raises(cuebook.BadInput, match="kind"):
        paused.resume({"kind": "purple"})
    assert paused.resume({"tea": "Assam"}).ok


def test_a_spent_budget_pauses_until_it_is_raised() -> None:
    model = ScriptedModel(["Sencha", "Done"])
    paused = cuebook.run(
        "tea.playbook.md", GREEN, model=model, store=MemoryStore(), budget=Budget(steps=1), unattended=True
    )
    assert (paused.status, paused.reason) == ("paused", "budget")
    with pytest.raises(cuebook.BadInput, match="Resume with a larger budget"):
        paused.resume()
    assert paused.resume(budget=Budget(steps=9)).ok


def test_a_failed_run_does_not_raise_and_can_be_retried() -> None:
    model = ScriptedModel([ModelError("bad_request", "not like this"), "Sencha", "Done"])
    failed = cuebook.run("tea.playbook.md", GREEN, model=model, store=MemoryStore(), unattended=True)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.startswith("not like this")
    assert failed.retry().ok


def test_a_run_can_be_cancelled() -> None:
    waiting = cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel(["a"]), store=MemoryStore())
    assert waiting.cancel("enough").status == "cancelled"


def test_runs_are_kept_where_the_command_line_finds_them(work: Path) -> None:
    model = ScriptedModel(["Sencha", "Done"])
    waiting = cuebook.run("tea.playbook.md", GREEN, model=model)
    assert (work.parent / "home" / "runs.db").is_file()
    found = cuebook.find(waiting.run[:6], model=model)
    assert (found.run, found.status, found.values) == (waiting.run, "awaiting_input", waiting.values)
    assert found.answer("one").ok
    with pytest.raises(cuebook.BadInput, match="There is no run"):
        cuebook.find("nothing")


def test_runs_may_be_kept_in_a_file_of_their_own(work: Path) -> None:
    done = cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel(["a", "b"]), store="own.db", unattended=True)
    assert cuebook.find(done.run, store=Path("own.db")).output == "b"
    assert not (work.parent / "home" / "runs.db").exists()


def test_a_store_object_stays_open_and_is_shared() -> None:
    store = MemoryStore()
    runs = [
        cuebook.run("tea.playbook.md", GREEN, model=ScriptedModel(["a", "b"]), store=store, unattended=True).run
        for _ in range(2)
    ]
    assert {row.id for row in asyncio.run(store.runs())} == set(runs)


def test_events_are_passed_on_as_they_happen() -> None:
    seen: list[Any] = []
    cuebook.run(
        "tea.playbook.md",
        GREEN,
        model=ScriptedModel(["a", "b"]),
        store=MemoryStore(),
        unattended=True,
        on_event=seen.append,
    )
    kinds = [type(event.event).__name__ for event in seen if isinstance(event, Entry)]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunFinished")


def test_an_artifact_is_saved_as_a_file_or_into_a_folder(work: Path) -> None:
    artifact = cuebook.Artifact("{}\n", "json")
    assert artifact.save(work) == work / "artifact.json"
    assert artifact.save("deep/down/it.txt").read_text() == "{}\n"
    assert cuebook.Artifact("x", "").suffix == ".md"


# --- files --------------------------------------------------------------------------------------------------


def prompted(work: Path, source: str) -> cuebook.Result:
    folder = work / "books"
    folder.mkdir()
    (folder / "tone.md").write_text("Be kind.")
    (work / "tone.md").write_text("Be rude.")
    (work / "outside.md").write_text("Outside.")
    (folder / "link.md").symlink_to(work / "outside.md")
    (folder / "book.md").write_text(f"# B\n\n## STEP 1: Do\n\n@prompt(file:{source})\n\nDo it.\n")
    return cuebook.run("books/book.md", model=ScriptedModel(["ok"]), store=MemoryStore())


def test_a_file_prompt_is_read_beside_the_playbook(work: Path) -> None:
    model = ScriptedModel(["ok"])
    assert prompted(work, "tone.md").ok
    cuebook.run("books/book.md", model=model, store=MemoryStore())
    assert model.requests[0].messages[-1].text == "Be kind.\n\nDo it."


def test_a_link_out_of_the_folder_of_the_playbook_fails_the_step(work: Path) -> None:
    result = prompted(work, "link.md")
    assert (result.status, result.steps[0].status) == ("failed", "failed")


def test_a_file_that_is_only_in_the_workspace_is_not_found(work: Path) -> None:
    result = prompted(work, "outside.md")
    assert result.ok
    assert "outside.md" in result.warnings[0]


# --- tools --------------------------------------------------------------------------------------------------

COUNTING = '# C\n\n## STEP 1: Count\n\n@tool(python, count, {"of": "tea"})\n'


def test_a_function_that_only_reads_is_called_at_once() -> None:
    def count(of: str) -> int:
        return len(of)

    result = cuebook.run(
        COUNTING, tools=[cuebook.tool(count, reads_only=True)], store=MemoryStore(), model=ScriptedModel([])
    )
    assert (result.ok, result.output) == (True, "3")


def test_any_other_function_waits_for_an_approval() -> None:
    called: list[str] = []

    def count(of: str) -> None:
        called.append(of)

    waiting = cuebook.run(COUNTING, tools=[count], store=MemoryStore(), model=ScriptedModel([]))
    assert (waiting.status, waiting.waits[0].kind, called) == ("awaiting_approval", "approval", [])
    assert waiting.waits[0].details["preview"] == {"arguments": '{\n  "of": "tea"\n}'}
    denied = waiting.decide("deny", reason="not today")
    assert (denied.status, called) == ("cancelled", [])


def test_a_function_that_raises_fails_the_step() -> None:
    def count(of: str) -> int:
        raise ValueError("nothing to count")

    result = cuebook.run(
        COUNTING, tools=[cuebook.tool(count, reads_only=True)], store=MemoryStore(), model=ScriptedModel([])
    )
    assert result.status == "failed"
    assert "raised ValueError: nothing to count" in (result.error or "")


def test_a_tool_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(cuebook.BadInput, match="3 is not a tool"):
        cuebook.run(COUNTING, tools=[3], store=MemoryStore())  # type: ignore[list-item]


def test_options_hold_for_the_run() -> None:
    text = "# A\n\n## STEP 1: B\n\nSay {{nothing}}.\n"
    result = cuebook.run(text, model=ScriptedModel(["Done"]), options={"strict": True})
    assert (result.status, "unknown variable 'nothing'" in str(result.error)) == ("failed", True)
    with pytest.raises(cuebook.BadInput, match="The option 'strikt' is not available"):
        cuebook.run(text, model=ScriptedModel(["Done"]), options={"strikt": True})


# --- programs -----------------------------------------------------------------------------------------------


def release(inputs: dict[str, Any]) -> Generator[Any, Any, str]:
    yield StepStarted("1", "Mark")
    made = yield RunCommand(("touch", inputs["file"]))
    yield StepFinished("1", output=made.stdout)
    answer = yield AskHuman("Tell people?", "confirm")
    yield Now()
    return str(answer.value)


async def test_a_program_continues_in_another_process_with_the_same_function(work: Path) -> None:
    async with cuebook.Programs(release, model=ScriptedModel([])) as programs:
        row = await programs.start("release", {"file": "marked"})
        assert (await programs.service.drive(row.id)).status == "awaiting_approval"
        assert not (work / "marked").exists()
    async with cuebook.Programs(release, model=ScriptedModel([])) as programs:
        waiting = await programs.result(row.id)
        await programs.service.decide(waiting.waits[0].id, "approve")
        finishing = asyncio.create_task(programs.finish(row.id, every=0.02))
        while not [wait for wait in await programs.service.inbox() if wait.kind == "question"]:
            await asyncio.sleep(0.02)
        (wait,) = await programs.service.inbox()
        await programs.service.answer(wait.id, "yes")
        assert (await asyncio.wait_for(finishing, 60)).status == "completed"
        assert (await programs.result(row.id)).result == "yes"
        assert "yield RunCommand" in await programs.service._store.playbook(row.playbook)
    assert (work / "marked").exists()


async def test_programs_run_playbooks_of_the_same_store_too() -> None:
    model = ScriptedModel(["Sencha", "Done"])
    started = await cuebook.arun(TEA, GREEN, model=model, breakpoints=[1], answers={"2": "two"})
    assert started.status == "paused"
    async with cuebook.Programs(release, model=model) as programs:
        await programs.service.resume(started.run)
        assert (await programs.service.drive(started.run)).status == "completed"


async def test_a_program_that_is_not_there_is_named() -> None:
    async with cuebook.Programs(release, model=ScriptedModel([])) as programs:
        with pytest.raises(cuebook.BadInput, match=r"Unknown program .rollback.\. Known programs: release"):
            await programs.start("rollback")


async def test_a_caller_does_the_steps_of_a_run_itself() -> None:
    waiting = await cuebook.arun(TEA, GREEN, model="host", answers={"2": "two"})
    assert (waiting.status, [wait.kind for wait in waiting.waits]) == ("awaiting_input", ["model"])
    first = await waiting.anext_step()
    assert "Choose a green tea." in first.messages[-1].text
    with pytest.raises(cuebook.BadInput, match="The result was refused: it is empty"):
        await waiting.acomplete_step(first.claim, " ")
    brewing = await waiting.acomplete_step(first.claim, "Sencha")
    last = await brewing.anext_step()
    assert "Brew two of Sencha." in last.messages[-1].text
    done = await brewing.acomplete_step(last.claim, "Done")
    assert (done.status, done.cost) == ("completed", None)


READING = "id: note\nname: Note\nentry: note\nnodes:\n  note: {name: Note, instruction: Read it.}\nedges: []\n"


def test_a_caller_uses_the_tools_of_a_step(work: Path) -> None:
    (work / "a.txt").write_text("seven")
    (work / "note.yml").write_text(READING)
    waiting = cuebook.run("note.yml", model="host")
    step = waiting.next_step()
    with pytest.raises(cuebook.BadInput, match="may not use the tool 'Teleport'"):
        waiting.call_step_tool(step.claim, "Teleport")
    after = waiting.call_step_tool(step.claim, "Read", {"path": "a.txt"})
    step = after.next_step()
    assert "seven" in step.results[0]
    assert after.complete_step(step.claim, "Seven.").ok
