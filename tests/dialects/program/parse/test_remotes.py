"""The configuration of remote agents: valid forms, and errors with their line."""

from __future__ import annotations

import pytest

from cuebook.dialects.program.model import Remote
from cuebook.dialects.program.parse import parse, read
from cuebook.kernel.effects import SecretUse

URL = "remote:\n  type: mcp\n  url: http://a.test/mcp"
AT = "http://a.test/mcp"
WEB = "streamable-http"


def with_auth(**fields: str) -> str:
    return f"{URL}\n  auth:" + "".join(f"\n    {name}: {value}" for name, value in fields.items())


@pytest.mark.parametrize(
    ("metadata", "remote"),
    [
        ("mcp:\n  url: http://a.test/x\n  timeout: 10", Remote("mcp", "http://a.test/x", transport=WEB, timeout=10.0)),
        ("remote:\n  type: mcp\n  command: python 'my server.py'",
         Remote("mcp", "", ("python", "my server.py"), "stdio")),
        ("remote:\n  type: mcp\n  command: [python]\n  args: [a.py, 1]", Remote("mcp", "", ("python", "a.py", "1"), "stdio")),
        (f"{URL}\n  transport: streamable_http", Remote("mcp", AT, transport=WEB)),
        ("remote:\n  type: cuebook\n  url: http://a.test/mcp", Remote("cuebook", AT, transport=WEB, timeout=600.0)),
        ("remote:\n  type: playbooks\n  command: cuebook mcp\n  timeout: 5",
         Remote("cuebook", "", ("cuebook", "mcp"), "stdio", 5.0)),
        (with_auth(type="bearer", token="${THERE_TOKEN}"),
         Remote("mcp", AT, transport=WEB, auth=SecretUse("Authorization", "env:THERE_TOKEN", "Bearer {}"))),
        (with_auth(token="keyring:there"),
         Remote("mcp", AT, transport=WEB, auth=SecretUse("Authorization", "keyring:there", "Bearer {}"))),
        (with_auth(type="api_key", key="env:KEY"), Remote("mcp", AT, transport=WEB, auth=SecretUse("X-API-Key", "env:KEY"))),
        (with_auth(type="api_key", key="${KEY}", header="X-Mine"),
         Remote("mcp", AT, transport=WEB, auth=SecretUse("X-Mine", "env:KEY"))),
        (with_auth(type="basic", username="ada", password="${WORD}"),
         Remote("mcp", AT, transport=WEB, auth=SecretUse("Authorization", "env:WORD", "Basic ada:{}"))),
    ],
)  # fmt: skip
def test_an_agent_can_be_remote(metadata: str, remote: Remote) -> None:
    agent = parse(f"# Far\n{metadata}\n", "far.pb").agents["Far"]
    assert (agent.kind, agent.remote) == ("mcp", remote)


@pytest.mark.parametrize(
    ("metadata", "line", "words"),
    [
        ("remote: here", 3, "must be a mapping"),
        ("remote:\n  type: pigeon", 4, "remote agent 'pigeon'"),
        ("remote:\n  type: mcp", 3, "has neither a URL nor a command"),
        (f"{URL}\n  transport: smoke", 6, "Unknown transport 'smoke'"),
        (f"{URL}\n  transport: stdio", 6, "'stdio' needs a command"),
        ("remote:\n  type: mcp\n  command: serve\n  transport: streamable-http", 6, "'streamable-http' needs a url"),
        (f"{URL}\n  command: serve", 6, "a url and a command"),
        (f"{URL}\n  timeout: soon", 6, "number of seconds"),
        ("remote:\n  type: mcp\n  command: [[a]]", 5, "'command' must be"),
        (f"{URL}\n  auth: key", 6, "'auth' must be"),
        (with_auth(type="magic"), 6, "'auth' must be"),
        (with_auth(type="mtls", cert="a.pem"), 6, "Client certificates (mtls) are not supported"),
        (with_auth(type="bearer"), 6, "The token of 'auth' must be a reference"),
        (with_auth(type="bearer", token="s3cret-of-a-person"), 8, "must be a reference"),
        (with_auth(type="bearer", token="file:/etc/passwd"), 8, "must be a reference"),
        (with_auth(type="api_key", key="Key-${NAME}"), 8, "The key of 'auth' must be a reference"),
        (with_auth(type="api_key", key="${KEY}", header='"a b"'), 9, "the name of a header"),
        (with_auth(type="basic", password="${WORD}"), 6, "no valid username"),
        (with_auth(type="basic", username='"a:b"', password="${WORD}"), 8, "no valid username"),
        ("remote:\n  type: mcp\n  command: serve\n  auth:\n    token: ${NAME}", 6, "'auth' needs a url"),
    ],
)
def test_an_invalid_remote_configuration_is_refused_with_its_line(metadata: str, line: int, words: str) -> None:
    found = read(f"# Far\n\n{metadata}\n", "far.pb").errors[0]
    assert (found.line, found.code) == (line, "REMOTE")
    assert words in found.message
    assert found.fix
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("transport", ["sse", "websocket", "memory"])
def test_an_unsupported_transport_is_warned_about(transport: str) -> None:
    parsed = read(f"# Far\n{URL}\n  transport: {transport}\n", "far.pb")
    assert parsed.errors == ()
    [found] = parsed.warnings
    assert (found.line, found.code) == (5, "REMOTE")
    assert f"'{transport}' is not supported" in found.message
