"""A web server shows what workers on other machines are doing, and people answer there what those runs ask."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing

import httpx2
import pytest

from tests.service.fleet.fleet import PATIENCE, Fleet
from tests.support.model_server import ModelServer
from tests.support.programs import eventually

pytestmark = pytest.mark.needs("postgres")

TOLD = "# Told\n\n## STEP 1: A\n\nTell a story.\n"
ASKED = '# Asked\n\n## STEP 1: A\n\n@elicit(input, "Which?")\n\nSay it.\n'


def serve(fleet: Fleet) -> httpx2.Client:
    """A client that is signed in to `cuebook serve` on a machine that does not have the workspace of the runs."""
    folder = fleet.folder / "server"
    folder.mkdir()
    machine = fleet.begin("serve", "--port", "0", folder=folder)
    assert machine.process.stdout is not None
    found = re.search(r"http://\S+", machine.process.stdout.readline().decode())
    assert found is not None, machine.said
    client = httpx2.Client(base_url=found[0].partition("/sign-in")[0], timeout=PATIENCE, trust_env=False)
    assert client.get(found[0]).status_code == 303
    return client


def events(client: httpx2.Client, run: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The events of a run's page, as they arrive."""
    name = ""
    with client.stream("GET", f"/api/runs/{run}/stream") as response:
        for line in response.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)


async def test_text_streams_from_a_worker_before_the_reply_is_complete(fleet: Fleet, server: ModelServer) -> None:
    await fleet.use_model(server.url)
    server.replies = ["Once upon a time."]
    server.hold_at = 1
    with closing(serve(fleet)) as client:
        fleet.hire_elsewhere()
        run = await fleet.start(TOLD)

        def whole_text() -> str:
            arriving = events(client, run)
            text = next(data["content"] for name, data in arriving if name == "step-content")
            assert server.hold_at == 1, "the model has not been released yet"
            server.release()
            return text + "".join(data["content"] for name, data in arriving if name == "step-content")

        assert (await asyncio.to_thread(whole_text)).startswith("Once")
        await fleet.finish([run])
        assert len(await fleet.drivers(run)) == 1
    await fleet.check([run])


async def test_the_inbox_has_the_waits_of_all_workers(fleet: Fleet, server: ModelServer) -> None:
    await fleet.use_model(server.url)
    for _ in range(2):
        fleet.hire_elsewhere("--at-once", "1").until_up()
    runs = [await fleet.start(ASKED) for _ in range(4)]
    for run in runs:
        await fleet.until(run, "awaiting_input")
    with closing(serve(fleet)) as client:

        async def shown() -> list[dict[str, str]]:
            found = (await asyncio.to_thread(client.get, "/api/inbox")).json()
            return found if isinstance(found, list) else found["waits"]

        waits = await eventually(shown)
        assert {wait["run"] for wait in waits} == set(runs)
        for wait in waits:
            path = f"/api/waits/{wait['wait']}/answer"
            given = await asyncio.to_thread(client.post, path, json={"value": "this"})
            assert given.status_code == 200, given.text
        await fleet.finish(runs)
        assert (await asyncio.to_thread(client.get, f"/runs/{runs[0]}")).status_code == 200
    await fleet.check(runs)
