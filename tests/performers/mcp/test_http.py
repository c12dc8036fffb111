"""Tools over MCP by streamable HTTP: real servers on this machine, well-behaved and otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cuebook.kernel.ports import Action, Limits
from cuebook.performers.mcp import McpServer, checked_client
from tests.performers.mcp.harness import SECRET, McpHarness, Trusting
from tests.performers.mcp.http_servers import Answer, listening, on_the_network
from tests.performers.tools.calls import ToolCaller, described


@pytest.fixture(scope="module", params=["sessions", "json stateless"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with on_the_network(*request.param.split()) as url:
        yield url


async def test_a_server_on_the_network_is_used_like_any_other(harness: McpHarness, address: str):
    box = harness.serve(
        McpServer("web", url=address, headers={"X-Plain": "yes"}, secret_headers={"X-Token": "env:TOKEN"}, trusted=True)
    )
    description = await described(box, "web.add", {"a": 1, "b": 2})
    assert Action("egress", f"POST {address}", True) in description.actions
    assert description.trusts[0].preview["address"] == address
    assert "X-Token=[secret env:TOKEN]" in description.trusts[0].preview["headers"]
    caller = ToolCaller()
    assert await caller.value(box, "web.add", {"a": 1, "b": 2}) == {"result": 3}
    assert await caller.value(box, "web.say", {"text": "hi"}) == "hi\nhi"
    assert await caller.value(box, "web.header", {"name": "x-token"}) == {"result": SECRET}
    assert await caller.value(box, "web.header", {"name": "x-plain"}) == {"result": "yes"}
    slow = await ToolCaller(limits=Limits(seconds=0.3)).failure(box, "web.wait", {"seconds": 30})
    assert slow.code == "timeout"
    assert await caller.value(box, "web.add", {"a": 2, "b": 2}) == {"result": 4}
    assert harness.sandbox.started == []


async def test_nothing_is_sent_to_a_server_on_the_network_before_a_person_has_agreed(harness: McpHarness):
    harness.trust = Trusting(all=False)
    async with listening(lambda request: (200, {}, b"{}")) as (url, requests):
        box = harness.serve(McpServer("web", url=url))
        (trust,) = (await described(box, "web.t")).trusts
        assert trust.prompt == "Use the tool server 'web'?"
        assert (await ToolCaller().failure(box, "web.t")).code == "not_trusted"
        assert await box.specs("*") == []
        assert requests == []


def answering(on_call: Callable[[Any], tuple[int, dict[str, str], bytes]]) -> Answer:
    """The protocol as it was before `server/discover`, with another answer to calls."""

    def answer(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        number = request.get("id")
        match request.get("method"):
            case "initialize":
                info = {"name": "raw", "version": "1"}
                version = request["params"]["protocolVersion"]
                return as_json(number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                return as_json(number, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                return on_call(number)
            case _ if number is None:
                return 202, {}, b""
            case _:
                error = {"code": -32601, "message": "Method not found"}
                return 200, JSON, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()

    return answer


JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


def as_json(number: Any, result: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, JSON, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


LOGGED = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'


@pytest.mark.parametrize(
    ("on_call", "code", "words"),
    [
        (lambda number: (200, JSON, b"x" * (17 << 20)), "server_failed", "more than 16777216 bytes"),
        (lambda number: (200, EVENTS, b"data: " + b"x" * (5 << 20)), "dropped", "lost"),
        (lambda number: (200, EVENTS, LOGGED * 30_000), "server_failed", "floods"),
        (lambda number: (200, {**JSON, "content-encoding": "gzip"}, b"\x1f\x8b"), "server_failed", "compressed"),
        (lambda number: (200, {**JSON, "content-length": "500"}, b"{"), "dropped", "lost"),
        (lambda number: (200, JSON, b"not json"), "bad_result", "parse"),
        (lambda number: (500, {}, b""), "server_failed", "status 500"),
        (lambda number: (307, {"location": "http://127.0.0.1:1/mcp"}, b""), "server_failed", "not followed"),
        (lambda number: as_json(number, {"content": 5}), "bad_result", "invalid answer"),
        (lambda number: (0, {}, b""), "timeout", "did not answer"),
    ],
)
async def test_what_a_bad_server_on_the_network_does_is_a_typed_outcome(
    harness: McpHarness, on_call: Any, code: str, words: str
) -> None:
    async with listening(answering(on_call)) as (url, _):
        box = harness.serve(McpServer("web", url=url))
        assert isinstance(await box.specs("web.*"), list)
        failed = await ToolCaller(limits=Limits(seconds=1 if code == "timeout" else 20)).failure(box, "web.t")
        assert (failed.code, words in failed.message) == (code, True), failed
        await box.close()


async def test_an_unreachable_server_on_the_network_is_reported(harness: McpHarness):
    failed = await ToolCaller().failure(harness.serve(McpServer("web", url="http://127.0.0.1:1/mcp")), "web.t")
    assert failed.code == "server_failed"
    assert "'web'" in failed.message


async def test_a_name_that_leads_to_this_machine_is_not_followed(harness: McpHarness):
    async def rebound(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with listening(answering(lambda number: as_json(number, {"content": []}))) as (url, requests):
        far = url.replace("127.0.0.1", "tools.example.com")
        box = harness.serve(McpServer("web", url=far), http_client=checked_client(resolve=rebound))
        failed = await ToolCaller().failure(box, "web.t")
        assert failed.code == "server_failed"
        assert "resolves to 127.0.0.1" in failed.message
        assert requests == []
        allowed = checked_client(private=lambda host, port: host == "tools.example.com", resolve=rebound)
        assert await ToolCaller().value(harness.serve(McpServer("web", url=far), http_client=allowed), "web.t") == ""
