"""Nodes and real server processes: one that is killed, and a command line next to one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cuebook.performers.nodes.protocol import Call, Finished, Outcome
from tests.support.command_line import CommandLine, finished
from tests.support.scripted_node import ScriptedNode
from tests.surfaces.web.test_serve import Serving

POLICY = '[tools]\nallow = ["node:*"]\n'
STEPS = """
name: {name}
steps:
  - id: make
    command: node command run argv:='["{name}"]'
    node: shop
"""


@asynccontextmanager
async def place(kind: str, cli: CommandLine) -> AsyncIterator[None]:
    """A store of this kind, which the command line uses."""
    (cli.home / "config" / "cuebook").mkdir(parents=True)
    (cli.home / "config" / "cuebook" / "policy.toml").write_text(POLICY)
    if kind == "sqlite":
        yield
        return
    from tests.support.postgres import server

    with server().schema() as url:
        cli.environ |= {"CUEBOOK_STORE": url, "TEAM_KEY": "k" * 40, "CUEBOOK_SIGNING_KEY": "env:TEAM_KEY"}
        yield


class Parts:
    """The servers and the node of a test, which are ended after it."""

    def __init__(self, cli: CommandLine) -> None:
        self._cli = cli
        self._servers: list[Serving] = []
        self._nodes: list[ScriptedNode] = []

    async def server(self) -> Serving:
        self._servers.append(made := await asyncio.to_thread(Serving, self._cli))
        return made

    async def node(self, serving: Serving) -> ScriptedNode:
        added = await asyncio.to_thread(self._cli.call, "nodes", "add", "shop", "--json")
        assert added.code == 0, added
        self._nodes.append(made := ScriptedNode(str(serving.client.base_url).rstrip("/"), added.object["token"]))
        return await made.join()

    async def end(self) -> None:
        for node in self._nodes:
            await node.close()
        for one in self._servers:
            one.client.close()
            if one.process.poll() is None:
                one.process.kill()
            await asyncio.to_thread(one.process.communicate)


@pytest.fixture
async def parts(bare_cli: CommandLine) -> AsyncIterator[Parts]:
    made = Parts(bare_cli)
    yield made
    await made.end()


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
async def test_after_the_death_of_a_server_a_node_is_asked_what_became_of_its_calls(
    bare_cli: CommandLine, parts: Parts, kind: str
) -> None:
    for name in ("ends", "lost", "dies"):
        bare_cli.write(f"{name}.yaml", STEPS.format(name=name))

    async def answer(call: Call) -> Outcome | None:
        return Finished(id=call.id, text="made\n", exit_code=0) if begun.get("killed") else None

    begun: dict[str, Any] = {}
    async with place(kind, bare_cli):
        first = await parts.server()
        node = await parts.node(first)
        node.answer = answer

        def start(name: str) -> str:
            response = first.client.post("/api/runs", json={"playbook": name})
            assert response.status_code == 201, response.text
            return str(response.json()["run"])

        runs = {name: await asyncio.to_thread(start, name) for name in ("ends", "lost", "dies")}
        await until(lambda: len(node.calls) == 3)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        await node.ended()
        of = {str(call.arguments["argv"][0]): call.id for call in node.calls}
        node.ledger[of["ends"]] = Finished(id=of["ends"], text="made before\n", exit_code=0)
        del node.ledger[of["lost"]]  # as if the message had not arrived
        node.interrupted.add(of["dies"])
        begun["killed"] = True
        second = await parts.server()
        node.address = str(second.client.base_url).rstrip("/").replace("http", "ws")
        await node.join()
        for name in ("ends", "lost"):
            done = await asyncio.to_thread(second.until, runs[name], "completed", "failed", "awaiting_approval")
            assert done["status"] == "completed", done
        doubt = await asyncio.to_thread(second.until, runs["dies"], "awaiting_approval", "completed", "failed")
        assert doubt["waits"][0]["kind"] == "in_doubt"
        assert "ended while it was under way" in doubt["waits"][0]["prompt"]
        assert sorted(str(call.arguments["argv"][0]) for call in node.calls) == ["dies", "ends", "lost", "lost"]
        assert set(node.asked) >= set(of.values())
        artifact = await asyncio.to_thread(second.client.get, f"/api/runs/{runs['ends']}/artifact")
        assert "made before" in artifact.text
        await parts.end()


async def test_a_run_in_a_terminal_leaves_the_step_to_the_server_that_holds_the_connection(
    bare_cli: CommandLine, parts: Parts
) -> None:
    path = bare_cli.write("remote.yaml", STEPS.format(name="here") + "  - {id: after, command: cli echo after}\n")
    async with place("sqlite", bare_cli):
        (bare_cli.home / "config" / "cuebook" / "policy.toml").write_text(POLICY + '[commands]\nallow = ["*"]\n')
        alone = await asyncio.to_thread(bare_cli.call, "run", path)
        assert "waits for node shop to connect" in alone.out + alone.err, alone
        assert "nodes list" in alone.out + alone.err, alone
        node = await parts.node(await parts.server())
        ran = await asyncio.to_thread(finished, bare_cli.begin("run", path))
        assert ran.code == 0, ran
        assert "after" in ran.out
        assert len(node.calls) == 2
        listed = await asyncio.to_thread(bare_cli.call, "nodes", "list")
        assert "connected" in listed.out
        assert "offers command, files" in listed.out


def test_nodes_are_managed_on_the_command_line(bare_cli: CommandLine) -> None:
    assert "There are no nodes" in bare_cli.call("nodes", "list").out
    added = bare_cli.call("nodes", "add", "shop")
    assert added.code == 0
    assert "cuebook node --connect URL --token" in added.out
    again = bare_cli.call("nodes", "add", "shop")
    assert again.code == 2
    assert "cuebook nodes token shop" in again.err
    bare_cli.write("remote.yaml", STEPS.format(name="x").replace("node: shop", "node: barn"))
    assert "[UNKNOWN_NODE]" in bare_cli.call("validate", "remote.yaml").out
    assert "is now called barn" in bare_cli.call("nodes", "rename", "shop", "barn").out
    assert "[UNKNOWN_NODE]" not in bare_cli.call("validate", "remote.yaml").out
    assert bare_cli.call("nodes", "list", "--json").object[0]["state"] == "not paired yet"
    explained = bare_cli.call("explain", "remote.yaml")
    assert "node:barn/command.run" in explained.out + explained.err or "on node barn" in explained.out, explained
    assert bare_cli.call("nodes", "token", "barn").code == 0
    assert bare_cli.call("nodes", "revoke", "barn").code == 0
    assert bare_cli.call("nodes", "revoke", "barn").code == 2


def test_a_playbook_can_be_tested_without_a_node(bare_cli: CommandLine, tmp_path: Path) -> None:
    bare_cli.write("remote.yaml", STEPS.format(name="x"))
    bare_cli.write(
        "remote.test.yaml",
        "- name: makes\n  commands: {make: made}\n  expect: {status: completed}\n",
    )
    ran = bare_cli.call("test", "remote.yaml")
    assert ran.code == 0, ran
