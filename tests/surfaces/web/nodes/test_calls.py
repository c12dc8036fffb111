"""Steps that are performed by a node: with a connection that is cut, a node that is absent, and one that was interrupted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.performers.nodes.protocol import Call, Finished, Outcome, Refused
from cuebook.service.dispatch.remote import RemoteWorker
from tests.support.scripted_node import ScriptedNode, joined
from tests.surfaces.web.served_app import ServedApp

ONE = """
name: Remote
steps:
  - id: make
    command: node command run argv:='["make","test"]'
    node: shop
    {more}
"""
ALLOWED = """
[commands]
allow = ["*"]
[tools]
allow = ["node:*"]
"""


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    served = ServedApp(tmp_path, monkeypatch, ALLOWED)
    await served.serve()
    yield served
    await served.stop()


async def paired(app: ServedApp, name: str = "shop", **given: Any) -> ScriptedNode:
    _, token = await app.service.nodes.add(name)
    return ScriptedNode(str(app.client.base_url).rstrip("/"), token, host=f"{name}-host", **given)


async def begin(app: ServedApp, text: str = ONE, more: str = "") -> str:
    return await app.begin(playbook=app.book("remote.yaml", text.replace("{more}", more)))


async def outcome(app: ServedApp, run: str) -> dict[str, Any]:
    return await app.until(run, "completed", "failed", "awaiting_approval")


async def test_a_step_runs_on_the_node_and_its_output_is_the_steps(app: ServedApp) -> None:
    async with joined(await paired(app)) as node:
        run = await begin(app)
        done = await outcome(app, run)
        assert done["status"] == "completed", done
        assert node.calls[0].arguments == {"argv": ["make", "test"]}
        assert (node.calls[0].run, node.calls[0].step) == (run, "make")
        artifact = await app.client.get(f"/api/runs/{run}/artifact")
        assert '"make"' in artifact.text
        async with asyncio.timeout(10):
            while node.forgotten != [node.calls[0].id]:
                await asyncio.sleep(0.01)


async def test_a_run_waits_for_an_absent_node_and_goes_on_when_it_connects(app: ServedApp) -> None:
    node = await paired(app)
    run = await begin(app)
    waiting = await app.until(run, "paused")
    assert waiting["reason"] == "needs", waiting
    async with asyncio.timeout(20):
        while app.service.drives(run):
            await asyncio.sleep(0.01)
    page = (await app.client.get(f"/runs/{run}", headers={"Accept": "text/html"})).text
    assert "This run waits for node shop to connect." in page, page[
        page.index("run-waits") : page.index("run-waits") + 600
    ]
    (pill,) = re.findall(r'id="run-status".*?<span class="pill" data-status="(\w+)".*?<span>([^<]*)</span>', page, re.S)
    assert pill == ("paused", "waiting for node shop to connect")
    async with joined(node):
        assert (await outcome(app, run))["status"] == "completed"
    answer = await app.client.get(f"/api/runs/{run}/stream")
    shown = re.findall(r'id=\\"run-status\\".*?data-status=\\"(\w+)\\"', answer.text)
    assert [one for one, before in zip(shown, ["", *shown], strict=False) if one != before] == [
        "running",
        "paused",
        "running",
        "completed",
    ]


async def test_with_a_timeout_the_wait_for_a_node_ends_in_a_failure_that_says_what_to_do(app: ServedApp) -> None:
    await paired(app)
    run = await begin(app, more="timeout_ms: 300")
    failed = await outcome(app, run)
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "node_absent"
    assert "shop" in failed["error"]["message"]
    assert "never connected" in failed["error"]["message"]
    assert "cuebook node --connect" in str(failed["error"])


async def test_a_connection_that_is_cut_during_a_call_changes_nothing(app: ServedApp) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> Outcome | None:
        begun.set()
        await go.wait()
        return Finished(id=call.id, text="made\n", exit_code=0)

    async with joined(await paired(app, answer=slow)) as node:
        run = await begin(app)
        await begun.wait()
        await node.cut()
        go.set()
        await node.join()
        assert (await outcome(app, run))["status"] == "completed"
        assert len(node.calls) == 1
        assert node.asked == [node.calls[0].id]


async def test_a_node_whose_process_ended_during_a_call_leaves_it_in_doubt(app: ServedApp) -> None:
    begun = asyncio.Event()

    async def never(call: Call) -> Outcome | None:
        begun.set()
        return None

    async with joined(await paired(app, answer=never)) as node:
        run = await begin(app)
        await begun.wait()
        await node.cut()
        node.interrupted.add(node.calls[0].id)
        await node.join()
        wait = (await outcome(app, run))["waits"][0]
        assert wait["kind"] == "in_doubt"
        assert "process of node 'shop' ended while it was under way" in wait["prompt"]
        assert "command run on node shop" in wait["prompt"]


async def test_a_node_that_does_not_come_back_in_time_leaves_the_call_in_doubt_unless_it_may_be_repeated(
    app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.performers.nodes.performer._TO_END", 0.1)
    begun = asyncio.Event()

    async def never(call: Call) -> Outcome | None:
        begun.set()
        return None

    async with joined(await paired(app, answer=never)) as node:
        run = await begin(app, more="timeout_ms: 1000")
        await begun.wait()
        await node.cut()
        wait = (await outcome(app, run))["waits"][0]
        assert wait["kind"] == "in_doubt"
        assert "was cut off and did not come back" in wait["prompt"]
        begun.clear()
        await node.join()
        again = await begin(app, more="timeout_ms: 1000\n    idempotent: true")
        await begun.wait()
        failed = await outcome(app, again)
        assert failed["status"] == "failed"
        assert failed["error"]["code"] == "timeout"
        assert node.stopped == [node.calls[-1].id]


async def test_a_step_that_takes_too_long_names_the_limit_as_it_was_written(app: ServedApp) -> None:
    async def slow(call: Call) -> Outcome | None:
        await asyncio.sleep(1.2)
        return Refused(id=call.id, code="cancelled", message="It was stopped.", began=True)

    async with joined(await paired(app, answer=slow)):
        run = await begin(app, more="timeout_ms: 700")
        wait = (await outcome(app, run))["waits"][0]
        assert "when the 0.7 s of the step (timeout_ms) had passed" in wait["prompt"]


async def test_what_a_node_does_not_offer_or_refuses_is_not_done(app: ServedApp) -> None:
    async def refusing(call: Call) -> Outcome | None:
        return Refused(id=call.id, code="not_allowed", message="'make test' is not allowed here.", fix="Allow it.")

    async with joined(await paired(app, answer=refusing)) as node:
        codes: dict[str, tuple[str, str]] = {}
        for command in ("door open", "command jump", "command run", "command run argv:='[\"make\"]'"):
            text = ONE.replace('command run argv:=\'["make","test"]\'', command)
            failed = await outcome(app, await begin(app, text))
            codes[command] = (failed["error"]["code"], failed["error"]["message"])
        assert [code for code, _ in codes.values()] == ["not_offered", "not_offered", "bad_arguments", "not_allowed"]
        assert "Node 'shop' does not offer 'door'" in codes["door open"][1]
        assert len(node.calls) == 1


async def test_the_only_node_that_offers_it_is_used_and_of_several_one_must_be_named(app: ServedApp) -> None:
    text = ONE.replace("    node: shop\n", "")
    async with joined(await paired(app)) as node:
        assert (await outcome(app, await begin(app, text)))["status"] == "completed"
        async with joined(await paired(app, "barn")):
            failed = await outcome(app, await begin(app, text))
            assert failed["error"]["code"] == "node_ambiguous"
            assert "barn, shop" in failed["error"]["message"]
        assert len(node.calls) == 1


async def test_a_secret_is_sent_only_where_nobody_on_the_way_can_read_it(
    app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_CODE", "a-secret-of-nine-words")
    app.rule(ALLOWED + '[secrets]\nallow = ["env:DOOR_CODE"]\n')
    text = ONE.replace('make","test"]\'', "make\"]' token=secret:env:DOOR_CODE")
    node = await paired(app)
    far = {"X-Forwarded-For": "192.0.2.7"}
    async with joined(node, more=far):
        failed = await outcome(app, await begin(app, text))
        assert failed["error"]["code"] == "insecure_secret"
    assert node.calls == []
    async with joined(node, more={**far, "X-Forwarded-Proto": "https"}):
        assert (await outcome(app, await begin(app, text)))["status"] == "completed"
    async with joined(node):
        run = await begin(app, text)
        assert (await outcome(app, run))["status"] == "completed"
    assert [call.arguments["token"] for call in node.calls] == ["a-secret-of-nine-words"] * 2
    events = (await app.client.get(f"/api/runs/{run}/events")).text
    assert "a-secret-of-nine-words" not in events
    assert "env:DOOR_CODE" in events


async def test_the_policy_decides_and_an_approval_names_the_node(app: ServedApp) -> None:
    app.rule('[tools]\nask = ["node:*"]\n')
    text = ONE.replace("    node: shop\n", "")
    async with joined(await paired(app)) as node:
        run = await begin(app, text)
        wait = (await outcome(app, run))["waits"][0]
        assert wait["kind"] == "approval"
        [row] = await app.service.waits(run)
        assert row.details["preview"]["node"] == "shop (shop-host)"
        assert "make" in row.details["preview"]["arguments"]
        assert node.calls == []
        await app.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve")
        assert (await app.until(run, "completed", "failed"))["status"] == "completed"
    app.rule('[tools]\ndeny = ["node:shop/command.*"]\n')
    async with joined(node):
        failed = await outcome(app, await begin(app, text))
        assert (failed["error"]["code"], len(node.calls)) == ("forbidden", 1)


async def test_a_cancelled_run_ends_its_call_on_the_node(app: ServedApp) -> None:
    begun = asyncio.Event()

    async def never(call: Call) -> Outcome | None:
        begun.set()
        return None

    async with joined(await paired(app, answer=never)) as node:
        run = await begin(app)
        await begun.wait()
        await app.post(f"/api/runs/{run}/cancel")
        assert (await app.until(run, "cancelled"))["status"] == "cancelled"
        async with asyncio.timeout(10):
            while node.stopped != [node.calls[0].id]:
                await asyncio.sleep(0.01)


async def test_other_branches_go_on_while_one_waits_for_a_node(app: ServedApp) -> None:
    text = """
name: Both
steps:
  - id: both
    parallel: all
    branches:
      far:
        - {id: make, command: "node command run argv:='[]'", node: shop}
      here:
        - {id: ask, input: {text: Go on?}}
        - {id: say, command: cli echo said}
"""
    node = await paired(app)
    run = await app.begin(playbook=app.book("both.yaml", text))
    wait = (await app.until(run, "awaiting_input"))["waits"][0]
    await app.post(f"/api/waits/{wait['wait']}/answer", 200, value="yes")
    waiting = await app.until(run, "paused")
    assert waiting["reason"] == "needs"
    assert {one["label"]: one["status"] for one in waiting["steps"]}["say"] == "completed"
    async with joined(node):
        assert (await outcome(app, run))["status"] == "completed"


async def test_where_other_processes_drive_the_runs_a_server_still_drives_those_that_need_its_nodes(
    app: ServedApp,
) -> None:
    await app.site.worker.close()
    remote = RemoteWorker(app.service, app.wiring.factory.workspace.path)
    await remote.open()
    run = await begin(app)
    await app.service.drive(run)  # as a worker does
    assert (await app.service.row(run)).reason == "needs"
    async with joined(await paired(app)):
        assert (await outcome(app, run))["status"] == "completed"
    await remote.close()
