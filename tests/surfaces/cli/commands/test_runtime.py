"""`cuebook runtime` and `cuebook run --envelope`: one line of JSON on stdout, and the matching exit code."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.surfaces.python.runtime import Runtime
from tests.support.command_line import CommandLine, Ran, finished
from tests.support.postgres import free_port
from tests.support.runtime import GATED, SLOW


@pytest.fixture
def cli(bare_cli: CommandLine) -> CommandLine:
    """A command line whose policy allows all commands. It has no model."""
    folder = bare_cli.home / "config" / "cuebook"
    folder.mkdir(parents=True)
    (folder / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    bare_cli.write("gated.yml", GATED)
    bare_cli.write("slow.yml", SLOW)
    return bare_cli


def ask(cli: CommandLine, request: dict[str, Any], *flags: str) -> Ran:
    return cli.call("runtime", *flags, stdin=json.dumps(request))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def test_a_run_waits_and_is_resumed_by_its_token(cli: CommandLine) -> None:
    waiting = cli.call("run", "gated.yml", "--envelope")
    assert (waiting.code, waiting.err) == (3, "")
    assert len(waiting.out.splitlines()) == 1
    assert waiting.object["status"] == "needs_approval"
    token = waiting.object["requiresApproval"]["resumeToken"]
    done = ask(cli, {"action": "resume", "token": token, "approve": True, "reason": "fine"})
    assert (done.code, done.object["status"]) == (0, "ok")
    assert (cli.work / "made.txt").exists()
    conflict = ask(cli, {"action": "resume", "token": token, "approve": False})
    assert (conflict.code, conflict.object["error"]["code"]) == (2, "conflict")


def test_a_request_comes_as_an_argument_a_file_or_stdin(cli: CommandLine) -> None:
    request = json.dumps({"action": "run", "pipeline": GATED})
    (cli.work / "request.json").write_text(request)
    for ran in (
        cli.call("runtime", request),
        cli.call("runtime", "@request.json"),
        cli.call("runtime", "-", stdin=request),
        cli.call("runtime", stdin=request),
    ):
        assert (ran.code, ran.object["status"]) == (3, "needs_approval")


def test_the_strict_form_has_no_other_fields(cli: CommandLine) -> None:
    waiting = cli.call("run", "gated.yml", "--strict-envelope")
    assert sorted(waiting.object) == ["ok", "output", "requiresApproval", "status"]
    token = waiting.object["requiresApproval"]["resumeToken"]
    denied = ask(cli, {"action": "resume", "token": token, "approve": False}, "--strict-envelope")
    assert (denied.code, denied.object) == (
        5,
        {"ok": True, "status": "cancelled", "output": [{"file": "a"}, {"file": "b"}]},
    )


def test_an_invalid_request_is_reported_and_leaves_no_store(cli: CommandLine) -> None:
    for request in ("{", "{}", '{"action": "run"}'):
        ran = cli.call("runtime", request)
        assert (ran.code, ran.object["error"]) == (2, "invalid_request")
        assert ran.object["message"]
    unknown = ask(cli, {"action": "status", "runId": "x"})
    assert (unknown.code, unknown.object["error"]["code"]) == (2, "not_found")
    assert not cli.store.exists()


def test_a_playbook_that_cannot_be_run_is_an_envelope_too(cli: CommandLine) -> None:
    cli.write("broken.yml", "name: B\nsteps: []\n")
    for name, flags in (("broken.yml", ()), ("missing.yml", ()), ("gated.yml", ("--input", "x=1"))):
        ran = cli.call("run", name, "--envelope", *flags)
        assert (ran.code, ran.object["status"]) == (2, "error")
        assert ran.object["error"]["code"] == "invalid_request"
    assert not cli.store.exists()


def test_a_step_that_fails_has_its_exit_code(cli: CommandLine) -> None:
    cli.write("failing.yml", "name: F\nsteps:\n  - {id: a, command: cli false, effect: read}\n")
    ran = cli.call("run", "failing.yml", "--envelope")
    assert (ran.code, ran.object["error"]["stepId"]) == (1, "a")


def test_a_caller_who_stops_waiting_gets_the_envelope_while_the_run_continues(cli: CommandLine) -> None:
    process = cli.begin("runtime", json.dumps({"action": "run", "pipeline": SLOW, "waitMs": 1}))
    assert process.stdout is not None
    late = json.loads(process.stdout.read())  # to its end: stdout is closed
    assert late["error"]["code"] == "timeout"
    assert "continues in this process" in late["error"]["message"]
    assert process.poll() is None
    status = {"action": "status", "runId": late["runId"], "waitMs": 1}
    elsewhere = ask(cli, status)
    assert (elsewhere.code, elsewhere.object["error"]["code"]) == (1, "timeout")
    assert "continues in another process" in elsewhere.object["error"]["message"]
    (cli.work / "go").touch()
    assert process.wait(60) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    done = ask(cli, status)
    assert (done.code, done.object["output"]) == (0, ["went\n"])


def test_another_user_decides_by_their_roles(cli: CommandLine) -> None:
    cli.call("users", "add", "ada", "--role", "approver")
    cli.call("users", "add", "sam", "--role", "runner")
    waiting = ask(cli, {"action": "run", "pipeline": GATED}, "--as", "sam").object
    resume = {"action": "resume", "token": waiting["requiresApproval"]["shortId"], "approve": True}
    refused = ask(cli, resume, "--as", "sam")
    assert (refused.code, refused.object["error"]["code"]) == (5, "not_allowed")
    assert ask(cli, resume, "--as", "nobody").object["error"]["code"] == "not_found"
    assert ask(cli, resume, "--as", "ada").object["status"] == "ok"


def test_a_wait_is_decided_by_the_beginning_of_its_id(cli: CommandLine) -> None:
    asked = cli.call("run", "gated.yml", "--envelope").object["requiresApproval"]
    assert cli.call("decide", asked["shortId"], "approve").code == 0


def test_a_viewer_does_not_take_up_a_run(cli: CommandLine) -> None:
    """Not even a run whose process is gone."""
    cli.call("users", "add", "vic", "--role", "viewer")
    process = cli.begin("run", "slow.yml", "--envelope")
    until(lambda: cli.store.exists() and bool(cli.call("runs", "--json").object))
    until(lambda: cli.call("runs", "--json").object[0]["status"] == "running")
    process.kill()
    finished(process)
    (cli.work / "go").touch()
    run = cli.call("runs", "--json").object[0]["run"]
    printed = ask(cli, {"action": "status", "runId": run}, "--as", "vic")
    assert (printed.code, printed.object["error"]["code"]) == (1, "not_driven")
    assert f"cuebook resume {run}" in printed.object["error"]["message"]
    assert cli.call("runs", "--json").object[0]["status"] == "running"
    done = ask(cli, {"action": "status", "runId": run})
    assert (done.code, done.object["output"]) == (0, ["went\n"])
    assert ask(cli, {"action": "status", "runId": run}, "--as", "vic").object["status"] == "ok"


def test_another_user_retries_by_their_roles(cli: CommandLine) -> None:
    cli.call("users", "add", "vic", "--role", "viewer")
    cli.call("users", "add", "sam", "--role", "runner")
    cli.write("failing.yml", "name: F\nsteps:\n  - {id: a, command: cli test -e there, effect: read}\n")
    run = cli.call("run", "failing.yml", "--envelope").object["runId"]
    (cli.work / "there").touch()
    refused = cli.call("retry", run, "--as", "vic")
    assert (refused.code, "may not retry runs" in refused.err) == (5, True)
    assert cli.call("retry", run, "--as", "sam").code == 0
    assert cli.call("audit", run, "--json").object["interventions"][0]["by"] == "sam"


@pytest.mark.parametrize("form", [(), ("--strict-envelope",)])
def test_a_spent_budget_has_its_exit_code_in_every_form(cli: CommandLine, form: tuple[str, ...]) -> None:
    text = "name: T\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n"
    waiting = ask(cli, {"action": "run", "pipeline": text, "timeoutMs": 1}, *form)
    assert waiting.code == 3
    token = waiting.object["requiresApproval"]["resumeToken"]
    spent = ask(cli, {"action": "resume", "token": token, "approve": True}, *form)
    assert (spent.code, spent.object["status"]) == (4, "needs_approval")
    assert not (cli.work / "made.txt").exists()


def test_too_many_starts_come_to_nothing(cli: CommandLine) -> None:
    cli.environ["CUEBOOK_RATE_LIMIT"] = "1/day"
    assert ask(cli, {"action": "run", "pipeline": GATED}).code == 3
    ran = ask(cli, {"action": "run", "pipeline": GATED})
    assert (ran.code, ran.object["error"]["code"]) == (2, "rate_limited")


def test_an_approval_that_is_not_there_is_not_called_a_question(cli: CommandLine) -> None:
    ran = ask(cli, {"action": "resume", "token": "w0000000000000000", "approve": True})
    assert ran.object["error"]["code"] == "not_found"
    assert "question" not in ran.object["error"]["message"]


def test_a_user_without_the_role_cannot_cancel(cli: CommandLine) -> None:
    (cli.home / "config" / "cuebook" / "policy.toml").write_text(
        '[commands]\nallow = ["*"]\n[runs]\ncancel = "owner"\n'
    )
    cli.call("users", "add", "sam", "--role", "runner")
    run = cli.call("run", "gated.yml", "--envelope").object["runId"]
    refused = cli.call("cancel", run, "--as", "sam")
    assert (refused.code, "started it" in refused.err) == (5, True)
    assert cli.call("cancel", run).code == 5
    assert "A run may be cancelled by the user who started it, or an admin." in cli.call("policy", "show").out


# --- cancelling what runs -----------------------------------------------------------------------------------------------

TREE = """
name: Tree
steps:
  - id: grow
    command: >-
      cli python3 -c "import os, subprocess, sys, time;
      child = subprocess.Popen([sys.executable, '-c', GRANDCHILD], start_new_session=True);
      open('child', 'w').write(str(child.pid)); time.sleep(600)"
  - {id: ask, command: cli true, approval: required}
