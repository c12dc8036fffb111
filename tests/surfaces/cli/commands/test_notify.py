"""`cuebook notify`: channels are tested, messages are delivered and explained, and people choose what they get."""

from __future__ import annotations

import json
import re
import signal
import threading
from typing import Any

import httpx2

from tests.support.command_line import CommandLine, finished
from tests.support.runtime import GATED
from tests.support.web_service import Received, web_service

HOOK = '[notifications.channels.hook]\nkind = "webhook"\nurl = "http://{}/x"\nsecret = "env:HOOK_KEY"\n'
MAIL = (
    '[notifications.channels.mail]\nkind = "email"\nhost = "127.0.0.1"\nport = 1\nsecurity = "none"\n'
    'sender = "c@example.com"\ndomains = ["example.com"]\n'
)
ASK = '# Ask\n\n## STEP 1: A\n\n@elicit(input, "Which?")\n'


def configure(cli: CommandLine, text: str) -> None:
    cli.environ["HOOK_KEY"] = "the-key-of-the-hook"
    cli.config.write_text(f"{cli.config.read_text()}\n{text}")


def test_a_run_that_waits_is_reported_when_the_command_ends(cli: CommandLine) -> None:
    with web_service(lambda received: (200, {})) as receiver:
        configure(cli, HOOK.format(receiver.place))
        cli.write("ask.md", ASK)
        assert cli.call("run", "ask.md", "--no-ask").code == 3
    (got,) = [one.json for one in receiver.requests]
    assert (got["type"], got["text"], got["playbook"]) == ("run.waiting", "Which?", "ask.md")
    (channel,) = cli.call("notify", "status", "--json").object["channels"]
    assert (channel["counts"]["sent"], channel["error"]) == (1, "")


def test_a_receiver_that_is_down_costs_a_line_and_the_message_is_sent_later(cli: CommandLine) -> None:
    up: list[bool] = []

    def answer(received: Received) -> tuple[int, Any]:
        return (200 if up else 500), {}

    with web_service(answer) as receiver:
        configure(cli, HOOK.format(receiver.place))
        cli.write("ask.md", ASK)
        ran = cli.call("run", "ask.md", "--no-ask")
        assert (ran.code, "1 message not delivered yet" in ran.err) == (3, True)
        status = cli.call("notify", "status")
        assert "1 pending" in status.out
        assert re.search(r"hook: waiting ask.md, pending, 1 attempt, again .*HTTP 500", status.out)


def test_a_server_delivers_and_answers_to_its_public_name(cli: CommandLine) -> None:
    arrived = threading.Event()

    def answer(received: Received) -> tuple[int, Any]:
        arrived.set()
        return 200, {}

    with web_service(answer) as receiver:
        configure(cli, HOOK.format(receiver.place) + '[serve]\npublic_url = "https://cuebook.example.com"\n')
        cli.call("runtime", stdin=json.dumps({"action": "run", "pipeline": GATED}))
        assert receiver.requests == []
        server = cli.begin("serve", "--port", "0")
        try:
            assert server.stdout is not None
            port = re.search(r":(\d+)/", server.stdout.readline())
            assert port is not None
            health = f"http://127.0.0.1:{port[1]}/healthz"
            with httpx2.Client(trust_env=False) as client:
                assert client.get(health, headers={"Host": "cuebook.example.com"}).status_code == 200
                assert client.get(health, headers={"Host": "evil.example.com"}).status_code == 421
            assert arrived.wait(60)
        finally:
            server.send_signal(signal.SIGTERM)
            finished(server)
    (got,) = [one.json for one in receiver.requests]
    assert (got["type"], got["title"]) == ("run.waiting", "inline asks for an approval")
    assert got["link"].startswith("https://cuebook.example.com/runs/")


def test_the_test_of_a_channel_says_why_it_fails(cli: CommandLine) -> None:
    none = cli.call("notify", "test")
    assert (none.code, "No channels are configured" in none.err) == (2, True)
    with web_service(lambda received: (200, {})) as receiver:
        configure(cli, HOOK.format(receiver.place) + MAIL)
        tested = cli.call("notify", "test", "--json")
    assert tested.code == 1
    assert {one["channel"]: one["sent"] for one in tested.object} == {"hook": True, "mail": False}
    assert receiver.requests[0].json["type"] == "test"
    assert "cannot be reached" in cli.call("notify", "test", "hook").out
    other = cli.call("notify", "test", "other")
    assert (other.code, "Configured channels: hook, mail" in other.err) == (2, True)


def test_a_person_chooses_and_sees_what_they_get(cli: CommandLine) -> None:
    configure(cli, MAIL)
    cli.call("users", "add", "ana", "--role", "viewer")
    change = ("--event", "failed", "--channel", "mail", "--address", "ana@example.com", "--quiet-hours", "22:00-7:00")
    assert cli.call("notify", "preferences", *change, "--as", "ana").code == 0
    assert cli.call("notify", "preferences", "--runs", "all", "--playbook", "a*", "--as", "ana").code == 0
    mine = cli.call("notify", "preferences", "--as", "ana", "--json").object
    assert (mine["events"], mine["address"], mine["runs"], mine["playbooks"]) == (
        ["failed"],
        "ana@example.com",
        "all",
        ["a*"],
    )
    assert mine["quiet_hours"] == "22:00-07:00"
    cleared = cli.call("notify", "preferences", "--event", "none", "--playbook", "*", "--as", "ana", "--json").object
    assert (cleared["events"], cleared["playbooks"]) == ([], [])
    refused = cli.call("notify", "preferences", "--address", "ana@example.org", "--as", "ana")
    assert (refused.code, "Allowed domains: example.com" in refused.err) == (2, True)
    refused = cli.call("notify", "preferences", "--time-zone", "America/NewYork", "--as", "ana")
    assert (refused.code, "'America/NewYork'. Did you mean 'America/New_York'?" in refused.err) == (2, True)
    assert cli.call("notify", "preferences", "--json").object["events"] == []


def test_links_are_listed_and_wrong_codes_refused(cli: CommandLine) -> None:
    assert cli.call("notify", "link").out == "No Slack account is linked.\n"
    refused = cli.call("notify", "link", "wrongcode2")
    assert (refused.code, "older than ten minutes" in refused.err) == (2, True)
    assert cli.call("notify", "unlink", "T1.U1").code == 2


def test_the_doctor_says_what_a_channel_lacks(cli: CommandLine) -> None:
    configure(cli, HOOK.format("hook.example.com").replace("env:HOOK_KEY", "env:NOT_SET"))
    ran = cli.call("doctor")
    assert ran.code == 0
    assert "notify    hook: webhook (The secret env:NOT_SET has no value" in ran.out
    assert "public_url is not set" in ran.out
    found = json.loads(cli.call("doctor", "--json").out)
    assert found["channels"][0]["name"] == "hook"
    assert any("cuebook.toml:" in one and "env:NOT_SET" in one for one in found["missing"])
