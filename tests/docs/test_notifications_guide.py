"""The guide to notifications: its configuration is one, and its commands work in the order in which they are printed."""

from __future__ import annotations

import json
import shlex

from tests.support.command_line import CommandLine, Ran
from tests.support.documentation import DOCS, blocks

GUIDE = blocks(DOCS / "guides" / "notifications.md")
HANDLES = (
    "SLACK_WEBHOOK_URL",
    "PAGER_SECRET",
    "CUEBOOK_WEBHOOK_SECRET",
    "SMTP_PASSWORD",
    "SLACK_TOKEN",
    "SLACK_SIGNING_SECRET",
)


def test_every_command_works_where_it_is_printed(cli: CommandLine) -> None:
    cli.environ |= dict.fromkeys(HANDLES, "a-secret-of-the-guide")
    said: dict[str, Ran] = {}
    for block in GUIDE:
        if block.language == "toml":
            cli.config.write_text(f"{cli.config.read_text()}\n{block.text}")
        if block.language == "markdown":
            cli.write("ask.md", block.text)
        for command in block.commands:
            said[command.partition(" #")[0].strip()] = ran = cli.call(*shlex.split(command, comments=True)[1:])
            assert ran.code == (3 if " run " in command else 0), f"{command}\n{ran.err}"
    test, waits = [json.loads(line) for line in (cli.work / "messages.jsonl").read_text().splitlines()]
    assert (test["type"], waits["type"], waits["text"]) == ("test", "run.waiting", "Which version?")
    assert "1 sent" in said["cuebook notify status"].out
    assert "America/New_York" in said["cuebook notify preferences"].out
    assert {one["name"] for one in said["cuebook notify status --json"].object["channels"]} == {
        *("log", "team", "pager", "hook", "mail", "slack")
    }
    doctor = cli.call("doctor").out
    assert doctor.count("(ready)") >= 6


def test_the_message_of_the_guide_has_the_names_of_a_real_one(cli: CommandLine) -> None:
    (shown,) = [json.loads(block.text) for block in GUIDE if block.language == "json"]
    (table,) = [block.text for block in GUIDE if block.language == "toml" and "tee" in block.text]
    cli.config.write_text(f"{cli.config.read_text()}\n{table}")
    cli.write("ask.md", next(block.text for block in GUIDE if block.language == "markdown"))
    cli.call("run", "ask.md", "--no-ask")
    assert {*json.loads((cli.work / "messages.jsonl").read_text())} <= {*shown}