"""
GRANDCHILD = "import os, time; open('beat', 'w').close(); [(time.sleep(0.05), os.utime('beat')) for _ in range(12000)]"


def beats(path: Path) -> bool:
    """Whether something still touches the file."""
    before = path.stat().st_mtime_ns
    time.sleep(0.5)
    return path.stat().st_mtime_ns != before


@pytest.mark.parametrize("way", ["cancel", "runtime"])
def test_cancelling_in_another_process_ends_what_the_command_started(cli: CommandLine, way: str) -> None:
    """The grandchild has its own session, so that no signal to the group reaches it."""
    cli.write("tree.yml", TREE.replace("GRANDCHILD", repr(GRANDCHILD).replace('"', '\\"')))
    process = cli.begin("run", "tree.yml", "--envelope")
    until((cli.work / "beat").exists)
    assert beats(cli.work / "beat")
    (run,) = [row["run"] for row in cli.call("runs", "--json").object]
    if way == "cancel":
        cancelled = cli.call("cancel", run, "--reason", "enough", "--json")
        assert (cancelled.code, cancelled.object["status"]) == (5, "cancelled")
    else:
        envelope = ask(cli, {"action": "cancel", "runId": run, "reason": "enough"})
        assert (envelope.code, envelope.object["status"]) == (5, "cancelled")
    assert not beats(cli.work / "beat")
    ran = finished(process)
    assert (ran.code, ran.object["status"]) == (5, "cancelled")
    assert cli.call("inbox", "--json").object == []


def test_a_cancelled_run_leaves_no_approval_open(cli: CommandLine) -> None:
    waiting = cli.call("run", "gated.yml", "--envelope").object
    assert len(cli.call("inbox", "--json").object) == 1
    assert cli.call("cancel", waiting["runId"]).code == 5
    assert cli.call("inbox", "--json").object == []
    token = waiting["requiresApproval"]["resumeToken"]
    late = ask(cli, {"action": "resume", "token": token, "approve": True})
    assert (late.code, late.object["error"]["code"]) == (2, "invalid_state")
    assert not (cli.work / "made.txt").exists()


def test_an_interrupted_call_says_how_to_continue(cli: CommandLine) -> None:
    process = cli.begin("run", "slow.yml", "--envelope")
    until(lambda: cli.store.exists() and bool(cli.call("runs", "--json").object))
    until(lambda: cli.call("runs", "--json").object[0]["status"] == "running")
    process.send_signal(signal.SIGINT)
    ran = finished(process)
    assert (ran.code, ran.out) == (130, "")
    assert "continues where it stopped" in ran.err


# --- from Python -----------------------------------------------------------------------------------------------------------


async def test_python_has_the_same_contract(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cli.environ.items():
        if name.startswith(("XDG_", "CUEBOOK_", "HOME")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.work)
    assert cuebook.Runtime is Runtime
    async with cuebook.Runtime() as runtime:
        waiting = await runtime.handle({"action": "run", "pipeline": GATED})
        assert waiting["status"] == "needs_approval"
        late = await runtime.handle({"action": "run", "pipeline": SLOW, "waitMs": 0})
        assert late["error"]["code"] == "timeout"
        (cli.work / "go").touch()
        await asyncio.wait_for(runtime.finished(), 60)
        done = await runtime.handle({"action": "status", "runId": late["runId"]}, strict=True)
        assert done == {"ok": True, "status": "ok", "output": ["went\n"]}
    token = waiting["requiresApproval"]["resumeToken"]
    ran = await asyncio.to_thread(ask, cli, {"action": "resume", "token": token, "approve": True})
    assert ran.object["status"] == "ok", "another process goes on with what Python started"


async def test_a_runtime_that_is_not_open_says_how_to_use_it(cli: CommandLine) -> None:
    runtime = cuebook.Runtime(store=cli.store)
    for _ in range(2):
        with pytest.raises(cuebook.CuebookError, match="async with"):
            await runtime.handle({"action": "status", "runId": "x"})
        with pytest.raises(cuebook.CuebookError, match="async with"):
            await runtime.finished()
        with pytest.raises(cuebook.CuebookError, match="async with"):
            _ = runtime.service
        async with runtime:
            assert (await runtime.handle({"action": "status", "runId": "x"}))["error"]["code"] == "not_found"


def test_an_invalid_request_is_answered_with_an_error(cli: CommandLine) -> None:
    for args in (["@no-such-file"], []):
        ran = cli.call("runtime", *args, stdin="")
        assert (ran.code, ran.object["error"], ran.err) == (2, "invalid_request", "")


def test_a_run_is_cancelled_by_its_whole_id_only(cli: CommandLine) -> None:
    run = cli.call("run", "gated.yml", "--envelope").object["runId"]
    short = ask(cli, {"action": "cancel", "runId": run[:1]}).object
    assert (short["error"]["code"], run in short["error"]["message"]) == ("not_found", True)
    assert ask(cli, {"action": "cancel", "runId": run}).object["status"] == "cancelled"


@pytest.mark.parametrize("asked", [{"action": "status", "runId": "x"}, {"action": "run", "pipeline": "tea.md"}])
@pytest.mark.parametrize("strict", [False, True])
def test_a_store_or_a_configuration_that_cannot_be_used_is_an_envelope(
    cli: CommandLine, asked: dict[str, str], strict: bool
) -> None:
    cli.write("broken.db", "This is no store. " * 100)
    words = ["runtime", json.dumps(asked), *(["--strict-envelope"] if strict else [])]
    cli.environ |= {"CUEBOOK_SIGNING_KEY": "env:KEY", "KEY": "k" * 32}
    refused = {
        "damaged": cli.call(*words, "--store", "broken.db"),
        "cannot be reached": cli.call(*words, "--store", f"postgresql://127.0.0.1:{free_port()}/x"),
    }
    cli.config.write_text("nonsense = 1\n")
    refused["nonsense"] = cli.call(*words)
    for part, ran in refused.items():
        assert ran.code == 2
        envelope = json.loads(ran.out)
        assert (envelope["ok"], envelope["status"], envelope["error"]["code"]) == (False, "error", "invalid_request")
        assert part in envelope["error"]["message"]
