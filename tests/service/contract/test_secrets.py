"""A secret in a command's output is masked everywhere: database, log, events, envelope and preview."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from urllib.parse import quote

import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordSetError

from cuebook.dialects.playbook import Playbook
from tests.gate.harness import bytes_below
from tests.support.model_server import ModelServer
from tests.support.runtime import ALLOWED, RuntimeHarness

SECRET = "gh-s3cret/token value"
POLICY = ALLOWED + '[secrets]\nallow = ["env:OFFICE_TOKEN"]\n'

ECHOING = """
name: Echo
args:
  token: {secret: true, required: true}
steps:
  - id: say
    command: >-
      cli python3 -c "import os, sys, json, base64; t = os.environ['TOKEN'];
      print(json.dumps([t, base64.b64encode(t.encode()).decode(), 'head ' + t + ' tail'])); print(t, file=sys.stderr)"
    env: {TOKEN: "${token}"}
    effect: read
  - id: use
    command: cli tee made.txt
    stdin: $say.stdout
    approval: required
  - id: fail
    command: cli sh -c 'echo "$TOKEN"; echo "$TOKEN" >&2; exit 3'
    env: {TOKEN: "secret:env:OFFICE_TOKEN"}
    effect: read
"""


def forms() -> list[str]:
    return [SECRET, base64.b64encode(SECRET.encode()).decode(), quote(SECRET, safe="")]


async def test_an_echoed_secret_is_masked_everywhere(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    runtime.rule(POLICY)
    seen: list[object] = []
    runtime.service.observe(seen.append)
    waiting = await runtime.run(ECHOING, args={"token": "env:OFFICE_TOKEN"})
    assert waiting["status"] == "needs_approval"
    assert "head" in str(waiting["requiresApproval"]["items"]), "the rest of it is there"
    assert "head" in str(waiting["requiresApproval"]["preview"])
    failed = await runtime.resume(waiting, True, reason=f"the token is {SECRET}")
    assert (failed["status"], failed["error"]["stepId"]) == ("error", "fail")
    logging.getLogger("cuebook").warning("it was %s", SECRET)
    events = [event async for event in runtime.service.events(waiting["runId"], follow=False)]
    audit = await runtime.service.audit(waiting["runId"])
    kept = bytes_below(runtime.home)
    for form in forms():
        for place in (waiting, failed, seen, events, audit, caplog.text):
            assert form not in str(place)
        assert form.encode() not in kept
    assert (runtime.work / "made.txt").read_text(), "and what the next step was given holds no secret either"
    assert SECRET not in (runtime.work / "made.txt").read_text()


async def test_looking_for_the_secrets_of_a_run_takes_no_decision_from_its_driver(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, a person forks an approved run that a server is about to take up."""
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    runtime.rule(POLICY)
    waiting = await runtime.run(ECHOING, args={"token": "env:OFFICE_TOKEN"})
    run, store, service = waiting["runId"], runtime.service._store, runtime.service
    (wait,) = await store.waits(run=run)
    await service.decide(wait.id, "approve")
    assert await store.ready(0.0, "another") == [run]
    await service.fork(run, "say")
    assert run in await store.ready(0.0, "another")


