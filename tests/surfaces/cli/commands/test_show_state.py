"""`cuebook show RUN --state`: the state of a run as its playbook's format defines it."""

from __future__ import annotations

import asyncio
from typing import Any

from cuebook.kernel.effects import Program
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

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


def state_of(cli: CommandLine, run: str) -> dict[str, Any]:
    ran = cli.call("show", run, "--state")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.object)[:10] == TEN
    return dict(ran.object)


def test_the_state_is_exported_at_every_status(cli: CommandLine, server: ModelServer) -> None:
    cli.write("book.md", BOOK)
    server.replies = ["Sencha.", "Served.", 401]
    run = cli.call("run", "book.md", "--kind", "white", "--break", "1", "--json").object["run"]
    assert {name: state_of(cli, run)[name] for name in TEN} == {
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
    cli.call("resume", run, "--set", "tea=Bancha", "--break", "2")
    asked = state_of(cli, run)
    assert (asked["status"], asked["paused_at_step"], asked["breakpoints"]) == ("awaiting_input", 2, {"2": True})
    assert asked["named_outputs"] == {"tea": "Bancha"}
    assert asked["elicitation"]["options"] == ["strong", "mild"]
    assert asked["source"] == BOOK
    cli.call("answer", run, "mild")
    cli.call("resume", run)
    done = state_of(cli, run)
    assert (done["status"], done["paused_at_step"]) == ("completed", None)
    assert done["named_outputs"] == {"tea": "Bancha", "__elicit_step_2": "mild", "strength": "mild"}
    assert done["step_outputs"] == {"1": "Sencha.", "2": "mild", "3": "Served."}
    failed = cli.call("run", "tea.md", "--json").object["run"]
    assert (state_of(cli, failed)["status"], state_of(cli, failed)["step_outputs"]) == ("failed", {})


def test_a_run_that_waits_for_an_approval_is_paused_and_says_for_what(cli: CommandLine) -> None:
    tool = '@tool(builtin, Write, {"path": "tea.txt", "content": "Sencha"})'
    cli.write("book.md", f"# Tea\n\n## STEP 1: Write\n\n{tool}\n")
    waiting = cli.call("run", "book.md", "--json").object
    assert waiting["status"] == "awaiting_approval"
    state = state_of(cli, waiting["run"])
    assert (state["status"], state["paused_at_step"], state["waiting_for"]) == ("paused", 1, "approval")
    cli.call("decide", waiting["run"], "approve")
    done = state_of(cli, waiting["run"])
    assert (done["status"], done["waiting_for"]) == ("completed", None)


def test_a_run_whose_dialect_has_no_such_state_says_so(bare_cli: CommandLine) -> None:
    def program(state: Any) -> Program[Any]:
        return 1
        yield

    async def a_run() -> str:
        service = Service(SqliteStore(bare_cli.store), {}, programs=lambda row, text, inputs, options: program)
        row = await service.start_program("", "mine", {}, Settings())
        await service.drive(row.id)
        await service.close()
        return row.id

    run = asyncio.run(a_run())
    ran = bare_cli.call("show", run, "--state")
    assert (ran.code, ran.out) == (2, "")
    assert f"Run {run} has no state to export: its dialect, python, does not define one." in ran.err
    assert f"`cuebook show {run} --json` shows the run." in ran.err


def test_one_thing_is_printed_at_a_time(cli: CommandLine) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    ran = cli.call("show", run, "--state", "--output")
    assert (ran.code, "are mutually exclusive" in ran.err) == (2, True)
