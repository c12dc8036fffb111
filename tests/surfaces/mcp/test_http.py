"""Access over HTTP, the shutdown of a server, and the traces of a disconnected client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping

import httpx2

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.mcp.clients import Served, begun, over_http, over_stdio, token_of

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_only_requests_with_a_token_are_accepted(cli: CommandLine, served: list[Served]) -> None:
    served.append(one := Served(cli))
    token = token_of(cli)
    with httpx2.Client(trust_env=False) as client:
        refused = client.post(one.url, json=HELLO, headers=ACCEPT)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        wrong = client.post(one.url, json=HELLO, headers={**ACCEPT, "Authorization": "Bearer x"})
        assert wrong.status_code == 401
        foreign = {**ACCEPT, "Authorization": f"Bearer {token}", "Origin": "http://evil.example"}
        assert client.post(one.url, json=HELLO, headers=foreign).status_code == 403
        rebound = {**ACCEPT, "Authorization": f"Bearer {token}", "Host": "evil.example"}
        assert client.post(one.url, json=HELLO, headers=rebound).status_code == 421
        mine = {**ACCEPT, "Authorization": f"Bearer {token}"}
        opened = client.post(one.url, json=HELLO, headers=mine)
        assert opened.status_code == 200
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        other = {**ACCEPT, "Authorization": f"Bearer {token_of(cli, 'bob')}", **session}
        assert client.post(one.url, json=listing, headers=other).status_code == 404  # another user's session
        large = {**listing, "params": {"x": "y" * 3_000_000}}
        assert client.post(one.url, json=large, headers={**mine, **session}).status_code == 413


async def test_runs_belong_to_the_user_of_the_token(
    cli: CommandLine, served: list[Served], server: ModelServer
) -> None:
    served.append(Served(cli))
    async with over_http(served[0].url, token_of(cli, "ann")) as ann:
        now = await ann.call("execute_playbook", playbook_id="tea")
        assert served[0].address in now["link"]
    assert cli.call("show", now["execution_id"], "--json").code == 0
    async with over_http(served[0].url, token_of(cli, "vic", "viewer")) as vic:
        assert (await vic.call("get_playbook_execution", execution_id=now["execution_id"]))["status"] == "completed"
        assert "execute_playbook" not in await vic.tools()


async def test_ctrl_c_ends_a_server_with_calls_in_progress(
    cli: CommandLine, served: list[Served], server: ModelServer
) -> None:
    server.hold_at = 1
    served.append(one := Served(cli))
    async with over_http(one.url, token_of(cli), mode="legacy") as visit:
        calling = asyncio.create_task(visit.raw("execute_playbook", playbook_id="tea", client_key="k"))
        assert await asyncio.to_thread(server.holding.wait, 30)
        one.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(one.process.wait, 30) == 130
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    server.release()
    served.append(two := Served(cli))
    async with over_http(two.url, token_of(cli)) as visit:
        assert (await visit.call("execute_playbook", playbook_id="tea", client_key="k"))["status"] == "completed"


def _stdio(cli: CommandLine) -> subprocess.Popen[str]:
    return begun(cli, "mcp", stdin=subprocess.PIPE)


def _send(process: subprocess.Popen[str], *messages: Mapping[str, object]) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
    process.stdin.flush()


EXECUTE = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "execute_playbook", "arguments": {"playbook_id": "tea", "client_key": "k"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_a_run_is_finished_after_the_assistant_has_disconnected(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 1
    process = _stdio(cli)
    _send(process, HELLO, READY, EXECUTE)
    assert server.holding.wait(30)
    assert process.stdin is not None
    process.stdin.close()
    time.sleep(0.3)
    assert process.poll() is None
    server.release()
    assert process.wait(60) == 0
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [json.loads(line) for line in process.stdout.read().splitlines()]  # only messages
    assert {line["jsonrpc"] for line in lines} == {"2.0"}
    process.stdout.close()
    process.stderr.close()
    [run] = cli.call("runs", "--json").object
    assert run["status"] == "completed"
    assert len(server.requests) == 3


def _unheard(cli: CommandLine, server: ModelServer) -> subprocess.Popen[str]:
    """A server whose assistant has started a run, which asks a model, and has then stopped reading."""
    server.hold_at = 1
    process = _stdio(cli)
    _send(process, HELLO, READY, EXECUTE)
    assert server.holding.wait(30)
    assert process.stdout is not None
    process.stdout.close()
    _send(process, {"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
    time.sleep(0.3)
    return process


def test_an_assistant_that_stops_reading_has_disconnected(cli: CommandLine, server: ModelServer) -> None:
    """Its run is finished, although the server's input is still open."""
    process = _unheard(cli, server)
    server.release()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()
    [run] = cli.call("runs", "--json").object
    assert run["status"] == "completed"


