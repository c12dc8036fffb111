"""The rate limit for starting runs: off by default, counted per person, including restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.config.settings import Rate
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.service.rate_limit import TooManyRuns
from cuebook.service.service import Service
from tests.support.command_line import CommandLine
from tests.support.programs import performers

TEXT = "# Tea\n\n## STEP 1: Choose\n\nWhich tea?\n"
ANN, BEN = Principal("ann"), Principal("ben")


async def test_the_limit_applies_to_each_person_until_the_period_is_over(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    service = Service(store, performers(tmp_path), rate=Rate(2, "hour"), clock=lambda: now[0])

    async def start(who: Principal) -> str:
        return (await service.start(Playbook.from_text(TEXT, "tea.md"), {}, Settings(model="test/x"), who)).id

    first = await start(ANN)
    await service.drive(first)
    now[0] = 2000.0
    await service.restart(first, "1", who=ANN)
    now[0] = 3000.0
    with pytest.raises(TooManyRuns, match="2 runs were started within the last hour") as refused:
        await start(ANN)
    assert refused.value.retry_after == 1600
    with pytest.raises(TooManyRuns):
        await service.restart(first, "1", who=ANN)
    assert len(await service.runs(who=ANN)) == 2
    await start(BEN)
    now[0] = 4600.0
    await start(ANN)
    await service.close()


@pytest.mark.parametrize(("text", "rate"), [("20/hour", Rate(20, "hour")), ("5 per minute", Rate(5, "minute"))])
def test_a_rate_is_read(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize("text", ["", "0/hour", "20", "20/week", "-1/day", "1.5/hour"])
def test_an_invalid_rate_is_none(text: str) -> None:
    assert Rate.parse(text) is None


def test_the_command_line_respects_the_configured_limit(cli: CommandLine) -> None:
    cli.environ["CUEBOOK_RATE_LIMIT"] = "1/day"
    assert cli.call("run", "tea.md").code == 0
    ran = cli.call("run", "tea.md")
    assert (ran.code, ran.out) == (2, "")
    assert "1 run was started within the last day" in ran.err
    cli.environ["CUEBOOK_RATE_LIMIT"] = "none"
    assert cli.call("run", "tea.md").code == 0


def test_a_project_cannot_raise_it(cli: CommandLine) -> None:
    cli.write("cuebook.toml", 'rate_limit = "1000/minute"\n')
    ran = cli.call("run", "tea.md")
    assert (ran.code, "rate_limit" in ran.err) == (2, True)
