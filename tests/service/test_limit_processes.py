"""Limits that two worker processes on one database keep together, and that outlive the death of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.events import Noted
from cuebook.kernel.run import Settings
from tests.service.test_worker_processes import Workers, driver_of, ended
from tests.support.model_server import ModelServer
from tests.support.programs import eventually
from tests.support.runtime import RuntimeHarness
from tests.support.shared_stores import shared_place, url_of

pytestmark = pytest.mark.needs("postgres")

BOOK = "# Book\n\n## INPUTS\n\n- `word` (string: fast): x\n\n## STEP 1: Say\n\nSay {{word}}.\n"


@pytest.fixture
def models() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


@pytest.fixture
async def runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: ModelServer
) -> AsyncIterator[RuntimeHarness]:
    made = RuntimeHarness(tmp_path, monkeypatch)
    with shared_place("postgres", tmp_path):
        made.place = url_of(tmp_path)
        monkeypatch.setenv("WORKERS_KEY", "k" * 64)
        monkeypatch.setenv("CUEBOOK_SIGNING_KEY", "env:WORKERS_KEY")
        configure(made, models)
        made.open()
        yield made
        await made.close()


@pytest.fixture
def workers(runtime: RuntimeHarness) -> Iterator[Workers]:
    made = Workers(runtime)
    yield made
    made.end()


def configure(runtime: RuntimeHarness, models: ModelServer, provider: str = "", limits: str = "") -> None:
    text = f'[providers.lab]\nbase_url = "{models.url}"\n{provider}\n\n[limits]\n{limits}\n'
    (runtime.config / "cuebook.toml").write_text(text)


async def start(runtime: RuntimeHarness, word: str, tenant: str = "local") -> str:
    settings = Settings(model="lab/echo-1", workspace=runtime.wiring.factory.workspace.path)
    book = Playbook.from_text(BOOK, "book.md")
    return (await runtime.service.start(book, {"word": word}, settings, Principal(tenant=tenant))).id


async def test_two_workers_together_make_no_more_calls_at_once_than_the_provider_allows(
    runtime: RuntimeHarness, workers: Workers, models: ModelServer
) -> None:
    configure(runtime, models, provider="at_once = 3")
    models.pause = 0.1
    workers.hire()
    workers.hire()
    runs = [await start(runtime, f"word {number}") for number in range(14)]
    assert [await ended(runtime, run) for run in runs] == ["completed"] * 14
    assert models.most_under_way == 3
    assert len(models.requests) == 14
    noted = [entry.event for run in runs async for entry in runtime.service.entries(run)]
    waited = [event.data for event in noted if isinstance(event, Noted) and event.name == "model_waiting"]
    assert waited
    assert waited[0] == {"provider": "lab", "at_once": 3}


async def test_two_workers_together_drive_no_more_runs_of_a_tenant_than_allowed_and_one_may_die(
    runtime: RuntimeHarness, workers: Workers, models: ModelServer
) -> None:
    """The workers cannot inspect each other's processes, as on two machines: the lease of the dead one must expire."""
    configure(runtime, models, limits="tenant_runs = 2")
    slow = Slow()
    models.script = slow
    workers.hire("one|1|1|1|1")
    workers.hire("two|2|2|2|2")
    many = [await start(runtime, "slow") for _ in range(10)]
    other = await start(runtime, "fast", tenant="other")
    assert await ended(runtime, other) == "completed"

    async def begun(count: int) -> None:
        async def reached() -> bool:
            return slow.begun >= count

        await eventually(reached, 90)

    await begun(2)
    rows = [await runtime.service.row(run) for run in many]
    assert [row.status for row in rows].count("pending") == 8
    drivers = [row.driver for row in rows if row.driver]
    victim = driver_of(next(row.id for row in rows if row.driver), workers, runtime)
    assert slow.begun == 2, "until now never more than two"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    await begun(2 + drivers.count(drivers[0]))  # others have what it held, although no reply has come yet
    slow.go.set()
    assert [await ended(runtime, run) for run in many] == ["completed"] * 10


class Slow:
    """A reply that takes until it is released, for those who ask for it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = 0

    def __call__(self, request: dict[str, Any]) -> str:
        if "slow" not in str(request["messages"][-1]["content"]):
            return "At once."
        self.begun += 1
        self.go.wait(60)
        return "At last."
