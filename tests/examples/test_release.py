"""The release of `examples/release`, with real processes: what it does, and that a kill loses and duplicates nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.performers.models.weights import find_weights
from tests.examples.release import EXAMPLE, STEPS, SUMMARY, Hook, Release
from tests.support.command_line import CommandLine, Ran
from tests.support.fork_server import restore_signals
from tests.support.model_server import ModelServer
from tests.support.sampling import many, some

WEIGHTS = find_weights()
pytestmark = pytest.mark.needs("git")


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    made = Hook(tmp_path / "announced.jsonl")
    yield made
    made.close()


@pytest.fixture
def release(cli: CommandLine, server: ModelServer, hook: Hook) -> Release:
    server.script = lambda request: json.dumps({"summary": SUMMARY})
    return Release(cli, hook)


# --- what it does ---------------------------------------------------------------------------------------------


def test_nothing_is_tagged_before_a_person_has_seen_the_diff_and_approved(
    release: Release, server: ModelServer
) -> None:
    asked = release.cli.call(*release.begin)
    assert asked.code == 3
    assert "\n  output of diff:\n  | diff --git a/greeting.py b/greeting.py\n" in asked.err
    assert '\n  | -    return "Hello " + name\n  | +    return f"Hello {name or \'stranger\'}!"\n' in asked.err
    assert SUMMARY in asked.err
    assert "End the greeting with an exclamation mark\nGreet strangers too" in server.prompts[0]
    assert (release.tags(), release.hook.keys) == (["v1.1.0"], [])
    done = release.cli.call("decide", release.run, "approve", "--reason", "read it", "--json")
    assert (done.code, done.object["status"]) == (0, "completed")
    release.assert_released_once()
    evidence = {step["step"]: step for step in release.cli.call("audit", release.run, "--json").object["steps"]}
    assert evidence["tag"]["decisions"][0]["reason"] == "read it"
    assert [evidence[step]["notes"]["postcondition"][0]["verdict"] for step in ("tag", "announce", "look")] == [
        "passed"
    ] * 3


def test_a_denial_leaves_no_tag_and_no_announcement(release: Release) -> None:
    assert release.cli.call(*release.begin).code == 3
    denied = release.cli.call("decide", release.run, "deny", "--reason", "not today", "--json")
    assert (denied.code, denied.object["status"]) == (5, "cancelled")
    assert (release.tags(), release.hook.keys) == (["v1.1.0"], [])
    statuses = release.statuses()
    assert [statuses[step] for step in ("announce", "look")] == ["skipped", "skipped"]


def test_tests_that_fail_end_the_release_before_anyone_is_asked(release: Release, server: ModelServer) -> None:
    (release.repository / "greeting.py").write_text("def greeting(name):\n    return 'Hello'\n")
    ran = release.cli.call(*release.begin)
    assert (ran.code, "FAILED (failures=1)" in ran.err) == (1, True)
    assert (release.tags(), server.requests) == (["v1.1.0"], [])


def test_without_the_policy_rule_the_webhook_cannot_be_reached(release: Release) -> None:
    assert release.cli.call("policy", "trust", "--revoke").code == 0
    plan = release.cli.call("plan", *release.begin[1:], "--json")
    steps = {step["step"]: step for step in plan.object["steps"]}
    assert steps["announce"]["decision"] != "allow"
    assert "cuebook policy trust" in steps["announce"]["notes"][0]
    assert release.cli.call(*release.begin).code == 3
    ran = release.cli.call("decide", release.run, "approve")
    assert (ran.code, release.statuses()["announce"], release.hook.keys) == (1, "failed", [])


def test_a_webhook_that_does_not_answer_is_asked_about_and_a_repetition_finishes_the_release(release: Release) -> None:
    release.hook.hold = "lost"
    release.hook.release()
    assert release.cli.call(*release.begin).code == 3
    ran = release.cli.call("decide", release.run, "approve")
    assert ran.code == 3
    assert "Ask the webhook's operator to remove the announcement." in ran.err
    assert release.cli.call("decide", release.run, "repeat").code == 0
    release.assert_released_once()
    steps = {step["step"]: step for step in release.cli.call("audit", release.run, "--json").object["steps"]}
    assert (steps["announce"]["status"], len(steps["announce"]["acts"])) == ("completed", 2)


# --- killed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", some(STEPS, 3))
def test_killed_when_a_step_begins_it_continues_from_there(release: Release, step: str) -> None:
    def begins(event: dict[str, Any]) -> bool:
        return bool(event["event"] == "StepStarted" and event["data"]["label"] == step)

    if step in ("announce", "look"):
        assert release.cli.call(*release.begin).code == 3
        assert release.cli.until("decide", release.run, "approve", kill_at=begins)
    else:
        assert release.cli.until(*release.begin, kill_at=begins)
    release.bring_to_its_end()
    release.assert_released_once()


@pytest.mark.timeout(400)  # dozens of processes
def test_killed_repeatedly_it_ends_as_if_never_killed(release: Release) -> None:
    """At every few events, in whichever process drives it then."""
    call: tuple[str, ...] | None = tuple(release.begin)
    kills = 0
    while call is not None:
        left = many(9, 2) + kills % 5

        def counted(event: dict[str, Any]) -> bool:
            nonlocal left
            left -= 1
            return left == 0

        kills += release.cli.until(*call, kill_at=counted)
        assert kills < 100
        call = release.next_call()
    assert kills > many(2, 10)
    assert set(release.doubts) <= {"tag", "announce"}
    release.assert_released_once()
    assert release.cli.call("verify", release.run).code == 0
    assert release.cli.call("replay", release.run).code == 0


def test_killed_while_the_tests_run_they_run_again(release: Release) -> None:
    release.slow_down("test_greeting.py", "        self.assert", before=True)
    assert release.cli.until(*release.begin, kill_at=lambda event: event["event"] == "Performing")
    release.go_on()
    release.bring_to_its_end()
    release.assert_released_once()
    assert release.doubts == []


def test_killed_while_the_model_writes_it_is_asked_again(release: Release, server: ModelServer) -> None:
    server.hold_at = 1
    release.killed_while(*release.begin, holding=lambda: server.holding.wait(30))
    server.release()
    release.bring_to_its_end()
    release.assert_released_once()
    assert (len(server.requests), release.doubts) == (2, [])


def test_killed_while_waiting_for_approval_it_still_asks(release: Release) -> None:
    """Nothing is running then, so nothing can be lost."""
    assert release.cli.until(*release.begin, kill_at=lambda event: event["event"] == "WaitOpened")
    assert [(wait["kind"], wait["step"]) for wait in release.shown()["waits"]] == [("approval", "tag")]
    release.bring_to_its_end()
    release.assert_released_once()
    assert release.doubts == []


@pytest.mark.parametrize("made", [False, True])
def test_killed_while_it_tags_it_asks_what_happened(release: Release, made: bool) -> None:
    release.slow_down("make_tag.py", "    main(sys.argv", before=not made)
    assert release.cli.call(*release.begin).code == 3
    release.killed_while("decide", release.run, "approve", holding=release.held)
    release.go_on()
    assert_in_doubt(release, "tag", "command", "python3 make_tag.py v1.2.0")
    assert ("v1.2.0" in release.tags(), release.hook.keys) == (made, [])
    release.bring_to_its_end()
    release.assert_released_once()
    assert release.doubts == ["tag"]


@pytest.mark.parametrize("when", ["lost", "taken"])
def test_killed_while_it_announces_it_asks_and_a_repetition_is_accepted_once(release: Release, when: str) -> None:
    release.hook.hold = when
    assert release.cli.call(*release.begin).code == 3
    release.killed_while("decide", release.run, "approve", holding=lambda: release.hook.holding.wait(30))
    release.hook.release()
    assert_in_doubt(release, "announce", "request", f"POST {release.hook.url}")
    assert len(release.hook.keys) == 1
    release.bring_to_its_end()
    release.assert_released_once()
    assert (len(release.hook.keys), release.doubts) == (2, ["announce"])


def test_a_person_can_confirm_the_announcement_and_nothing_is_sent_again(release: Release) -> None:
    release.hook.hold = "taken"
    assert release.cli.call(*release.begin).code == 3
    release.killed_while("decide", release.run, "approve", holding=lambda: release.hook.holding.wait(30))
    release.hook.release()
    assert_in_doubt(release, "announce", "request", f"POST {release.hook.url}")
    outcome = json.dumps({"status": 201, "body": '{"accepted": true}'})
    assert release.cli.call("decide", release.run, "done", "--outcome", outcome).code == 0
    release.assert_released_once()
    assert len(release.hook.keys) == 1


def test_a_person_can_stop_a_run_in_doubt_and_the_run_says_so(release: Release) -> None:
    release.hook.hold = "taken"
    assert release.cli.call(*release.begin).code == 3
    release.killed_while("decide", release.run, "approve", holding=lambda: release.hook.holding.wait(30))
    release.hook.release()
    assert_in_doubt(release, "announce", "request", f"POST {release.hook.url}")
    stopped = release.cli.call("decide", release.run, "stop", "--reason", "somebody must look")
    assert stopped.code == 1
    assert len(release.hook.keys) == 1
    (decision,) = [
        one
        for step in release.cli.call("audit", release.run, "--json").object["steps"]
        for one in step.get("decisions", [])
        if step["step"] == "announce"
    ]
    assert decision["reason"] == "somebody must look"


def test_killed_while_it_checks_it_checks_again(release: Release) -> None:
    assert release.cli.call(*release.begin).code == 3
    release.hook.hold = "look"
    release.killed_while("decide", release.run, "approve", holding=lambda: release.hook.holding.wait(30))
    release.hook.release()
    release.bring_to_its_end()
    release.assert_released_once()
    assert release.doubts == []


def assert_in_doubt(release: Release, step: str, part: str, what: str) -> None:
    """The run was killed in this step: it asks, in every place where a person would look, and does nothing."""
    ran = release.cli.call("resume", release.run)
    assert ran.code == 3
    assert f"\nnext: cuebook decide {release.run} repeat|stop\n" in ran.err
    shape = {
        "command": '{"exit_code": 0, "stdout": "what it printed"}',
        "request": '{"status": 200, "body": "what the server answered"}',
    }
    assert f"\nif done: cuebook decide {release.run} done --outcome '{shape[part]}'\n" in ran.err
    assert "\nstatus: in doubt\n" in ran.err
    again = release.cli.call("resume", release.run)
    assert f"Run {release.run} is in doubt: there is no pause to end." in again.err
    (wait,) = release.shown()["waits"]
    assert (wait["kind"], wait["step"]) == ("in_doubt", step)
    assert f"\n  {part}:\n    | {what}\n" in ran.err
    assert f"\n{part}:\n  | {what}\n" in release.cli.call("inbox", wait["wait"]).out
    assert wait["preview"][part] == what
    assert wait["effect"]["is"] in ("RunCommand", "SendHttp")
    assert release.statuses()[step] == "in_doubt"


# --- as it is told to be tried --------------------------------------------------------------------------------


def making(cli: CommandLine, *args: str) -> subprocess.Popen[str]:
    """`make` in the example's folder, with the `cuebook` under test."""
    command = cli.home / "cuebook"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cuebook "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    temporary = cli.home.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    environ = {**cli.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen(
        ["make", "--no-print-directory", "-C", str(EXAMPLE), f"CUEBOOK={command}", *args],
        env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=restore_signals,
    )  # fmt: skip