def test_a_signal_ends_a_server_whose_client_is_gone(cli: CommandLine, server: ModelServer) -> None:
    process = _unheard(cli, server)
    process.terminate()
    assert process.wait(30) == 0
    server.release()
    for stream in (process.stdin, process.stderr):
        assert stream is not None
        stream.close()
    [run] = cli.call("runs", "--json").object
    assert cli.call("resume", run["run"]).code == 0


def test_a_non_blocking_input_is_waited_for(cli: CommandLine) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = begun(cli, "mcp", stdin=reading)
    os.close(reading)
    assert process.stdout is not None
    with os.fdopen(writing, "w") as wire:
        time.sleep(0.5)
        wire.write(json.dumps(HELLO) + "\n")
        wire.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
    assert process.wait(30) == 0
    process.communicate()


async def test_a_form_that_was_open_when_the_server_was_killed_is_answered_with_the_next_one(cli: CommandLine) -> None:
    """In the older protocol the form is part of the call, and is lost with it. The question is not."""
    cli.write("who.md", '# Who\n\n## STEP 1: Ask\n\n@elicit(input, "Who orders?")\n@output(who)\n')
    process = _stdio(cli)
    arguments = {"playbook_id": "who", "client_key": "k"}
    await _asked_in_a_form(process, arguments)
    process.kill()
    process.communicate()
    async with over_stdio(cli) as visit:
        now = await visit.call("execute_playbook", **arguments)
        assert (now["status"], now["elicitation"]["prompt"]) == ("awaiting_input", "Who orders?")
        after = await visit.call("respond_to_elicitation", execution_id=now["execution_id"], response="Ada")
        assert (after["status"], after["variables"]["who"]) == ("completed", "Ada")


async def test_a_run_continues_with_the_next_server(cli: CommandLine, server: ModelServer) -> None:
    server.hold_at = 1
    process = _stdio(cli)
    _send(process, HELLO, READY, EXECUTE)
    assert await asyncio.to_thread(server.holding.wait, 30)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    server.release()
    async with over_stdio(cli) as visit:
        now = await visit.call("execute_playbook", playbook_id="tea", client_key="k")
        assert now["status"] == "completed"
        assert len((await visit.call("list_playbook_executions"))["executions"]) == 1


async def test_clients_that_disconnect_during_a_call_leave_nothing_in_the_log(
    cli: CommandLine, server: ModelServer
) -> None:
    """In the older protocol: one client cancels a call and ends its session, another disconnects while it is asked."""
    server.hold_at = 1
    one = Served(cli)
    async with over_http(one.url, token_of(cli), mode="legacy") as visit:
        calling = asyncio.create_task(visit.client.call_tool("execute_playbook", {"playbook_id": "tea"}))
        assert await asyncio.to_thread(server.holding.wait, 30)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    server.release()
    async with over_http(one.url, token_of(cli, "bob")) as visit:
        assert (await visit.call("list_playbook_executions"))["executions"]
    one.process.terminate()
    _, shown = await asyncio.to_thread(one.process.communicate)
    assert "Traceback" not in shown
    cli.write("who.md", '# Who\n\n## STEP 1: Ask\n\n@elicit(input, "Who orders?")\n@output(who)\n')
    process = _stdio(cli)
    await _asked_in_a_form(process, {"playbook_id": "who"})
    _, shown = await asyncio.to_thread(process.communicate)
    assert (process.returncode, shown) == (0, "")


async def _asked_in_a_form(process: subprocess.Popen[str], arguments: Mapping[str, object]) -> None:
    hello = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}  # type: ignore[dict-item]
    _send(process, hello, READY, {**EXECUTE, "params": {"name": "execute_playbook", "arguments": arguments}})
    assert process.stdout is not None
    asked = ""
    while "elicitation/create" not in asked:
        asked = await asyncio.to_thread(process.stdout.readline)
        assert asked
