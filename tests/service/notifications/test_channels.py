"""Messages by e-mail, to a command and to Slack, over real connections."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.config.notifications import ChannelSettings
from cuebook.service.notifications.channels import Recipient, Undelivered
from cuebook.service.notifications.channels.channel import Reveal, revealed
from cuebook.service.notifications.channels.command import Command
from cuebook.service.notifications.channels.email import Email
from cuebook.service.notifications.channels.slack import Slack
from cuebook.service.notifications.channels.webhook import key_of
from cuebook.service.notifications.message import Message
from cuebook.system.process import state_of
from tests.service.notifications.notified import SECRETS, slack, webhook
from tests.support.http_servers import Authority
from tests.support.mail_server import mail_server
from tests.support.programs import eventually
from tests.support.web_service import Received, web_service

NOW = 1_800_000_000.0
PASSWORD = "the-password-of-the-mail-server"
ASKS = Message(
    id="msg_1",
    event="waiting",
    at=NOW,
    title="deploy.md asks for an approval",
    text="Deploy <!channel> & go?",
    short_id="wk3m9xq7",
    link="https://cuebook.example.com/runs/abc#wait-wk3m9xq7",
    command="cuebook decide wk3m9xq7 approve",
    run="abc",
    wait="wk3m9xq7aaaaaaaa",
    playbook="deploy.md",
    preview={"command": "deploy --to production"},
    digest="d" * 64,
)


def _revealing(value: str) -> Reveal:
    async def reveal(handle: str) -> str:
        return value

    return reveal


def mail(port: int, folder: Path, **more: Any) -> Email:
    given = {"security": "starttls", "sender": "Cuebook <cuebook@example.com>", "to": ("ops@example.com",), **more}
    settings = ChannelSettings("mail", "test", "email", host="127.0.0.1", port=port, ca=str(folder / "ca.pem"), **given)
    return Email(settings, _revealing(PASSWORD))


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_mail_is_sent_encrypted_and_signed_in_with_a_link(tmp_path: Path, security: str) -> None:
    tls = Authority(tmp_path).serving("127.0.0.1")
    async with mail_server(tls, password=PASSWORD, implicit=security == "tls") as server:
        channel = mail(server.port, tmp_path, security=security, user="cuebook", password="env:P")
        await channel.send(ASKS, NOW, None)
        await channel.send(ASKS, NOW + 60, None)
    first, again = server.mails
    assert server.was_encrypted == [True, True]
    assert server.recipients[0] == ["ops@example.com"]
    assert first["Subject"] == "[Cuebook] deploy.md asks for an approval"
    assert first["Message-ID"] == again["Message-ID"] == "<msg_1@example.com>"
    assert first["Auto-Submitted"] == "auto-generated"
    text = first.get_content()
    for part in (ASKS.text, ASKS.link, ASKS.short_id, "deploy --to production", ASKS.command):
        assert part in text
    assert PASSWORD not in text


async def test_mail_is_not_sent_unencrypted_or_to_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    Authority(tmp_path)
    async with mail_server(None) as plain:
        with pytest.raises(Undelivered, match="does not offer what is configured"):
            await mail(plain.port, tmp_path).send(ASKS, NOW, None)
    (tmp_path / "other").mkdir()
    tls = Authority(tmp_path / "other").serving("127.0.0.1")
    async with mail_server(tls) as foreign:
        with pytest.raises(Undelivered, match="No secure connection"):
            await mail(foreign.port, tmp_path).send(ASKS, NOW, None)
    assert plain.mails + foreign.mails == []


async def test_a_mail_server_that_refuses_or_is_down_says_why_without_the_password(tmp_path: Path) -> None:
    tls = Authority(tmp_path).serving("127.0.0.1")
    async with mail_server(tls, password="another-password") as server:
        with pytest.raises(Undelivered, match=r"refused the user name or the password \(535\)") as refused:
            await mail(server.port, tmp_path, user="cuebook", password="env:P").send(ASKS, NOW, None)
        assert PASSWORD not in str(refused.value)
    async with mail_server(tls) as server:
        server.answer = "451 try again later"
        with pytest.raises(Undelivered, match="refused the message with code 451"):
            await mail(server.port, tmp_path).send(ASKS, NOW, None)
    with pytest.raises(Undelivered, match="cannot be reached"):
        await mail(server.port, tmp_path).send(ASKS, NOW, None)


async def test_mail_for_a_person_goes_only_into_a_configured_domain(tmp_path: Path) -> None:
    tls = Authority(tmp_path).serving("127.0.0.1")
    async with mail_server(tls) as server:
        channel = mail(server.port, tmp_path, domains=("example.com",))
        await channel.send(ASKS, NOW, Recipient("ana", "ana@example.com"))
        for address in ("ana@example.org", "ana@example.com, eve@example.org", ""):
            with pytest.raises(Undelivered) as refused:
                await channel.send(ASKS, NOW, Recipient("ana", address))
            assert refused.value.final
    assert server.recipients == [["ana@example.com"]]


async def test_a_title_adds_no_header_to_a_mail(tmp_path: Path) -> None:
    tls = Authority(tmp_path).serving("127.0.0.1")
    odd = Message(id="msg_2", event="failed", at=NOW, title="x\r\nBcc: eve@example.org\r\n\r\nhello", text=".\n.\nQUIT")
    async with mail_server(tls) as server:
        await mail(server.port, tmp_path).send(odd, NOW, None)
    (got,) = server.mails
    assert got["Bcc"] is None
    assert got["Subject"] == "[Cuebook] x Bcc: eve@example.org hello"
    assert server.recipients == [["ops@example.com"]]
    assert "QUIT" in got.get_content()


def program(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "program.py"
    path.write_text(text)
    return (sys.executable, str(path), "$(touch pwned)", "; touch pwned")


async def test_a_command_gets_json_on_its_input_and_no_shell_and_no_secret(tmp_path: Path) -> None:
    argv = program(
        tmp_path,
        "import json, os, sys\n"
        "said = {'message': json.load(sys.stdin), 'argv': sys.argv[1:], 'environ': dict(os.environ)}\n"
        f"open({str(tmp_path / 'got')!r}, 'w').write(json.dumps(said))\n",
    )
    channel = Command(ChannelSettings("pager", "test", "command", command=argv), {**os.environ, "API_KEY": "a-secret"})
    await channel.send(ASKS, NOW, None)
    got = json.loads((tmp_path / "got").read_text())
    assert got["message"] == ASKS.plain()
    assert got["argv"] == ["$(touch pwned)", "; touch pwned"]
    assert got["environ"]["CUEBOOK_MESSAGE_ID"] == "msg_1"
    assert "API_KEY" not in got["environ"]


async def test_a_command_that_fails_hangs_or_is_missing_did_not_deliver(tmp_path: Path) -> None:
    def channel(text: str, **more: Any) -> Command:
        return Command(ChannelSettings("pager", "test", "command", command=program(tmp_path, text), **more), os.environ)

    with pytest.raises(Undelivered, match="failed with exit code 7"):
        await channel("raise SystemExit(7)").send(ASKS, NOW, None)
    hanging = (
        "import os, subprocess, time\n"
        f"child = subprocess.Popen(['sleep', '600'])\nopen({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(Undelivered, match="took longer than"):
        await channel(hanging, seconds=3.0).send(ASKS, NOW, None)
    child = int((tmp_path / "child").read_text())

    async def is_gone() -> bool:
        return state_of(child)[:1] in ([], ["Z"])

    assert await eventually(is_gone)
    missing = Command(ChannelSettings("pager", "test", "command", command=("no-such-program",)), os.environ)
    with pytest.raises(Undelivered, match="cannot be started"):
        await missing.send(ASKS, NOW, None)


async def test_slack_shows_texts_without_mentions_and_markup(tmp_path: Path) -> None:
    with web_service(lambda received: (200, {"ok": True, "channel": "C123", "ts": "17.1"})) as api:
        reference = await slack(f"http://{api.place}/api").send(ASKS, NOW, None)
    (got,) = api.requests
    said = got.json
    assert got.line == "POST /api/chat.postMessage"
    assert got.headers["authorization"] == f"Bearer {SECRETS['env:SLACK_TOKEN']}"
    assert reference == {"channel": "C123", "ts": "17.1"}
    assert (said["parse"], said["link_names"], said["mrkdwn"]) == ("none", False, False)
    texts = [block["text"] for block in said["blocks"] if block["type"] == "section"]
    assert {one["type"] for one in texts} == {"plain_text"}
    assert ASKS.text in [one["text"] for one in texts]
    assert "<!channel>" not in said["text"]
    buttons = [one for block in said["blocks"] if block["type"] == "actions" for one in block["elements"]]
    assert [one["action_id"] for one in buttons] == ["approve", "deny", "open"]
    assert buttons[0]["value"] == f"{ASKS.wait}.{ASKS.digest}"


@pytest.mark.parametrize("change", [{"preview": {}}, {"digest": ""}])
async def test_buttons_are_left_out_if_the_message_does_not_show_everything(change: dict[str, Any]) -> None:
    import msgspec

    with web_service(lambda received: (200, {"ok": True})) as api:
        await slack(f"http://{api.place}/api").send(msgspec.structs.replace(ASKS, **change), NOW, None)
    said = api.requests[0].json
    buttons = [one for block in said["blocks"] if block["type"] == "actions" for one in block["elements"]]
    assert [one["action_id"] for one in buttons] == ["open"]


async def test_an_incoming_webhook_of_slack_has_a_link_and_no_buttons_and_its_url_stays_secret() -> None:
    with web_service(lambda received: (404, "no_service")) as hook:
        url = f"http://{hook.place}/services/T0/B0/the-secret-part"
        channel = Slack(ChannelSettings("team", "test", "slack", secret_url="env:URL"), _revealing(url))
        with pytest.raises(Undelivered) as refused:
            await channel.send(ASKS, NOW, None)
    said = hook.requests[0].json
    assert [block["type"] for block in said["blocks"]][-1] == "context"
    assert "actions" not in [block["type"] for block in said["blocks"]]
    assert ASKS.link in said["blocks"][-1]["elements"][0]["text"]
    assert "the-secret-part" not in refused.value.why
    with pytest.raises(Undelivered) as down:
        await channel.send(ASKS, NOW, None)
    assert "the-secret-part" not in down.value.why


async def test_slack_errors_and_pauses_are_passed_on(tmp_path: Path) -> None:
    def answer(received: Received) -> tuple[int, Any]:
        return 200, {"ok": False, "error": "channel_not_found"}

    with web_service(answer) as api, pytest.raises(Undelivered, match="Slack refused it: channel_not_found"):
        await slack(f"http://{api.place}/api").send(ASKS, NOW, None)
    with web_service(lambda received: (429, {})) as api:
        api.headers["Retry-After"] = "30"
        with pytest.raises(Undelivered) as busy:
            await slack(f"http://{api.place}/api").send(ASKS, NOW, None)
    assert busy.value.after == 30


async def test_a_configured_name_does_not_lead_to_the_metadata_of_a_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return ["169.254.169.254"]

    monkeypatch.setattr("cuebook.system.network.look_up", look_up)
    with pytest.raises(Undelivered, match="was not contacted: hooks"):
        await webhook("http://hooks.example.com/x").send(ASKS, NOW, None)


async def test_a_key_may_be_written_as_standard_webhooks_writes_it() -> None:
    assert key_of("whsec_c2VjcmV0") == b"secret"
    assert key_of("plain") == b"plain"
    with pytest.raises(Undelivered, match="not base64"):
        key_of("whsec_???")


async def test_a_secret_that_cannot_be_resolved_is_named_by_its_handle() -> None:
    from cuebook.gate.secrets import Vault

    vault = Vault(environ={}, keyring=lambda name: None)
    with pytest.raises(Undelivered, match="env:SMTP_PASSWORD has no value"):
        await revealed(vault.revealed, "env:SMTP_PASSWORD")


def test_a_message_for_programs_leaves_out_what_is_empty() -> None:
    plain = Message(id="m", event="test", at=0.0, title="t").plain()
    assert plain == {"id": "m", "type": "test", "at": "1970-01-01T00:00:00.000Z", "title": "t"}
