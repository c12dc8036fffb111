"""The three complete pipelines of the guide: each runs as it is printed, against real servers on loopback.

Only the hosts are replaced, because a test reaches nothing but this machine.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.check import check
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, blocks
from tests.support.git_servers import GitServer, git_server
from tests.support.model_server import ModelServer
from tests.support.web_service import Received, web_service

BLOCKS = blocks(DOCS / "guides" / "cookbook.md")
PIPELINES = [block for block in BLOCKS if block.language == "yaml"]
POLICIES = [block.text for block in BLOCKS if block.language == "toml"]
each = pytest.mark.parametrize("block", PIPELINES, ids=[f"line {one.line}" for one in PIPELINES])


def printed(name: str) -> str:
    """The pipeline with this name."""
    (found,) = (block.text for block in PIPELINES if f"name: {name}\n" in block.text)
    return found


def allow(cli: CommandLine, policy: str) -> None:
    cli.config.parent.mkdir(parents=True, exist_ok=True)
    (cli.config.parent / "policy.toml").write_text(policy)


@each
def test_nothing_is_wrong_with_a_pipeline_of_the_guide(block: Block) -> None:
    assert [one for one in check(block.text, "any.yml") if one.severity != "note"] == []


def test_no_pipeline_needs_a_shell() -> None:
    written = " ".join(block.text for block in PIPELINES).replace('"', " ").split()
    assert not {"sh", "bash", "env", "eval", "-c"} & set(written)


# --- a release ---


def repository(cli: CommandLine, origin: str) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(cli.work), *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("config", "user.name", "ada")
    git("config", "user.email", "ada@example.com")
    cli.write(
        "test_tea.py", "import unittest\n\n\nclass Tea(unittest.TestCase):\n    def test_tea(self):\n        pass\n"
    )
    cli.write(".gitignore", "release.tar.gz\n__pycache__/\n*.yml\n")
    git("add", "test_tea.py", ".gitignore")
    git("commit", "-qm", "Begin")
    git("tag", "v1.1.0")
    cli.write("tea.txt", "green\n")
    git("add", "tea.txt")
    git("commit", "-qm", "Add green tea")
    git("remote", "add", "origin", origin)
    git("push", "-q", "origin", "main")


def tags(server: GitServer) -> list[str]:
    argv = ["git", "-C", str(server.root / "project.git"), "tag"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def local_tags(cli: CommandLine) -> list[str]:
    argv = ["git", "-C", str(cli.work), "tag"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.needs("git")
@pytest.mark.parametrize("status", [201, 507])
def test_a_release_is_approved_pushed_and_uploaded_or_undone(
    cli: CommandLine, server: ModelServer, tmp_path: Path, status: int
) -> None:
    cli.environ |= {"GIT_TOKEN": "push-token-4711", "UPLOAD_TOKEN": "upload-token-0815"}
    server.script = lambda request: json.dumps({"summary": "Green tea is new."})
    with git_server(tmp_path / "served") as git, web_service(lambda request: (status, {})) as uploads:
        repository(cli, git.create("project"))
        git.token, git.user = "push-token-4711", "release"
        text = printed("Ship a release").replace("git.example.com", f'"127.0.0.1:{git.port}"')
        cli.write("ship.yml", text)
        allow(
            cli,
            POLICIES[0]
            .replace("git.example.com", f"127.0.0.1:{git.port}")
            .replace("https://uploads.example.com", f"http://{uploads.place}"),
        )
        given = ["--version", "1.2.0", "--uploads", f"http://{uploads.place}"]
        given += ["--git_token", "env:GIT_TOKEN", "--upload_token", "env:UPLOAD_TOKEN"]
        plan = cli.call("plan", "ship.yml", *given).out
        assert "asked:      tag\n" in plan, plan
        asked = cli.call("run", "ship.yml", *given, "--no-ask", "--json")
        (wait,) = asked.object["waits"]
        assert wait["prompt"].startswith("Release 1.2.0, with the changes since v1.1.0?")
        preview = wait["approval"]["preview"]
        assert preview["Commits"] == "Add green tea\n"
        assert "+green" in preview["Changes"]
        (archive,) = asked.object["files"]
        assert preview["Archive"] == f"{archive['size']} bytes, {archive['digest']}"
        rewound = cli.call("decide", wait["short_id"], "changes", "--reason", "Name the colour", "--json").object
        assert "Name the colour" in server.prompts[-1]
        done = cli.call("decide", rewound["run"], "approve", "--json")
        assert uploads.lines == ["PUT /v1.2.0.tar.gz"], done.err
        assert (len(uploads.requests[0].body), tags(git)) == (archive["size"], ["v1.2.0"])
        if status == 201:
            assert done.object["status"] == "completed"
            assert cli.call("files", done.object["run"], "archive", "--to", "copy.tar.gz").code == 0
            assert (cli.work / "copy.tar.gz").read_bytes() == uploads.requests[0].body
        else:  # the last step first
            (offer,) = done.object["waits"]
            assert (offer["step"], offer["approval"]["preview"]["credentials"].split(", ")[-1]) == (
                "undo.push",
                "[secret env:GIT_TOKEN]",
            )
            (offer,) = cli.call("decide", offer["short_id"], "approve", "--json").object["waits"]
            assert (offer["step"], tags(git)) == ("undo.tag", [])
            failed = cli.call("decide", offer["short_id"], "approve", "--json")
            assert (failed.code, failed.object["status"]) == (1, "failed")
            assert "Undone: push, tag." in failed.object["error"]["message"]
            assert local_tags(cli) == ["v1.1.0"]
        assert b"push-token-4711" not in cli.store.read_bytes()


# --- a nightly job ---


def test_a_nightly_job_sends_what_is_new_after_an_approval(cli: CommandLine, server: ModelServer) -> None:
    cli.environ["HOOK_TOKEN"] = "hook-token-4711"
    orders: list[dict[str, Any]] = [
        {"number": number, "text": f"{number} boxes of tea, please"} for number in range(1, 5)
    ]

    def read(request: dict[str, Any]) -> str:
        prompt = str(request["messages"][-1]["content"])
        if "3 boxes" in str(request):  # also when it is asked to repair its reply
            return "No idea!"
        return json.dumps({"product": "tea", "count": int(prompt.split("\n\n")[1][0])})

    def shop(request: Received) -> tuple[int, Any]:
        if request.method == "POST":
            return 202, {}
        after = int(request.path.partition("after=")[2])
        new = [order for order in orders if order["number"] > after]
        return 200, {"orders": new, "last": orders[-1]["number"]}

    server.script = read
    with web_service(shop) as web:
        cli.write("orders.yml", printed("Orders of the night"))
        allow(
            cli,
            POLICIES[1]
            .replace("https://shop.example.com", f"http://{web.place}")
            .replace("https://hooks.example.com", f"http://{web.place}"),
        )
        given = ["--shop", f"http://{web.place}", "--hook", f"http://{web.place}/orders", "--token", "env:HOOK_TOKEN"]
        asked = cli.call("run", "orders.yml", *given, "--no-ask", "--json")
        (wait,) = asked.object["waits"]
        assert wait["prompt"].startswith("Send 3 orders (1 could not be read)?")
        preview = wait["approval"]["preview"]
        assert preview["Last time"] == "null"
        assert "it is not JSON" in preview["Not read"]
        assert cli.call("decide", wait["short_id"], "approve", "--json").object["status"] == "completed"
        sent = web.requests[-1]
        assert (sent.headers["authorization"], sent.json["count"]) == (
            "Bearer hook-token-4711",
            {"now": 3, "before": 0},
        )
        tea = [{"product": "tea", "count": number} for number in (1, 2, 4)]
        assert sent.json["orders"] == [*tea[:2], None, tea[2]]  # what the model said about the third is no order
        kept = cli.call("state", "show", "orders.yml").out
        assert "last = 4" in kept, kept
        assert "sent = 3" in kept
        nothing = cli.call("run", "orders.yml", *given, "--no-ask", "--json").object
        assert (nothing["status"], nothing["steps"][-1]["status"]) == ("completed", "skipped")
        orders.append({"number": 5, "text": "5 boxes of tea"})
        more = cli.call("run", "orders.yml", *given, "--no-ask", "--json").object
        cli.call("decide", more["run"], "approve")
        assert web.requests[-1].json["count"] == {"now": 1, "before": 3}
        assert web.lines == [
            "GET /orders?after=0",
            "POST /orders",
            "GET /orders?after=4",
            "GET /orders?after=4",
            "POST /orders",
        ]


# --- a runbook for incidents ---


class Platform:
    """The platform of the runbook. The service is healthy from the third look on, until `stays` is over."""

    def __init__(self, stays: bool) -> None:
        self.stays = stays
        self.looks = 0

    def __call__(self, request: Received) -> tuple[int, Any]:
        match request.line:
            case "POST /incidents":
                return 201, {"id": "I-7"}
            case "GET /shop/errors":
                return 200, ["Cannot reach the database"]
            case "GET /shop/deploys":
                return 200, {"current": "2.1", "previous": "2.0"}
            case "GET /shop/load":
                return 503, {}
            case "GET /shop/health":
                self.looks += 1
                return 200, {"status": "up" if self.looks > 2 and (self.stays or self.looks == 3) else "down"}
        return 200, {}


@pytest.mark.parametrize("stays", [True, False])
def test_an_incident_is_handled_or_undone(cli: CommandLine, server: ModelServer, stays: bool) -> None:
    server.script = lambda request: json.dumps(
        {"cause": "The pool is full", "message": f"Draft {len(server.requests)}"}
    )
    with web_service(Platform(stays)) as platform:
        for name, file in (("Incident", "incident.yml"), ("Revert a deployment", "revert.yml")):
            cli.write(file, printed(name))
        allow(cli, POLICIES[2].replace("https://platform.example.com", f"http://{platform.place}"))

        def decide(*words: str) -> Any:
            return cli.call("decide", run, *words, "--json").object

        asked = cli.call("run", "incident.yml", "--api", f"http://{platform.place}", "--no-ask", "--json")
        run = asked.object["run"]
        form = {"service": "shop", "severity": 1, "seen": "The checkout fails"}
        assert "severity (integer from 1 to 3)" in asked.err
        shown = cli.call("answer", run, json.dumps(form), "--json").object
        for number in (1, 2):
            assert shown["waits"][0]["approval"]["preview"]["Message"] == f"Draft {number}"
            shown = decide("changes", "--reason", f"Say less ({number})")
            assert f"Say less ({number})" in server.prompts[-1]
        assert "The checkout fails" in server.prompts[-1]
        assert (decide("approve")["waits"][0]["step"], platform.lines[-1]) == ("restart", "POST /status")
        (wait,) = decide("deny", "--reason", "It would lose the carts")["waits"]
        assert wait["prompt"].startswith("Go back to version 2.0 of shop? ")
        assert "It would lose the carts" in wait["prompt"]
        ended = decide("approve")
        assert "POST /shop/restart" not in platform.lines
        assert [one.json for one in platform.requests if one.line == "PUT /shop/version"] == [{"version": "2.0"}]
        if stays:
            assert ended["status"] == "completed"
            assert platform.lines[-2:] == ["POST /status", "POST /log"]
            record = cli.call("files", run, "record").out
            assert "Restarted: false. Reverted: true." in record
        else:  # the engineer is paged, and what was published is withdrawn, the last step first
            assert [one["step"] for one in ended["waits"]] == ["undo.announce"]
            assert decide("approve")["waits"][0]["step"] == "undo.open"
            ended = decide("deny", "--reason", "It is still open")
            assert ended["status"] == "failed"
            assert "Undone: announce. Not undone: open" in ended["error"]["message"]
            assert "DELETE /status/I-7" in platform.lines
            assert "POST /page" in platform.lines
        (logged,) = [one.json for one in platform.requests if one.line == "POST /log"]
        assert logged == {"run": run, "ended": "completed" if stays else "postcondition_failed"}
