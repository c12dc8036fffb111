"""`cuebook show RUN --state`: the state of a run as the format of its playbook has it."""

from __future__ import annotations

import asyncio
from typing import Any

from cuebook.kernel.effects import Program
from cuebook.kernel.run import Settings
from cuebook.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

TEN = [
    "execution_id", "playbook_id", "model_id", "system_prompt", "input_values", "step_outputs", "named_outputs",
    "breakpoints", "status", "paused_at_step",
]  # fmt: skip

BOOK = """\
# Tea

## SYSTEM

Be brief.

## INPUTS

- `kind` (string: green): Which tea

## STEP 1: Choose

Choose a {{kind}} tea.

@output(tea)

## STEP 2: Ask

@elicit(select, "How strong?", "strong", "mild")
@output(strength)

## STEP 3: Serve

Serve it.
"""


def state_of(desk: Desk, run: str) -> dict[str, Any]:
    ran = desk.call("show", run, "--state")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.object)[:10] == TEN
    return dict(ran.object)


def test_the_state_is_exported_wherever_the_run_stands(desk: Desk, server: ModelServer) -> None:
    desk.write("book.md", BOOK)
    server.replies = ["Sencha.", "Served.", 401]
    run = desk.call("run", "book.md", "--kind", "white", "--break", "1", "--json").object["run"]
    assert {name: state_of(desk, run)[name] for name in TEN} == {
        "execution_id": run,
        "playbook_id": "book.md",
        "model_id": "test/echo-1",
        "system_prompt": "Be brief.",
        "input_values": {"kind": "white"},
        "step_outputs": {"1": "Sencha."},
        "named_outputs": {"tea": "Sencha."},
        "breakpoints": {"1": True},
        "status": "paused",
        "paused_at_step": 1,
    }
    desk.call("resume", run, "--set", "tea=Bancha", "--break", "2")
    asked = state_of(desk, run)
    assert (asked["status"], asked["paused_at_step"], asked["breakpoints"]) == ("awaiting_input", 2, {"2": True})
    assert asked["named_outputs"] == {"tea": "Bancha"}
    assert asked["elicitation"]["options"] == ["strong", "mild"]
    assert asked["source"] == BOOK
    desk.call("answer", run, "mild")
    desk.call("resume", run)
    done = state_of(desk, run)
    assert (done["status"], done["paused_at_step"]) == ("completed", None)
    assert done["named_outputs"] == {"tea": "Bancha", "__elicit_step_2": "mild", "strength": "mild"}
    assert done["step_outputs"] == {"1": "Sencha.", "2": "mild", "3": "Served."}
    failed = desk.call("run", "tea.md", "--json").object["run"]
    assert (state_of(desk, failed)["status"], state_of(desk, failed)["step_outputs"]) == ("failed", {})


def test_a_run_that_waits_for_an_approval_is_paused_and_says_for_what(desk: Desk) -> None:
    tool = '@tool(builtin, Write, {"path": "tea.txt", "content": "Sencha"})'
    desk.write("book.md", f"# Tea\n\n## STEP 1: Write\n\n{tool}\n")
    waiting = desk.call("run", "book.md", "--json").object
    assert waiting["status"] == "awaiting_approval"
    state = state_of(desk, waiting["run"])
    assert (state["status"], state["paused_at_step"], state["waiting_for"]) == ("paused", 1, "approval")
    desk.call("decide", waiting["run"], "approve")
    done = state_of(desk, waiting["run"])
    assert (done["status"], done["waiting_for"]) == ("completed", None)


def test_a_run_whose_dialect_has_no_such_state_says_so(bare_desk: Desk) -> None:
    def program(state: Any) -> Program[Any]:
        return 1
        yield

    async def a_run() -> str:
        service = Service(SqliteStore(bare_desk.store), {}, programs=lambda row, text, inputs, options: program)
        row = await service.start("", "mine", {}, Settings())
        await service.drive(row.id)
        await service.close()
        return row.id

    run = asyncio.run(a_run())
    ran = bare_desk.call("show", run, "--state")
    assert (ran.code, ran.out) == (2, "")
    assert f"Run {run} has no state to export: its dialect, python, does not say what one looks like." in ran.err
    assert f"`cuebook show {run} --json` shows it." in ran.err


def test_one_thing_is_printed_at_a_time(desk: Desk) -> None:
    run = desk.call("run", "tea.md", "--json").object["run"]
    ran = desk.call("show", run, "--state", "--output")
    assert (ran.code, "do not go together" in ran.err) == (2, True)
