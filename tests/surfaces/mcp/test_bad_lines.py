"""Over stdio, a line that is not a message gets an error response, and the server continues."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest
from mcp_types import JSONRPCRequest

from cuebook.surfaces.mcp.bad_lines import LARGEST, InvalidLine, message_of, valid_messages
from tests.support.command_line import PYTHON, CommandLine
from tests.surfaces.mcp.clients import begun
from tests.surfaces.mcp.test_http import HELLO, READY

CALL = '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "playbook_parse", "arguments": %s}}'
PING = '{"jsonrpc": "2.0", "id": %s, "method": "ping"}'
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
    ("[]", -32600, None),
    *((line, -32600, None) for line in ("5", '"ping"', "null", "true", "1.5")),
    *((PING % id, -32600, None) for id in ("null", "1.5", "1.0", "true", "false", "[14]", '{"id": 14}', "1e3")),
    ('{"jsonrpc": "2.0", "\\u0069d": null, "method": "ping"}', -32600, None),
    ('{"jsonrpc": "2.0", "id": null, "method": "notifications/initialized"}', -32600, None),
    ('{"jsonrpc": "2.0", "id": 15, "method": "ping", "params": []}', -32600, 15),
    ('{"jsonrpc": "2.0", "id": 16, "method": "ping", "params": {"x": "LONG"}}', -32600, 16),
    ('{"method": "ping", "params": {"id": 3, "x": "LONG"}, "jsonrpc": "2.0", "id": "17"}', -32600, "17"),
    ('{"method": "ping", "params": {"id": 3, "x": "LONG"}, "id": 18, "jsonrpc": "2.0"}', -32600, None),
    ('{"jsonrpc": "2.0", "id": 1, "result": {"x": "LONG"}}', -32600, None),
    ("LONG", -32600, None),
    ('{"jsonrpc": "2.0", "id": 1, "result": "\\ud800"}', -32700, None),  # the id is the server's own
    ('{"jsonrpc": "1.0", "id": 1, "result": {}}', -32600, None),
]
"""Lines, and the code and the id of the answer to each. LONG is a line of the maximum length."""


@pytest.mark.parametrize("greeted", [True, False])
def test_an_invalid_line_is_answered(cli: CommandLine, greeted: bool) -> None:
    process = begun(cli, "mcp", stdin=subprocess.PIPE)
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
        say("")  # an empty line gets no answer
        say(line.replace("LONG", "x" * LARGEST))
        answer = hear()
        assert (answer["error"]["code"], answer["id"]) == (code, id), line[:100]
    if not greeted:
        greet()
    say(PING % 99)
    assert hear() == {"jsonrpc": "2.0", "id": 99, "result": {}}
    _, shown = process.communicate(timeout=60)
    assert (process.returncode, shown) == (0, "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (PING % "null", "The id of a request must be a string or an integer, got null."),
        (PING % "0.5", "got a fraction."),
        (PING % "true", "got true or false."),
        (f"[{PING % 1}]", "batches are not supported. Send one message per line"),
        ("5", "This line is not an object. Send one message per line"),
        ('{"jsonrpc": "2.0", "id": 1}', 'a "method"'),
    ],
)
def test_the_answer_says_what_was_expected(line: str, words: str) -> None:
    with pytest.raises(InvalidLine) as wrong:
        message_of(line.encode())
    assert words in wrong.value.answer.error.message


@pytest.mark.parametrize("id", ["0", "-1", "12345678901234567890123", '""', '"null"'])
def test_every_string_and_integer_is_an_id(id: str) -> None:
    message = message_of((PING % id).encode())
    assert isinstance(message, JSONRPCRequest)
    assert message.id == json.loads(id)


async def test_a_line_may_be_as_long_as_the_limit() -> None:
    """The limit is in bytes, including the line break."""
    whole = (PING % '"%s"').encode()
    fits = whole % (b"y" * (LARGEST - len(whole) + 1)) + b"\n"
    assert len(fits) == LARGEST
    file, answers = io.BytesIO(fits + b" " + fits + (PING % 2).encode()), Kept()

    async def readline(size: int) -> bytes:
        return file.readline(size)

    messages = [one.message async for one in valid_messages(readline, answers)]
    assert [len(str(one.id)) for one in messages if isinstance(one, JSONRPCRequest)] == [LARGEST - len(whole) + 1, 1]
    assert [one.message.error.message[:19] for one in answers.sent] == ["This line has more "]


class Kept:
    """The answers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, one: Any) -> None:
        self.sent.append(one)


def test_child_processes_do_not_read_the_servers_messages() -> None:
    program = (
        "import subprocess, sys\n"
        "from cuebook.surfaces.mcp.stdio import claimed_input\n"
        "lines = claimed_input()\n"
        "print([subprocess.run('cat', capture_output=True).stdout, sys.stdin.read(), lines.readline()])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], input="a message\n", env=PYTHON, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[b'', '', b'a message\\n']\n"