def made(cli: CommandLine, process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate()
    assert os.listdir(cli.home.parent / "temporary") == []
    return Ran(process.returncode, out, err)


def make(cli: CommandLine, *args: str) -> Ran:
    return made(cli, making(cli, *args))


def test_make_release_does_all_of_it_and_leaves_nothing_behind(cli: CommandLine, server: ModelServer) -> None:
    server.script = lambda request: json.dumps({"summary": SUMMARY})
    ran = make(cli, "release", "DECISION=approve")
    assert ran.code == 0, ran.err
    assert "output of diff:" in ran.err
    tags, _, accepted = ran.out.partition("==> The tags\n")[2].partition(
        "==> Announcements that the webhook accepted\n"
    )
    assert tags.count(f"v1.2.0          {SUMMARY}") == 1
    (line,) = accepted.splitlines()
    assert json.loads(line)["tag"] == "v1.2.0"


@pytest.mark.parametrize(
    ("decision", "why"), [("foo", "'foo' is not a decision"), ("ask", "there is no terminal to ask in")]
)
def test_make_release_without_a_decision_does_not_start(cli: CommandLine, decision: str, why: str) -> None:
    ran = make(cli, "release", f"DECISION={decision}")
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err


def test_make_release_continues_after_an_interruption(cli: CommandLine, server: ModelServer) -> None:
    began: list[subprocess.Popen[str]] = []

    def script(request: object) -> str:
        if len(began) == 1:
            began.append(began[0])
            os.killpg(began[0].pid, signal.SIGINT)  # as Ctrl-C does
        return json.dumps({"summary": SUMMARY})

    server.script = script
    began.append(making(cli, "release", "DECISION=approve"))
    ran = made(cli, began[0])
    assert "continues where it stopped" in ran.err
    assert "==> cuebook resume " in ran.out
    tags, _, accepted = ran.out.partition("==> The tags\n")[2].partition(
        "==> Announcements that the webhook accepted\n"
    )
    assert tags.count(f"v1.2.0          {SUMMARY}") == 1
    assert len(accepted.splitlines()) == 1


def test_make_release_that_is_denied_tags_nothing(cli: CommandLine, server: ModelServer) -> None:
    server.script = lambda request: json.dumps({"summary": SUMMARY})
    ran = make(cli, "release", "DECISION=deny")
    tags, _, accepted = ran.out.partition("==> The tags\n")[2].partition(
        "==> Announcements that the webhook accepted\n"
    )
    assert (ran.code, "v1.2.0" in tags) == (0, False)
    assert (
        accepted == "nothing\nThe release was denied, as requested: it is cancelled, and nothing was tagged or sent.\n"
    )


def test_the_commands_of_the_makefile_work_one_by_one(cli: CommandLine, server: ModelServer, hook: Hook) -> None:
    server.script = lambda request: json.dumps({"summary": SUMMARY})
    where = (f"FOLDER={cli.work}/scratch", f"PORT={hook.server_port}")
    assert make(cli, "test").code == 0
    assert make(cli, "scratch", *where).code == 0
    assert "asked:      tag\n" in make(cli, "plan", *where).out
    asked = make(cli, "run", *where)
    run = asked.err.rpartition("\nrun: ")[2].partition("\n")[0]
    said = shlex.split(asked.err.rpartition("\nin full: cuebook ")[2].partition("\n")[0])
    assert "output of diff:" in cli.call(*said).out, "the command that is printed finds the store of the example"
    assert make(cli, "decide", f"RUN={run}", "DECISION=approve", *where).code == 0
    assert "unbroken" in make(cli, "audit", f"RUN={run}", *where).out
    assert [one["tag"] for one in hook.accepted()] == ["v1.2.0"]
    assert make(cli, "clean", *where).code == 0
    assert not (cli.work / "scratch").exists()


@pytest.mark.embedded
@pytest.mark.skipif(WEIGHTS is None, reason="the weights of the embedded model are not installed")
def test_the_embedded_model_drafts_notes_that_keep_the_contract(bare_cli: CommandLine, hook: Hook) -> None:
    bare_cli.environ["CUEBOOK_LOCAL_WEIGHTS"] = str(WEIGHTS)
    release = Release(bare_cli, hook)
    assert bare_cli.call(*release.begin).code == 3
    assert bare_cli.call("decide", release.run, "approve").code == 0
    (accepted,) = hook.accepted()
    summary = accepted["summary"]
    assert "greeting" in summary, "the commits are what it is asked to sum up"
    assert len(set(summary.split())) > len(summary.split()) / 2, f"It repeats itself: {summary}"
    assert release.tags() == ["v1.1.0", "v1.2.0"]
