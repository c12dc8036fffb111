"""Tools over MCP: real servers as child processes in the sandbox."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cuebook.gate.sandbox import choose, process_tree
from cuebook.kernel.effects import SecretUse
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import LACKS_SECRET, Failed, ToolResult
from cuebook.kernel.ports import EVERYWHERE, Action, Limits
from cuebook.performers.mcp import McpServer, connection, mcp_servers
from cuebook.performers.mcp.server import launch
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.mcp.harness import BY_HAND, GOOD, SECRET, McpHarness, Trusting, assert_nothing_left, running
from tests.performers.tools.calls import ToolCaller, described, not_described

T = TypeVar("T")
SOURCE = Path(BY_HAND).read_text()


async def told_of_change(box: Toolbox, tool: str, wanted: type[T]) -> T:
    """The result of the tool after the notification of a change has arrived."""
    for _ in range(500):
        outcome = await ToolCaller().perform(box, tool)
        if isinstance(outcome, wanted):
            return outcome
        await asyncio.sleep(0.02)
    raise AssertionError("nothing changed")


def is_there(path: str) -> bool:
    return os.path.exists(path)


# --- a decent server ---


async def test_a_servers_tools_are_listed_described_and_called(harness: McpHarness):
    box = harness.good(trusted=True, env={"COLOUR": "blue"}, secret_env={"TOKEN": "env:TOKEN"})
    specs = await box.specs("good.*")
    assert isinstance(specs, list)
    add = next(spec for spec in specs if spec.name == "good.add")
    assert add.description == "Adds two numbers."
    assert add.parameters["required"] == ["a", "b"]
    assert "good.say" in [spec.name for spec in specs]

    description = await described(box, "good.add", {"a": 1, "b": 2})
    assert description.actions[0] == Action("tool", "good.add", True)
    assert Action("secret", "env:TOKEN", True) in description.actions
    assert set(description.bound) == {"server", "tool"}

    caller = ToolCaller()
    assert await caller.value(box, "good.add", {"a": 1, "b": 2}) == {"result": 3}
    assert await caller.value(box, "good.say", {"text": "hi"}) == "hi\nhi"
    picture = await caller.value(box, "good.picture")
    assert picture == ["look", {"type": "image", "mimeType": "image/png", "size": 5}]
    failed = await caller.perform(box, "good.fail", {"why": "it rains"})
    assert isinstance(failed, ToolResult)
    assert failed.is_error
    assert (await caller.failure(box, "good.add", {"a": "one", "b": 2})).code == "bad_arguments"
    assert "good.add" in (await caller.failure(box, "good.ad")).fix

    seen = await caller.value(box, "good.seen")
    assert seen["COLOUR"] == "blue"
    assert seen["TOKEN"] == SECRET
    assert seen["cwd"] == str(harness.workspace)
    assert "PYTEST_CURRENT_TEST" not in seen
    assert (await caller.failure(box, "good.ask")).code == "tool_error"  # there is no person to ask
    use = SecretUse("arguments.text", "env:OTHER")
    assert "other-secret" not in str(await described(box, "good.say", {}, (use,)))
    said = await ToolCaller(secrets={use.at: "other-secret"}).perform(box, "good.say", {}, (use,))
    assert said == ToolResult("other-secret\nother-secret")
    long = await ToolCaller(limits=Limits(output=1000)).value(box, "good.long", {"size": 100_000})
    assert long.endswith("bytes of JSON are shown]")
    slow = await ToolCaller(limits=Limits(seconds=0.3)).failure(box, "good.wait", {"seconds": 600})
    assert slow.code == "timeout"
    assert "'good'" in slow.message
    assert await caller.value(box, "good.add", {"a": 2, "b": 2}) == {"result": 4}
    assert len(harness.sandbox.started) == 1


async def test_calls_run_side_by_side_and_a_server_starts_once_however_many_ask(harness: McpHarness):
    box = harness.good()
    slow = [ToolCaller().value(box, "good.wait", {"seconds": 0.5}) for _ in range(10)]
    sums = [ToolCaller().value(box, "good.add", {"a": n, "b": n}) for n in range(10)]
    results = await asyncio.gather(*slow, *sums)
    assert results[:10] == [{"result": "waited"}] * 10
    assert results[10:] == [{"result": 2 * n} for n in range(10)]

    waiting = asyncio.create_task(ToolCaller().perform(box, "good.wait", {"seconds": 600}))
    await ToolCaller().value(box, "good.add", {"a": 1, "b": 1})
    waiting.cancel()  # which leaves the server to the others
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await ToolCaller().value(box, "good.add", {"a": 1, "b": 1}) == {"result": 2}
    assert len(harness.sandbox.started) == 1


async def test_a_tool_that_is_new_on_a_running_server_is_found(harness: McpHarness):
    box = harness.good()
    assert (await ToolCaller().failure(box, "good.grown")).code == "no_such_tool"
    await ToolCaller().value(box, "good.grow")
    assert await told_of_change(box, "good.grown", ToolResult) == ToolResult({"result": "grown"})


# --- confinement ---


async def test_a_server_is_kept_to_its_workspace_and_off_the_network(
    harness: McpHarness, tmp_path_factory: pytest.TempPathFactory
):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "private").write_text("keep out")
    await ToolCaller().value(harness.by_hand("greets"), "s.t")
    (confinement,) = harness.sandbox.started
    assert confinement.network == ()
    assert confinement.writable[0] == str(harness.workspace)
    assert not any(str(outside).startswith(path) for path in (*confinement.writable, *confinement.readable))
    home = confinement.env["HOME"]
    await harness.close()
    assert not is_there(home)


async def test_a_server_reaches_the_hosts_that_its_configuration_lists(harness: McpHarness):
    await ToolCaller().value(harness.by_hand("greets", network=("api.example.com",)), "s.t")
    (confinement,) = harness.sandbox.started
    assert confinement.network == ("api.example.com",)


# --- trust ---


async def test_it_is_started_when_its_secrets_are_at_hand_and_not_before(harness: McpHarness):
    """A secret manager may be slow, or have no value now: then the run waits."""
    asked: list[str] = []

    async def ready(handle: str) -> None:
        asked.append(handle)
        if len(asked) == 1:
            raise BadInput("The secret cannot be read.")

    server = McpServer("good", command=(sys.executable, GOOD), trusted=True, secret_env={"TOKEN": "env:TOKEN"})
    box = harness.serve(server, ready=ready)
    failed = await ToolCaller().failure(box, "good.add", {"a": 1, "b": 2})
    assert failed.details[LACKS_SECRET]
    assert harness.sandbox.started == []
    for _ in range(2):
        assert await ToolCaller().value(box, "good.add", {"a": 1, "b": 2}) == {"result": 3}
    assert asked == ["env:TOKEN"] * 2, "not again while it runs"


async def test_nothing_is_started_before_a_person_has_agreed(harness: McpHarness):
    harness.trust = Trusting(all=False)
    box = harness.by_hand("greets", env={"A": "b"}, secret_env={"TOKEN": "env:TOKEN"})
    description = await described(box, "s.t", {"x": 1})
    assert description.actions[0] == Action("tool", "s.t")
    (trust,) = description.trusts
    assert trust.subject == "mcp server s"
    assert trust.ask_first
    assert trust.prompt == "Start the tool server 's'?"
    assert trust.preview["command"] == f"{sys.executable} {BY_HAND} greets"
    assert "A=b" in trust.preview["environment"]
    assert "TOKEN=[secret env:TOKEN]" in trust.preview["environment"]
    assert SECRET not in str(description)
    assert (await ToolCaller().failure(box, "s.t")).code == "not_trusted"
    assert await box.specs("*") == []
    assert harness.sandbox.started == []


async def test_with_the_server_granted_its_tool_is_shown_and_must_be_known_to_be_called(harness: McpHarness):
    harness.trust = Trusting(all=False)
    box = harness.by_hand("greets")
    (server,) = (await described(box, "s.t")).trusts
    harness.trust.digests[server.subject] = server.digest
    description = await described(box, "s.t")
    assert description.trusts[0] == server
    tool = description.trusts[1]
    assert (tool.subject, tool.ask_first) == ("mcp tool s.t", False)
    assert tool.preview["description"] == "A tool."
    assert description.bound == {"server": server.digest, "tool": tool.digest}
    assert (await ToolCaller().failure(box, "s.t")).code == "tool_changed"
    harness.trust.digests[tool.subject] = tool.digest
    assert await ToolCaller().value(box, "s.t") == "called"


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"A": "other"}},
        {"secret_env": {"TOKEN": "env:OTHER"}},
        {"cwd": "below"},
        {"network": EVERYWHERE},
        {"network": ("api.example.com",)},
        {"trusted": True},
        {"readable": ("/opt",)},
    ],
)
async def test_a_server_that_is_configured_in_another_way_is_asked_about_again(
    harness: McpHarness, change: dict[str, Any]
):
    harness.trust = Trusting(all=False)
    (before,) = (await described(harness.by_hand("greets"), "s.t")).trusts
    (same,) = (await described(harness.by_hand("greets"), "s.t")).trusts
    (after,) = (await described(harness.by_hand("greets", **change), "s.t")).trusts
    (other,) = (await described(harness.by_hand("stubborn"), "s.t")).trusts
    assert before == same
    assert len({before.digest, after.digest, other.digest}) == 3


async def test_a_script_that_was_changed_is_asked_about_again_and_not_served_by_the_old_process(harness: McpHarness):
    script = harness.workspace / "server.py"
    script.write_text(SOURCE)
    box = harness.serve(McpServer("s", command=(sys.executable, "server.py", "greets")))
    assert await ToolCaller().value(box, "s.t") == "called"
    script.write_text(SOURCE + "\n# now with something else\n")
    assert (await ToolCaller().failure(box, "s.t")).code == "not_trusted"
    (trust,) = (await described(box, "s.t")).trusts
    harness.trust.digests[trust.subject] = trust.digest
    assert await ToolCaller().value(box, "s.t") == "called"
    assert len(harness.sandbox.started) == 2


async def test_a_server_that_was_agreed_to_is_known_again_in_another_workspace(tmp_path: Path) -> None:
    server, digests = McpServer("s", command=(sys.executable, "server.py", "greets")), set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.py").write_text(SOURCE)
        digests.add(launch(server, tmp_path / name, "bubblewrap").trust.digest)
    assert len(digests) == 1
    (tmp_path / "two" / "server.py").write_text(f"{SOURCE}\n# another one")
    assert launch(server, tmp_path / "two", "bubblewrap").trust.digest not in digests


async def test_a_program_that_is_a_script_is_known_by_its_content(harness: McpHarness):
    harness.trust = Trusting(all=False)
    script = harness.workspace / "run"
    script.write_text("#!/bin/sh\necho one\n")
    script.chmod(0o755)
    server = McpServer("s", command=("./run",))
    (before,) = (await described(harness.serve(server), "s.t")).trusts
    script.write_text("#!/bin/sh\necho two\n")
    (after,) = (await described(harness.serve(server), "s.t")).trusts
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("./bin",), "bin"),
        (("env", "python3", "server.py"), "server.py"),
        (("python3", "-u", "-X", "dev", "server.py"), "server.py"),
        (("python3", "-W", "notes.txt", "server.py"), "server.py"),
        (("python3", "server"), "server"),
        (("sh", "-c", "exec python3 server.py --fast"), "server.py"),
        (("env", "--chdir=.", "sh", "server"), "server"),
        (("true", "--load=server.py"), "server.py"),
    ],
)
async def test_whatever_code_a_command_names_is_known_by_its_content(harness: McpHarness, command: Any, file: str):
    harness.trust = Trusting(all=False)
    for name in ("bin", "server.py", "server", "notes.txt"):
        (harness.workspace / name).write_bytes(b"\x7fELF good")
    (harness.workspace / "bin").chmod(0o755)
    server = McpServer("s", command=command)
    (before,) = (await described(harness.serve(server), "s.t")).trusts
    assert before == (await described(harness.serve(server), "s.t")).trusts[0]
    assert str(harness.workspace / file) in before.preview["files as they are now"]
    (harness.workspace / file).write_bytes(b"\x7fELF evil")
    (after,) = (await described(harness.serve(server), "s.t")).trusts
    assert before.digest != after.digest


async def test_data_that_a_server_may_write_is_not_part_of_its_approval(harness: McpHarness):
    harness.trust = Trusting(all=False)
    (harness.workspace / "data.db").write_text("1")
    server = McpServer("s", command=(sys.executable, BY_HAND, "greets", "data.db"))
    (before,) = (await described(harness.serve(server), "s.t")).trusts
    (harness.workspace / "data.db").write_text("2")
    assert (await described(harness.serve(server), "s.t")).trusts == (before,)


async def test_a_person_sees_what_a_server_may_reach(harness: McpHarness):
    harness.trust = Trusting(all=False)
    (trust,) = (await described(harness.by_hand("greets", readable=("/opt",)), "s.t")).trusts
    assert trust.preview["may read"] == f"the system's programs, and\n{harness.workspace}\n/opt"
    assert trust.preview["may change"] == f"the workspace of each run that uses it, here {harness.workspace}"
    assert trust.preview["network"] == "not allowed"
    seen = launch(McpServer("s", command=("true",)), harness.workspace, "none").trust.preview
    for what in ("may read", "may change"):
        assert "without a sandbox" in seen[what]
    assert seen["network"] == "allowed"
    for network, words in ((EVERYWHERE, "allowed"), (("a.example", "b.example"), "only a.example, b.example")):
        (trust,) = (await described(harness.by_hand("greets", network=network), "s.t")).trusts
        assert trust.preview["network"] == words


async def test_a_server_that_describes_its_tool_otherwise_after_a_restart_is_not_called(harness: McpHarness):
    box = harness.by_hand("changes", str(harness.workspace / "starts"))
    assert await ToolCaller().value(box, "s.t") == "start 1"
    await box.close()
    failed = await ToolCaller().failure(box, "s.t")
    assert failed.code == "tool_changed"
    shown = (await described(box, "s.t")).trusts[1]
    assert shown.prompt == "The description of 's.t' has changed since it was first seen. Keep using it?"
    assert shown.preview["description"] == "Description 2."
    harness.trust.digests[shown.subject] = shown.digest
    assert await ToolCaller().value(box, "s.t") == "start 2"


async def test_a_tool_is_not_repeated_on_a_server_that_describes_it_otherwise(harness: McpHarness):
    box = harness.by_hand("changes", str(harness.workspace / "starts"), trusted=True)
    failed = await ToolCaller().failure(box, "s.t", {"die": True})
    assert failed.code == "tool_changed"


async def test_a_running_server_that_changes_a_description_is_not_called_either(harness: McpHarness):
    box = harness.by_hand("changes_meanwhile")
    assert await ToolCaller().value(box, "s.t") == "called"
    failed = await told_of_change(box, "s.t", Failed)
    assert failed.code == "tool_changed"
    assert "secrets" in (await described(box, "s.t")).trusts[1].preview["description"]


async def test_only_a_trusted_server_is_believed_about_what_its_tools_do(harness: McpHarness):
    mark = str(harness.workspace / "mark")
    believed = await harness.by_hand("dies_once", mark, trusted=True).find("s.t")
    harness.trust.digests.clear()  # nothing is known about a server that is not approved
    other = await harness.by_hand("dies_once", mark).find("s.t")
    assert not isinstance(believed, Failed)
    assert not isinstance(other, Failed)
    assert believed.spec == other.spec
    assert (believed.reads_only, believed.idempotent) == (True, True)
    assert (other.reads_only, other.idempotent) == (False, False)


# --- servers that fail ---


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("dies_at_once", "server_failed", "no configuration found"),
        ("dies_in_call", "dropped", "out of memory"),
        ("floods", "server_failed", "floods"),
        ("floods_with_requests", "server_failed", "floods"),
        ("garbage", "server_failed", "Listening on port 8080"),
        ("huge_line", "server_failed", "more than 4194304 bytes"),
        ("refuses", "tool_error", "not on a Sunday"),
        ("lies", "bad_result", "invalid answer"),
        ("bad_schema", "bad_schema", "not valid"),
        ("endless_list", "server_failed", "endlessly"),
    ],
)
async def test_what_a_bad_server_does_is_a_typed_outcome(harness: McpHarness, name: str, code: str, words: str):
    failed = await ToolCaller().failure(harness.by_hand(name), "s.t", {"a": 1})
    assert (failed.code, words in failed.message) == (code, True), failed
    assert failed.details["server"] == "s"
    assert not failed.retryable


async def test_a_server_that_died_says_how(harness: McpHarness):
    failed = await ToolCaller().failure(harness.by_hand("dies_in_call"), "s.t")
    assert failed.details["exit_code"] == 9
    assert failed.details["stderr"] == "out of memory"
    assert "check before you repeat it" in failed.fix


def halves_of(secret: str, text: str) -> list[str]:
    """Pieces of a secret that occur in a text without the rest of it, and so would not be masked."""
    left = text.replace(secret, "")
    return [secret[at : at + 8] for at in range(len(secret) - 7) if secret[at : at + 8] in left]


@pytest.mark.parametrize(
    "code",
    [
        "sys.stderr.write(s + 'x' * 1980 + '\\n')",
        "sys.stderr.write('x' * 190 + s + '\\n')",
        "sys.stderr.write(s + 'x' * 4086 + '\\n')",
        "sys.stderr.write('x' * 4090 + s + '\\nover\\n')",
        "sys.stderr.write('x' * 70_000 + s); sys.stderr.flush(); time.sleep(0.2); sys.stderr.write('\\n')",
        "sys.stderr.write('x' * 6000 + s[:12]); sys.stderr.flush(); time.sleep(0.3); sys.stderr.write(s[12:] + '\\n')",
        "sys.stderr.write((s + '\\n') * 1000)",
        "print('x' * 190 + s)",
        "print('x' * 90 + s)",
    ],
)
async def test_error_output_of_a_server_is_reported_in_whole_lines_or_not_at_all(harness: McpHarness, code: str):
    script = harness.workspace / "server.py"
    script.write_text(f"import os, sys, time\ns = os.environ['TOKEN']\n{code}\nsys.stdout.flush()\nsys.exit(3)\n")
    box = harness.serve(McpServer("s", command=(sys.executable, "server.py"), secret_env={"TOKEN": "env:TOKEN"}))
    failed = await ToolCaller().failure(box, "s.t")
    assert failed.code == "server_failed"
    told = [failed.message, *map(str, failed.details.values())]
    assert [halves_of(SECRET, text) for text in told] == [[]] * len(told)
    assert all(len(text) < 5_000 for text in told)


async def test_an_incomplete_line_is_not_reported(harness: McpHarness):
    script = harness.workspace / "server.py"
    script.write_text(
        "import os, sys, time\nsys.stderr.write('begun\\n' + os.environ['TOKEN'][:12])\nsys.stderr.flush()\ntime.sleep(600)\n"
    )
    server = McpServer("s", command=(sys.executable, "server.py"), secret_env={"TOKEN": "env:TOKEN"})
    failed = await ToolCaller().failure(harness.serve(server, start_seconds=4.0), "s.t")
    assert failed.code == "timeout"
    assert "begun" in failed.message
    assert halves_of(SECRET, repr(failed)) == []


@pytest.mark.parametrize("name", ["silent", "deaf"])
async def test_a_server_that_never_answers_is_given_its_time_and_no_more(harness: McpHarness, name: str):
    failed = await ToolCaller(limits=Limits(seconds=0.7)).failure(harness.by_hand(name), "s.t")
    assert failed.code == "timeout"
    assert "'s'" in failed.message


async def test_a_description_does_not_wait_for_ever_either(harness: McpHarness):
    failed = await not_described(harness.by_hand("silent", start_seconds=3.0), "s.t")
    assert failed.code == "timeout"
    assert "I never answer" in failed.message
    assert_nothing_left(str(harness.workspace))


async def test_a_server_that_hung_in_a_call_is_started_again_for_the_next(
    harness: McpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DOUBT_SECONDS", 0.5)
    box = harness.by_hand("deaf_once", str(harness.workspace / "mark"))
    await described(box, "s.t")
    assert (await ToolCaller(limits=Limits(seconds=1.0)).failure(box, "s.t")).code == "timeout"
    assert await ToolCaller().value(box, "s.t") == "second"
    assert len(harness.sandbox.started) == 2


@pytest.mark.parametrize("name", ["chatters", "greets"])
async def test_a_server_that_only_talks_a_lot_is_put_up_with(harness: McpHarness, name: str):
    box = harness.by_hand(name)
    assert [await ToolCaller().value(box, "s.t") for _ in range(5)] == ["done" if name == "chatters" else "called"] * 5


async def test_a_missing_program_or_folder_is_reported(harness: McpHarness):
    failed = await ToolCaller().failure(harness.serve(McpServer("s", command=("no-such-program-at-all",))), "s.t")
    assert failed.code == "server_failed"
    assert "no-such-program-at-all" in failed.message
    harness.trust = Trusting()
    assert "no folder" in (await ToolCaller().failure(harness.by_hand("greets", cwd="missing"), "s.t")).message


async def test_a_server_that_died_is_started_again(harness: McpHarness):
    box = harness.by_hand("dies_once", str(harness.workspace / "mark"))
    assert (await ToolCaller().failure(box, "s.t")).code == "dropped"
    assert await ToolCaller().value(box, "s.t") == "second"
    assert len(harness.sandbox.started) == 2


async def test_a_call_that_may_be_repeated_survives_one_death(harness: McpHarness):
    box = harness.by_hand("dies_once", str(harness.workspace / "mark"), trusted=True)
    assert await ToolCaller().value(box, "s.t") == "second"
    assert len(harness.sandbox.started) == 2


async def test_a_server_that_always_dies_is_not_started_for_ever(harness: McpHarness):
    await ToolCaller().failure(harness.by_hand("dies_in_call", trusted=True), "s.t")
    assert len(harness.sandbox.started) <= 2


async def test_what_a_server_asks_of_us_is_declined(harness: McpHarness):
    assert await ToolCaller().value(harness.by_hand("asks_back"), "s.t") == "declined declined declined"


# --- ending ---


async def test_closing_ends_a_server_its_children_and_one_that_will_not_go(harness: McpHarness):
    seconds = f"600.{os.getpid()}"
    await ToolCaller().value(harness.by_hand("has_children", seconds), "s.t")
    harness.trust = Trusting()
    await ToolCaller().value(harness.by_hand("stubborn"), "s.t")
    assert running(seconds)
    await harness.close()
    assert_nothing_left(seconds)
    assert_nothing_left(str(harness.workspace))


@pytest.mark.parametrize("when", ["it is being started", "it runs"])
async def test_a_start_is_cancelled_when_no_caller_waits_for_it(harness: McpHarness, when: str):
    before = set(process_tree.below(os.getpid()))
    box = harness.by_hand("silent")
    waiting = [asyncio.create_task(ToolCaller().perform(box, "s.t")) for _ in range(3)]
    while not (harness.sandbox.running if when == "it runs" else harness.sandbox.started):
        await asyncio.sleep(0.01)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(60):
        # Before it enters its folder it cannot be recognised by it, and a killed process takes a moment to disappear.
        while set(process_tree.below(os.getpid())) - before or running(str(harness.workspace)):
            await asyncio.sleep(0.01)
    assert len(harness.sandbox.started) == 1


async def test_one_who_gives_up_early_does_not_end_the_start_for_others(harness: McpHarness):
    box = harness.good()
    hurried = asyncio.create_task(ToolCaller(limits=Limits(seconds=0.05)).failure(box, "good.add", {"a": 1, "b": 1}))
    patient = asyncio.create_task(ToolCaller().value(box, "good.add", {"a": 1, "b": 1}))
    assert (await hurried).code == "timeout"
    assert await patient == {"result": 2}
    assert len(harness.sandbox.started) == 1


# --- configuration ---


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a/b", "command": ("x",)},
        {"name": "a.", "command": ("x",)},
        {"name": "a"},
        {"name": "a", "command": ("x",), "url": "https://example.com/mcp"},
        {"name": "a", "url": "ftp://example.com"},
        {"name": "a", "url": "http://example.com/mcp", "secret_headers": {"Authorization": "env:TOKEN"}},
    ],
)
def test_a_server_that_makes_no_sense_is_refused(given: dict[str, Any]):
    with pytest.raises(BadInput):
        McpServer(**given)


def test_servers_are_kept_by_name(tmp_path: Path):
    servers = [McpServer("a", command=("x",)), McpServer("b", url="https://example.com/mcp")]
    assert list(mcp_servers(servers, sandbox=choose(), workspace=tmp_path)) == ["a", "b"]
    with pytest.raises(BadInput, match="two tool servers"):
        mcp_servers([servers[0], servers[0]], sandbox=choose(), workspace=tmp_path)
