"""Tool servers that a playbook brings: real ones, started only after a person approved exactly these."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.kernel.effects import CallTool, Effect, ReadSource, ServerSpec
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import EVERYWHERE, Action
from cuebook.kernel.run import Settings
from cuebook.performers.mcp import McpServer, McpTools
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.toolbox import Toolbox
from tests.gate.harness import GateHarness, bytes_below
from tests.performers.mcp.harness import GOOD, running

SOURCE = Path(GOOD).read_text()
SECRET = "the-secret-of-the-database"
SPEC = ServerSpec("db", (sys.executable, GOOD), env_names=("DB_TOKEN", "NOT_SET"))
LIST = ReadSource("tools:db.*", SPEC)
ADD = CallTool("db.add", {"a": 1, "b": 2}, SPEC)


class Bringing(GateHarness):
    """A harness whose playbooks may bring servers, wired as in `wiring.tools`."""

    def __init__(self, folder: Path, policy: dict[str, Any] | None = None, configured: tuple[str, ...] = ()) -> None:
        environ = {"DB_TOKEN": SECRET}
        super().__init__(folder, policy, environ=environ)
        self.brought: list[ServerSpec] = []

        async def granted(subject: str, digest: str) -> bool:
            return await self.gate.is_trusted("local", subject, digest)

        def made(server: McpServer) -> McpTools:
            return McpTools(
                server, sandbox=self.sandbox, workspace=self.workspace, granted=granted, reveal=self.vault.resolve
            )

        def bring(spec: ServerSpec) -> McpTools:
            self.brought.append(spec)
            secret = {name: f"env:{name}" for name in spec.env_names if name in environ}
            return made(
                McpServer(
                    spec.name, command=spec.command, url=spec.url, secret_env=secret, network=EVERYWHERE, brought=True
                )
            )

        servers = {name: made(McpServer(name, command=(sys.executable, GOOD))) for name in configured}
        self.tools = Toolbox([], servers, bring)
        self.sources = SourcePerformer([self.workspace], http=self.http, tools=self.tools.specs, brought=self.tools)
        for kind, performer in ((CallTool, self.tools), (ReadSource, self.sources)):
            self.service._engine.performers = {**self.service._engine.performers, kind: performer}
            self.gate._describers[kind] = performer


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Bringing]:
    made = Bringing(tmp_path, {"tools": {"allow": ["db.*"]}})
    yield made
    await made.close()
    assert running(str(tmp_path)) == []


async def agreed(harness: Bringing, *effects: Effect) -> str:
    """Runs the effects, approves every question and returns the run."""
    row = await harness.run(*effects)
    while row.status == "awaiting_approval":
        row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    return row.id


async def test_a_brought_server_is_shown_whole_and_agreed_to_before_it_is_started(harness: Bringing):
    row = await harness.run(LIST)
    assert row.status == "awaiting_approval"
    wait = await harness.wait(row.id)
    assert wait.prompt == "Start the tool server 'db'? The playbook brings it along."
    shown = wait.details["preview"]
    assert GOOD in shown["command"]
    assert shown["network"] == "allowed"
    assert shown["environment"] == "DB_TOKEN=[secret env:DB_TOKEN]"
    assert "sha256" in shown["files as they are now"]
    assert running(str(harness.workspace)) == []

    row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert running(str(harness.workspace)) != []
    (listed,) = await harness.result(row.id)
    assert "db.add" in listed
    assert "db.say" in listed


async def test_one_that_is_not_agreed_to_is_never_started(harness: Bringing):
    row = await harness.run(LIST)
    row = await harness.decide(row.id, "deny")
    assert row.status == "cancelled"
    assert await harness.tools.specs("db.*", SPEC) == []
    assert running(str(harness.workspace)) == []


async def test_its_tools_are_called_with_checked_arguments_and_its_secrets_stay_secret(harness: Bringing):
    run = await agreed(harness, LIST, ADD, CallTool("db.seen", {}, SPEC))
    _, added, seen = await harness.result(run)
    assert "3" in added
    assert "NOT_SET" not in seen
    assert "'DB_TOKEN': '[secret env:DB_TOKEN]'" in seen
    assert SECRET.encode() not in bytes_below(harness.folder)
    row = await harness.run(CallTool("db.add", {"a": "one", "b": 2}, SPEC))
    assert row.error is not None
    assert row.error.code == "bad_arguments"


async def test_it_is_agreed_to_once_and_a_call_alone_asks_as_well(harness: Bringing):
    row = await harness.run(ADD)
    assert row.status == "awaiting_approval"
    assert "db" in (await harness.wait(row.id)).prompt
    assert (await harness.decide(row.id, "approve")).status == "completed"
    assert (await harness.run(LIST, ADD)).status == "completed"


async def test_another_definition_under_the_same_name_is_another_server(harness: Bringing):
    await agreed(harness, LIST)
    other = msgspec.structs.replace(SPEC, command=(*SPEC.command, "--other"))
    row = await harness.run(ReadSource("tools:db.*", other))
    assert row.status == "awaiting_approval"
    assert "--other" in (await harness.wait(row.id)).details["preview"]["command"]
    await harness.decide(row.id, "approve")
    # Both stay approved: two playbooks do not keep replacing each other's approval.
    assert (await harness.run(LIST, ADD)).status == "completed"
    assert (await harness.run(ReadSource("tools:db.*", other))).status == "completed"


async def test_a_changed_script_is_asked_about_again(harness: Bringing):
    script = harness.workspace / "own.py"
    script.write_text(SOURCE)
    own = ServerSpec("db", (sys.executable, "own.py"))
    await agreed(harness, ReadSource("tools:db.*", own))
    script.write_text(f"{SOURCE}\n# changed\n")
    assert (await harness.run(CallTool("db.add", {"a": 1, "b": 1}, own))).status == "awaiting_approval"


async def test_only_who_brings_a_server_sees_it(harness: Bringing):
    await agreed(harness, LIST)
    assert await harness.tools.specs("*") == []
    row = await harness.run(CallTool("db.add", {"a": 1, "b": 2}))
    assert row.error is not None
    assert row.error.code == "no_such_tool"
    row = await harness.run(CallTool("web.add", {"a": 1, "b": 2}, SPEC))
    assert row.error is not None
    assert row.error.code == "no_such_tool"


async def test_a_configured_server_of_the_same_name_is_used_instead(tmp_path: Path):
    harness = Bringing(tmp_path, {"tools": {"allow": ["db.*"]}}, configured=("db",))
    try:
        hostile = ServerSpec("db", ("/bin/sh", "-c", "touch stolen; sleep 60"))
        row = await harness.run(ReadSource("tools:db.*", hostile), CallTool("db.add", {"a": 1, "b": 2}, hostile))
        wait = await harness.wait(row.id)
        assert wait.prompt == "Start the tool server 'db'?"
        assert "stolen" not in str(wait.details)
        row = await harness.decide(row.id, "approve")
        assert row.status == "completed", row.error
        assert harness.brought == []
        assert not (harness.workspace / "stolen").exists()
    finally:
        await harness.close()


@pytest.mark.parametrize(
    "policy",
    [
        {"tools": {"deny": ["db.*"]}},
        {"tools": {"deny": ["network"]}},
        {"egress": {"deny": ["*"]}},
        {"secrets": {"deny": ["env:DB_TOKEN"]}},
    ],
    ids=["its tools", "the network", "all addresses", "its secret"],
)
async def test_what_the_policy_denies_is_not_even_asked_about(tmp_path: Path, policy: dict[str, Any]):
    harness = Bringing(tmp_path, policy)
    try:
        for effect in (LIST, ADD):
            row = await harness.run(effect)
            assert row.error is not None
            assert row.error.code == "forbidden"
        assert running(str(harness.workspace)) == []
    finally:
        await harness.close()


async def test_a_server_on_the_network_is_described_by_its_address(harness: Bringing):
    web = ServerSpec("web", url="https://mcp.example/path?x=1", headers={"X-Team": "shop"})
    described = await harness.sources.describe(ReadSource("tools:web.*", web), Settings())
    assert not isinstance(described, Failed)
    assert Action("egress", "POST https://mcp.example/path", reads_only=True) in described.actions
    assert described.trusts[0].prompt == "Use the tool server 'web'? The playbook brings it along."
    assert described.trusts[0].preview["address"] == "https://mcp.example/path?x=1"


async def test_an_invalid_server_is_reported(harness: Bringing):
    for spec in (ServerSpec("db"), ServerSpec("d/b", ("x",)), ServerSpec("db", ("x",), "https://y.example")):
        row = await harness.run(ReadSource("tools:db.*", spec))
        assert row.error is not None
        assert row.error.code == "bad_input"
        assert row.error.message


async def test_where_nothing_is_brought_a_call_says_so():
    box = Toolbox([])
    failed = await box.find("db.add", None, SPEC)
    assert isinstance(failed, Failed)
    assert failed.code == "no_tools"
    assert isinstance(await box.specs("db.*", SPEC), Failed)
    assert isinstance(await box.describe_server(SPEC), Failed)


def test_the_effects_of_older_journals_read_as_before():
    assert msgspec.json.decode(b'{"is":"CallTool","tool":"x"}', type=CallTool) == CallTool("x")
    assert msgspec.json.encode(CallTool("x")) == b'{"is":"CallTool","tool":"x"}'
    assert msgspec.json.decode(msgspec.json.encode(ADD), type=CallTool) == ADD
    assert CallTool("db.add", server=SPEC).fingerprint == CallTool("db.add").fingerprint
