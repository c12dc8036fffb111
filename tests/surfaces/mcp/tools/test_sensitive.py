"""Assistants mark inputs as sensitive: models get the values, and nothing that an assistant is shown or that is stored has them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.programs import eventually
from tests.surfaces.mcp.conftest import Connect

EMAIL = "ann.ohara@example.com"
MAIL = """\
# Mail

## INPUTS

- `email` (string): Whom to write to

## STEP 1: Write

Write to {{email}}.

@output(letter)

## STEP 2: End

@elicit(input, "Send {{letter}}?")

Thank them.
"""


def stored(cli: CommandLine) -> bytes:
    return b"".join(path.read_bytes() for path in cli.store.parent.glob(f"{cli.store.name}*"))


async def purged(cli: CommandLine) -> bool:
    return b"ohara@" not in stored(cli).lower()


def hidden(shown: Any) -> bool:
    return "ohara@" not in json.dumps(shown).lower()


async def test_a_marked_input_reaches_the_model_and_not_the_assistant(
    cli: CommandLine, connect_each_once: Connect, server: ModelServer
) -> None:
    server.script = lambda request: f"Dear {EMAIL.upper()}."
    given = {"input_values": {"email": EMAIL}, "sensitive": ["email"]}
    async with connect_each_once() as client:
        explained = await client.call("playbook_explain", content=MAIL, name="mail.md", **given)
        assert hidden(explained)
        assert "[sensitive email " in json.dumps(explained)
        waiting = await client.call("execute_playbook", content=MAIL, name="mail.md", **given)
        assert waiting["status"] == "awaiting_input", waiting
        run = waiting["execution_id"]
        ended = await client.call("respond_to_elicitation", execution_id=run, response=f"Yes, to {EMAIL}")
        assert ended["status"] == "completed"
        seen = await client.call("get_playbook_execution", execution_id=run)
        assert hidden([waiting, ended, seen])
        assert "[sensitive email " in json.dumps(seen)
        text = MAIL.partition("## STEP 2")[0]
        named = {"inputs": {"email": EMAIL}, "sensitive": ["email"]}
        assert hidden(await client.call("playbook_run", content=text, name="mail.md", **named))
        assert "There is no input 'mail'" in await client.refused(
            "execute_playbook", content=MAIL, name="mail.md", input_values={"email": EMAIL}, sensitive=["mail"]
        )
        await eventually(lambda: purged(cli))  # just after the runs have ended
    assert f"Write to {EMAIL}." in server.prompts[0]


async def test_an_assistant_that_does_the_steps_sees_the_mark_and_its_result_is_masked(
    cli: CommandLine, connect_each_once: Connect
) -> None:
    async with connect_each_once() as client:
        more = {"input_values": {"email": EMAIL}, "sensitive": ["email"], "model_id": "host"}
        started = await client.call("execute_playbook", content=MAIL, name="mail.md", **more)
        run = started["execution_id"]
        step = await client.call("next_step", execution_id=run)
        assert hidden(step)
        assert "Write to [sensitive email " in step["instruction"]
        claim = {"execution_id": run, "claim_id": step["claim_id"]}
        done = await client.call("complete_step", **claim, result=f"Dear {EMAIL}, or {EMAIL[::-1]}.")
        assert hidden(done)
        seen = await client.call("get_playbook_execution", execution_id=run)
        assert "Dear [sensitive email " in json.dumps(seen)
        assert hidden(seen)
    shown = cli.call("show", run, "--json").out + cli.call("events", run).out + cli.call("audit", run).out
    assert hidden(shown)
    assert EMAIL[::-1] not in shown
