"""No message contains the value of a secret, whichever text of a run it was in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runtime import RuntimeHarness
from tests.support.web_service import web_service

VALUE = "correct-horse-battery-staple"
PIPELINE = """
name: Leaks
steps:
  - id: leak
    command: cli sh -c 'printenv TOKEN >&2; exit 3'
    effect: read
    env: {TOKEN: "secret:env:LEAKY"}
"""
ASKS = """
name: Asks
steps:
  - id: leak
    command: cli sh -c 'printenv TOKEN'
    effect: read
    env: {TOKEN: "secret:env:LEAKY"}
  - id: write
    command: cli tee made.txt
    stdin: $leak.stdout
    approval: {text: "Write ${leak.stdout}?"}
"""
POLICY = '[commands]\nallow = ["*"]\n[secrets]\nallow = ["*"]\n'
CONFIG = """
[notifications.channels.hook]
kind = "webhook"
url = "http://{}/hook"
secret = "env:HOOK_KEY"

[notifications.channels.mine]
kind = "slack"
token = "env:SLACK"
signing_secret = "env:HOOK_KEY"
to = "C123"
api = "http://{}/api"
"""


@pytest.mark.parametrize("pipeline", [PIPELINE, ASKS])
async def test_a_secret_of_a_run_is_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    monkeypatch.setenv("LEAKY", VALUE)
    monkeypatch.setenv("HOOK_KEY", "the-key-of-the-hook")
    monkeypatch.setenv("SLACK", "xoxb-the-token-of-the-app")
    with web_service(lambda received: (200, {"ok": True})) as receiver:
        harness = RuntimeHarness(tmp_path, monkeypatch, POLICY)
        (harness.config / "cuebook.toml").write_text(CONFIG.format(receiver.place, receiver.place))
        harness.open()
        envelope = await harness.run(pipeline)
        monkeypatch.delenv("LEAKY")  # whoever delivers does not know it
        other = RuntimeHarness(tmp_path, monkeypatch, POLICY).open()
        await other.wiring.notifier(other.service).send_now(30)
        await harness.close()
        await other.close()
    assert envelope["status"] in ("error", "needs_approval"), envelope
    assert len(receiver.requests) == 2
    for request in receiver.requests:
        everything = json.dumps([request.headers, request.body.decode()])
        assert VALUE not in everything
        assert "the-key-of-the-hook" not in everything
        assert "[secret env:LEAKY]" in everything
