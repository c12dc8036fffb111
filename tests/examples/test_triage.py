"""The workflow of `examples/triage`, with real processes: it finds, fixes and publishes, and a kill repeats nothing finished."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.triage import Triage
from tests.support.command_line import CommandLine
from tests.support.sampling import many

pytestmark = pytest.mark.needs("git")

RECEIVED = ["push", "pull request"]


@pytest.fixture
def triage(cli: CommandLine) -> Iterator[Triage]:
    made = Triage(cli)
    yield made
    made.close()


def received(triage: Triage) -> list[str]:
    return (triage.folder / "received.log").read_text().splitlines()


def test_a_bug_is_found_fixed_pushed_and_proposed_without_a_question(triage: Triage) -> None:
    ran = triage.cli.call("run", "triage.yml", "--no-ask")
    assert ran.code == 0, ran.err
    triage.assert_published_once()
    assert received(triage) == RECEIVED
    assert "// 100" in (triage.shop / "shop/prices.py").read_text()


@pytest.mark.timeout(600)  # many processes
def test_killed_at_many_moments_it_repeats_nothing_that_was_finished(triage: Triage) -> None:
    call: tuple[str, ...] | None = ("run", "triage.yml", "--no-ask")
    kills = left = 0

    def counted(event: dict[str, Any]) -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    while call is not None:
        left = many(11, 3) + kills % 4
        kills += triage.cli.until(*call, kill_at=counted)
        assert kills < 200
        call = triage.next_call()
    assert kills >= 5
    triage.assert_published_once()
    assert asyncio.run(triage.repeated()) == []
    assert triage.cli.call("verify", triage.run).code == 0
    assert triage.cli.call("replay", triage.run).code == 0
