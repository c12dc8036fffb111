"""Over stdio, what is no message is answered, and the server goes on."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.mcp.test_serving import HELLO, READY
from tests.surfaces.mcp.visiting import begun

CALL = '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "playbook_parse", "arguments": %s}}'
DEEP = '{"content": ' + "[" * 50_000 + "]" * 50_000 + "}"
WRONG: list[tuple[str, int, Any]] = [
    ("{bad json", -32700, None),
    ("[1, 2", -32700, None),
    (CALL % ("5", '{"content": "\\ud800"}'), -32700, 5),
    (CALL % ('"five"', '{"content": "\\ud800", "id": 6}'), -32700, "five"),
    (CALL % ('"\\ud800"', "{}"), -32700, None),
    (CALL % ("7", DEEP), -32700, 7),
    ('{"params": {"arguments": ' + DEEP + '}, "method": "tools/call", "id": 8}', -32700, 8),
    ('{"jsonrpc": "2.0", "method": "ping", "id": 9', -32700, 9),
    ('{"jsonrpc": "1.0", "id": 10, "method": "ping"}', -32600, 10),
    ('{"jsonrpc": "2.0", "id": 11, "method": {"id": 12}}', -32600, 11),
    ('[{"jsonrpc": "2.0", "id": 13, "method": "ping"}]', -32600, None),
    ('{"jsonrpc": "2.0", "id": 1, "result": "\\ud800"}', -32700, None),  # the id is the server's own
    ('{"jsonrpc": "1.0", "id": 1, "result": {}}', -32600, None),
]


@pytest.mark.parametrize("greeted", [True, False])
def test_what_is_no_message_is_answered(desk: Desk, greeted: bool) -> None:
    process = begun(desk, "mcp", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None

    def say(line: str) -> None:
        process.stdin.write(f"{line}\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]

    def hear() -> dict[str, Any]:
        return dict(json.loads(process.stdout.readline()))  # type: ignore[union-attr]

    def greet() -> None:
        say(json.dumps(HELLO))
        assert hear()["result"]["serverInfo"]["name"] == "cuebook"
        say(json.dumps(READY))

    if greeted:
        greet()
    for line, code, id in WRONG:
        say("")  # nothing is said to an empty line
        say(line)
        answer = hear()
        assert (answer["error"]["code"], answer["id"]) == (code, id), line[:100]
    if not greeted:
        greet()
    say('{"jsonrpc": "2.0", "id": 99, "method": "ping"}')
    assert hear() == {"jsonrpc": "2.0", "id": 99, "result": {}}
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")
