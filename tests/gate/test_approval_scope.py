"""The scope of an approval: everything that is done and shown, and nothing else, also for effects in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.gate import approvals
from cuebook.kernel.effects import RunCommand, SendHttp
from cuebook.kernel.ports import Action, Description, Limits
from cuebook.kernel.run import Settings
from tests.gate.harness import BOOK, GateHarness, doing, settled
from tests.support.http_servers import Server, answer, redirect


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


def touch(name: str = "made.txt", **more: Any) -> RunCommand:
    return RunCommand(("touch", name), **more)


@pytest.mark.parametrize(
    ("method", "to", "approved", "follows"),
    [
        ("GET", "/other", True, True),
        ("GET", "/other", False, False),
        ("GET", "/kept/other", True, False),
        ("GET", "elsewhere", True, False),
        ("POST", "/other", True, False),
    ],
)
async def test_what_comes_up_on_the_way_is_only_done_where_it_reads_what_was_approved(
    harness: GateHarness, method: str, to: str, approved: bool, follows: bool
) -> None:
    async with (
        Server() as elsewhere,
        Server(redirect(to if to.startswith("/") else elsewhere.url("/other"), 307), answer()) as server,
    ):
        named = [f"HEAD {one.url('/')}" for one in (server, elsewhere)]
        allowed = [] if approved else [f"GET {server.url('/first')}"]
        harness.allow({"egress": {"allow": [*named, *allowed], "ask": [f"GET {server.url('/kept/*')}"]}})
        row = await harness.run(SendHttp(method, server.url("/first")))
        if approved:
            row = await harness.decide(row.id, "approve")
    assert (row.status, len(server.requests), elsewhere.connections) == (
        ("completed", 2, 0) if follows else ("failed", 1, 0)
    )
    assert follows or (row.error is not None and row.error.code == "forbidden")


async def test_no_part_of_a_secret_is_shown_where_a_preview_is_cut(harness: GateHarness) -> None:
    secret = "s3cret-of-the-test"
    harness.redactor.add("env:TOKEN", secret)
    for before in range(1_480, 1_501, 5):
        row = await harness.run(touch(stdin="x" * before + secret + "y" * 3_000))
        shown = (await harness.wait(row.id)).details["preview"]["stdin"]
        assert "more characters" in shown
        assert "s3cre" not in shown


SHOWN = Description((Action("command", "touch x"),), "Run touch x", {"command": "touch x"}, {"program": "abc"})


@pytest.mark.parametrize(
    ("effect", "description", "limits"),
    [
        (touch("y"), SHOWN, Limits()),
        (touch("x", env={"A": "b"}), SHOWN, Limits()),
        (touch("x"), msgspec.structs.replace(SHOWN, actions=(Action("command", "touch y"),)), Limits()),
        (touch("x"), msgspec.structs.replace(SHOWN, actions=(*SHOWN.actions, Action("tool", "network"))), Limits()),
        (touch("x"), msgspec.structs.replace(SHOWN, preview={"command": "touch y"}), Limits()),
        (touch("x"), msgspec.structs.replace(SHOWN, bound={"program": "abd"}), Limits()),
        (touch("x"), SHOWN, Limits(seconds=61.0)),
    ],
)
def test_an_approval_covers_everything_that_is_done_and_shown(
    effect: RunCommand, description: Description, limits: Limits
) -> None:
    assert approvals.digest(touch("x"), SHOWN, Limits()) == approvals.digest(touch("x"), SHOWN, Limits())
    assert approvals.digest(effect, description, limits) != approvals.digest(touch("x"), SHOWN, Limits())


async def test_what_is_in_doubt_is_shown_as_plainly_as_what_is_approved(harness: GateHarness) -> None:
    harness.allow({"commands": {"allow": ["*"]}})
    harness.redactor.add("env:TOKEN", "s3cret-of-the-test")
    command = ("sh", "-c", "touch begun; sleep 60", "\x1b[8m", "s3cret-of-the-test")
    harness.make = doing(RunCommand(command, stdin="x" * 2_000 + "EVIL" + "y" * 4_000))
    row = await harness.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo"))
    driving = asyncio.create_task(harness.service.drive(row.id))
    await settled((harness.workspace / "begun").exists)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await harness.service.drive(row.id)
    wait = await harness.wait(row.id)
    assert wait.kind == "in_doubt"
    for text in (wait.prompt, wait.details["preview"]["command"]):
        assert "<U+001B>[8m" in text
        assert "[secret env:TOKEN]" in text
        assert "s3cret" not in text
    assert "EVIL" not in wait.details["preview"]["stdin"]
    assert "EVIL" in harness.service.in_full(wait).details["preview"]["stdin"]
