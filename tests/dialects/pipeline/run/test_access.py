"""What a command may reach beyond its workspace: listed hosts and listed paths, in both sandboxes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.pipeline.check import check
from cuebook.dialects.pipeline.parse import parse
from cuebook.gate.sandbox import choose
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness
from tests.gate.harness import bytes_below
from tests.gate.sandbox.sandboxes import SANDBOXES
from tests.support.git_servers import git_server

TOKEN = "push-token-4711"

PUSH = """\
name: Release
steps:
  - id: push
    command: cli git push -q origin main
    network: {network}
    credentials: {{{host}: {{username: x, password: "secret:env:PUSH"}}}}
"""


@pytest.fixture(params=SANDBOXES)
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PipelineHarness]:
    made = PipelineHarness(tmp_path, environ={"PUSH": TOKEN})
    made.commands._sandbox = choose(request.param, made._private)
    yield made
    await made.close()


async def run(harness: PipelineHarness, text: str) -> Any:
    harness.pipeline = parse(text, "pipeline.yml")
    return await harness.do()


def repository(folder: Path, origin: str) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (folder / "file").write_text("hello\n")
    for words in (["init", "-q", "-b", "main"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "remote", "add", "origin", origin], check=True)


# --- hosts ---


@pytest.mark.needs("git")
async def test_git_pushes_to_a_listed_host_and_to_no_other(harness: PipelineHarness, tmp_path: Path) -> None:
    with git_server(tmp_path / "served", TOKEN) as server:
        repository(harness.workspace, server.create("project"))
        other = await run(harness, PUSH.format(network="[github.com:443]", host="github.com"))
        assert (other.status, server.requests) == ("awaiting_approval", [])  # no rule for that host
        host = f'"127.0.0.1:{server.port}"'
        pushed = await run(harness, PUSH.format(network=f"[{host}]", host=host))
        assert pushed.status == "completed", pushed.error
        assert server.log("project") == ["first"]
        assert TOKEN.encode() not in bytes_below(harness.workspace)


async def test_hosts_are_asked_about_shown_and_bound(harness: PipelineHarness) -> None:
    text = "name: N\nsteps:\n  - {id: a, command: cli true, effect: read, network: [b.example, A.example]}\n"
    row = await run(harness, text)
    assert row.status == "awaiting_approval"
    wait = await harness.wait(row.id)
    assert wait.details["preview"]["network"] == "only a.example, b.example"
    harness.pipeline = parse(text.replace("b.example", "c.example"), "pipeline.yml")
    assert (await harness.decide(row.id, "approve")).status == "awaiting_approval"  # for another host
    harness.allow({**ANYTHING, "egress": {"deny": ["a.example"]}})
    denied = await run(harness, text)
    assert denied.error is not None
    assert denied.error.code == "forbidden"


# --- paths ---


def reading(path: object, *, command: str | None = None) -> str:
    return f"name: R\nsteps:\n  - id: a\n    command: {command or f'cli cat {path}'}\n    effect: read\n    reads: [{path}]\n"


async def test_a_listed_path_is_asked_about_and_then_readable_and_nothing_else(
    harness: PipelineHarness, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("kept\n")
    (tmp_path / "other").write_text("not listed\n")
    row = await run(harness, reading(outside, command=f"cli cat {outside}/a"))
    assert row.status == "awaiting_approval"
    wait = await harness.wait(row.id)
    assert wait.details["preview"]["may also read"] == str(outside)
    assert wait.details["preview"]["may change"] == "nothing"
    done = await harness.decide(row.id, "approve")
    assert (done.status, await harness.outputs(row.id)) == ("completed", {"a": "kept\n"})
    rules = {**ANYTHING, "files": {"allow": [f"read:{outside}"]}}
    harness.allow(rules)
    for command, code in ((f"cli cat {tmp_path}/other", "exit_code"), (f"cli tee {outside}/a", "exit_code")):
        refused = await run(harness, reading(outside, command=command))
        assert refused.error is not None
        assert refused.error.code == code
    assert (outside / "a").read_text() == "kept\n"
    harness.allow({**ANYTHING, "files": {"deny": [f"read:{outside}"]}})
    denied = await run(harness, reading(outside))
    assert denied.error is not None
    assert denied.error.code == "forbidden"


async def test_rules_hold_for_what_a_link_leads_to(harness: PipelineHarness, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    harness.allow({**ANYTHING, "files": {"allow": [f"read:{tmp_path}/link"], "deny": [f"read:{tmp_path}/real"]}})
    denied = await run(harness, reading(tmp_path / "link"))
    assert denied.error is not None
    assert denied.error.code == "forbidden"


async def test_a_listed_folder_does_not_give_access_to_its_sockets(harness: PipelineHarness, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "it"))
        server.listen()
        harness.allow({**ANYTHING, "files": {"allow": [f"read:{folder}"]}})
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('{folder}/it'); print('connected')"
        command = f'cli {sys.executable} -c "{code}"'
        refused = await run(harness, reading(folder, command=command))
        assert refused.status == "failed"
        assert "connected" not in str(await harness.outputs(refused.id))


@pytest.mark.parametrize("name", ["missing", "link-to-system"])
async def test_a_path_that_cannot_be_given_fails_the_step(harness: PipelineHarness, tmp_path: Path, name: str) -> None:
    (tmp_path / "link-to-system").symlink_to("/proc")
    harness.allow({**ANYTHING, "files": {"allow": ["read:/**"]}})
    refused = await run(harness, reading(tmp_path / name))
    assert refused.error is not None
    assert refused.error.code == "bad_command"


# --- mistakes ---


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("network: ['*.example.com']", "BAD_HOST"),
        ("network: [https://example.com/]", "BAD_HOST"),
        ("network: ['${host}']", "BAD_REFERENCE"),
        ("network: []", "SCHEMA"),
        ("network: true", "SCHEMA"),
        ("credentials: {b.example: {username: a, password: 'secret:env:P'}}", "BAD_HOST"),
        ("network: [b.example]\n    credentials: {b.example: {username: a, password: open}}", "SCHEMA"),
        (
            "network: [b.example]\n    credentials: {b.example: {username: 'secret:env:P', password: 'secret:env:P'}}",
            "SECRET_MISPLACED",
        ),
        ("network: [b.example]\n    credentials: {b.example: {username: a}}", "SCHEMA"),
        ("reads: [data]", "BAD_PATH"),
        ("reads: [/]", "BAD_PATH"),
        ("reads: ['~']", "BAD_PATH"),
        ("reads: [/a/../etc]", "BAD_PATH"),
        ("reads: [/proc/1]", "BAD_PATH"),
        ("reads: ['/etc/*']", "BAD_PATH"),
    ],
)
def test_a_mistake_is_reported_with_its_line(field: str, code: str) -> None:
    text = f"name: N\nargs: {{host: {{default: a}}}}\nsteps:\n  - id: a\n    command: cli true\n    {field}\n"
    found = [(one.code, one.line) for one in check(text, "p.yml") if one.severity == "error"]
    assert found == [(code, 6 + field.count("\n"))]


def test_only_commands_have_hosts_and_paths() -> None:
    text = "name: N\nsteps:\n  - id: a\n    command: http https://example.com\n    network: [a.example]\n    reads: [/etc/x]\n"
    found = [(one.code, one.line) for one in check(text, "p.yml") if one.severity == "error"]
    assert found == [("NOT_OF_THIS_STEP", 5), ("NOT_OF_THIS_STEP", 6)]
