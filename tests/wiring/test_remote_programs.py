"""A program with remote agents in a fully wired process: which questions are asked, and what is sent and stored."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import ScriptedModel
from cuebook.wiring.wiring import Wiring
from tests.dialects.program.machine.test_machine import program, reply
from tests.dialects.program.remote.test_cuebook_servers import on_the_network
from tests.gate.harness import bytes_below
from tests.performers.mcp.http_servers import on_the_network as good_server
from tests.wiring.test_skills import Place

SECRET = "the-word-of-the-agent-there"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    kept = ("PATH", "LANG", "PYTHONPATH")
    for name in [name for name in os.environ if name not in kept and not name.startswith(("PYTEST", "TMP"))]:
        monkeypatch.delenv(name)
    made = Place(tmp_path, monkeypatch)
    made.set("CUEBOOK_MODEL", "test/scripted")
    made.set("THERE_WORD", SECRET)
    return made


def allow(place: Place, url: str, secrets: str = 'allow = ["env:THERE_WORD"]') -> None:
    origin = url.rpartition("/")[0]
    policy = f'[egress]\nallow = ["* {origin}/*"]\n[tools]\nallow = ["There.*"]\n[secrets]\n{secrets}\n'
    (place.own / "policy.toml").write_text(policy)


async def played(place: Place, text: str, *says: str) -> tuple[Service, RunRow, list[WaitRow]]:
    """Drives a run to its end, approves everything, and keeps the questions."""
    wiring = Wiring(place.wiring().config, models={"test": ScriptedModel(list(says))})
    service = wiring.service(SqliteStore(place.folder / "runs.db", synchronous="NORMAL"))
    row = await service.start(Playbook.from_text(text, "far.pbasm"), {}, wiring.settings())
    row = await service.drive(row.id)
    asked = []
    while row.status == "awaiting_approval":
        (wait,) = await service.waits(row.id)
        asked.append(wait)
        if wait.kind == "in_doubt":
            break
        await service.decide(wait.id, "approve")
        row = await service.drive(row.id)
    return service, row, asked


def far(url: str, auth: str, steps: str, type: str = "mcp") -> str:
    remote = f"remote:\n  type: {type}\n  url: {url}\n  auth:\n{auth}"
    return program(steps, f"# There\nmetadata:\n{remote}\n---\nLives elsewhere.\n")


@pytest.mark.parametrize(
    ("auth", "header", "sent", "shown"),
    [
        ("    type: bearer\n    token: ${THERE_WORD}", "authorization", f"Bearer {SECRET}",
         "Authorization=Bearer [secret env:THERE_WORD]"),
        ("    type: api_key\n    key: env:THERE_WORD", "x-api-key", SECRET, "X-API-Key=[secret env:THERE_WORD]"),
        ("    type: basic\n    username: ada\n    password: ${THERE_WORD}", "authorization",
         f"Basic {b64encode(f'ada:{SECRET}'.encode()).decode()}", "Authorization=Basic ada:[secret env:THERE_WORD]"),
    ],
)  # fmt: skip
async def test_a_credential_is_sent_and_never_stored(
    place: Place, auth: str, header: str, sent: str, shown: str
) -> None:
    with good_server("json", "stateless") as url:
        allow(place, url)
        steps = f'- 01:QUE $a:dict = There.header(name="{header}")\n- 02:YLD for call\n- 03:RET $a'
        service, row, asked = await played(place, far(url, auth, steps))
        assert row.status == "completed", row.error
        assert [wait.prompt for wait in asked] == ["Use the tool server 'There'? The playbook brings it along."]
        assert asked[0].details["preview"]["headers"] == shown
        value = (await service.view(row.id)).result["value"]["result"]
        assert value != ""
        assert "env:THERE_WORD" in value
        await service.close()
    for form in (SECRET, b64encode(SECRET.encode()).decode().rstrip("=")[:-2], sent):
        assert form.encode() not in bytes_below(place.folder)


async def test_a_secret_that_the_policy_denies_is_not_sent(place: Place) -> None:
    with good_server("json", "stateless") as url:
        allow(place, url, 'deny = ["env:THERE_WORD"]')
        auth = "    type: bearer\n    token: ${THERE_WORD}"
        steps = "- 01:EXE $a:int = 1\n- 02:RET $a"
        service, row, asked = await played(place, far(url, auth, steps))
        assert asked == []
        warnings = [one async for one in service.entries(row.id)]
        assert "cannot be reached" in str(warnings)
        await service.close()


async def test_a_playbook_of_another_server_with_a_credential(place: Place) -> None:
    there = place.folder / "there"
    there.mkdir()
    with on_the_network(there) as url:
        allow(place, url)
        auth = "    type: bearer\n    token: ${THERE_WORD}"
        steps = "- 01:QUE $a:int = There.Double(n=4)\n- 02:YLD for call\n- 03:RET $a"
        service, row, _ = await played(place, far(url, auth, steps, "cuebook"))
        assert row.status == "completed", row.error
        assert (await service.view(row.id)).result["value"] == 8
        [line] = (there / "asked").read_text().splitlines()
        assert line.endswith(f"Bearer {SECRET}")
        await service.close()


async def test_a_call_that_takes_longer_than_the_agent_may_is_in_doubt(place: Place) -> None:
    with good_server("json", "stateless") as url:
        allow(place, url)
        auth = "    type: bearer\n    token: ${THERE_WORD}\n  timeout: 1.5"
        steps = "- 01:QUE $a:str = There.wait(seconds=60)\n- 02:YLD for call\n- 03:RET $a"
        says = reply('`Step["Main:03:RET"]` `Return[$a]` `Var[$__, "It took its time"]`')
        service, row, asked = await played(place, far(url, auth, steps), says)
        assert "did not answer within 1.5 seconds" in asked[-1].prompt
        await service.decide(asked[-1].id, "done", outcome={"value": "waited"})
        row = await service.drive(row.id)
        assert row.status == "completed", row.error
        assert (await service.view(row.id)).result["value"] == "waited"
        await service.close()