async def test_a_raw_secret_as_an_argument_starts_nothing(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    runtime.rule(POLICY)
    envelope = await runtime.run(ECHOING, args={"token": SECRET})
    assert envelope["error"]["code"] == "invalid_request"
    assert SECRET not in str(envelope)
    assert await runtime.rows() == []


NOTED = ECHOING.replace("args:\n", "args:\n  note: {type: string, default: ''}\n")


async def test_an_argument_that_holds_the_value_of_another_starts_nothing(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    runtime.rule(POLICY)
    for note in (SECRET, f"see {forms()[1]}"):
        envelope = await runtime.run(NOTED, args={"token": "env:OFFICE_TOKEN", "note": note})
        assert envelope["error"]["code"] == "invalid_request"
        assert "the input 'note'" in envelope["error"]["message"]
        assert SECRET not in str(envelope)
    assert await runtime.rows() == []
    assert SECRET.encode() not in bytes_below(runtime.home)


async def test_a_runtime_without_the_secret_waits_for_it(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.rule(POLICY)
    monkeypatch.delenv("OFFICE_TOKEN", raising=False)
    waiting = await runtime.run(ECHOING, args={"token": "env:OFFICE_TOKEN"})
    assert waiting["requiresApproval"]["kind"] == "secret"
    assert "env:OFFICE_TOKEN has no value" in waiting["requiresApproval"]["prompt"]
    still = await runtime.resume(waiting, True)
    assert still["requiresApproval"]["kind"] == "secret", "nothing is done before it is there"
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    asked = await runtime.resume(still, True)
    assert asked["requiresApproval"]["kind"] == "workflow_step"
    denied = await runtime.resume(asked, False)
    assert denied["status"] == "cancelled"
    assert SECRET.encode() not in bytes_below(runtime.home)


CHANGED = """
name: Changed
args:
  token: {secret: true, required: true}
steps:
  - {id: first, command: cli true, effect: read}
  - {id: say, command: cli cat leak.txt, effect: read}
  - {id: use, command: cli sh -c 'test -n "$T"', env: {T: "${token}"}, effect: read}
"""


async def test_a_secret_that_a_person_changed_is_known_to_the_next_driver(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "an0ther-secret-of-the-office"
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    monkeypatch.setenv("OTHER_TOKEN", other)
    (runtime.work / "leak.txt").write_text(other)
    runtime.rule(ALLOWED + '[secrets]\nallow = ["*"]\n')
    settings = runtime.wiring.settings(("first",))
    row = await runtime.service.start(
        Playbook.from_text(CHANGED, "changed.yml"), {"token": "env:OFFICE_TOKEN"}, settings
    )
    assert (await runtime.service.drive(row.id)).status == "paused"
    await runtime.service.resume(row.id, overrides={"token": "env:OTHER_TOKEN"})
    await runtime.close()
    runtime.open()
    assert (await runtime.service.drive(row.id)).status == "completed"
    assert other.encode() not in bytes_below(runtime.home)


async def test_a_secret_that_the_policy_denies_is_never_resolved(
    runtime: RuntimeHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    place = tmp_path / "token"
    place.write_text(SECRET)
    runtime.rule(ALLOWED + f'[secrets]\ndeny = ["file:{place}"]\n')
    envelope = await runtime.run(ECHOING, args={"token": f"file:{place}"})
    assert envelope["error"]["code"] == "forbidden"
    assert "secrets.deny" in envelope["error"]["message"]


async def test_a_secret_waits_for_an_approval_by_its_handle(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_TOKEN", SECRET)
    waiting = await runtime.run(ECHOING, args={"token": "env:OFFICE_TOKEN"})
    assert waiting["requiresApproval"]["kind"] == "policy"
    assert "env:OFFICE_TOKEN" in str(waiting["requiresApproval"]["preview"])


ASKING = """
name: Ask
steps:
  - id: notes
    command: llm
    llm: {model: house/one, prompt: Draft the notes.}
    output: {type: json, schema: {type: object, required: [title]}}
"""
KEY = "sk-house-0123456789"


class Ring(KeyringBackend):
    """A keyring with one key."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        return KEY if (service, username) == ("cuebook", "HOUSE_KEY") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError("This keyring only gives.")


@pytest.mark.parametrize("place", ["environment", "keyring"])
async def test_a_step_that_asks_a_model_has_the_key_of_its_provider_and_shows_it_nowhere(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "environment":
        monkeypatch.setenv("HOUSE_KEY", KEY)
    else:
        monkeypatch.setattr("keyring.core._keyring_backend", Ring())  # type: ignore[no-untyped-call]
    server = ModelServer()
    try:
        server.replies = [f'{{"title": "for {KEY}"}}']
        (runtime.config / "cuebook.toml").write_text(
            f'[providers.house]\nbase_url = "{server.url}"\nkey_env = "HOUSE_KEY"\n'
        )
        await runtime.close()
        envelope = await runtime.open().run(ASKING)
    finally:
        server.close()
    assert envelope["status"] == "ok", envelope
    assert server.keys == [f"Bearer {KEY}"]
    assert "for " in str(envelope["output"]), "what the model said is there, without the key"
    audit = await runtime.service.audit(envelope["runId"])
    assert KEY not in str([envelope, audit])
    assert KEY.encode() not in bytes_below(runtime.home)
