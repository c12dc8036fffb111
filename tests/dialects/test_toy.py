"""A dialect from another package works everywhere: each command, page, route and MCP tool accepts its playbooks.

The lists of commands, routes and tools are those of Cuebook, so that a new one cannot be forgotten here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuebook import dialects
from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.cli import COMMANDS
from cuebook.surfaces.web.app import ENDPOINTS
from cuebook.testing.comparison.plan import plan, read_cases
from tests.dialects import toy
from tests.support.command_line import CommandLine
from tests.surfaces.mcp.clients import McpClient, new_process, over_stdio
from tests.surfaces.web.served_app import ServedApp

TEA = "toy: Tea time\ninput: kind\nmodel: Name a {kind} tea.\nask: Do you like it?\n"
CASES = """\
- name: it asks once
  replies: [oolong]
  answers: {"2": "yes"}
  expect: {status: completed}
"""
DEFECT = re.compile(r"bug in Cuebook|defect of Cuebook|Traceback|Internal Server Error")

COMMAND_LOOP = """
import contextlib, io, json, sys
from cuebook.surfaces.cli import call
for line in sys.stdin:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = call(json.loads(line))
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, *(one.buffer.getvalue().decode() for one in (out, err))]), flush=True)
"""


class Terminal:
    """Calls commands, one after the other, in a process that finds the dialect by its entry point."""

    def __init__(self, cli: CommandLine) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND_LOOP],
            cwd=cli.work,
            env=cli.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.called: set[str] = set()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def call(self, *args: str, code: int = 0) -> str:
        self.called.add(args[0])
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(args) + "\n")
        self.process.stdin.flush()
        got, out, err = json.loads(self.process.stdout.readline())
        assert not DEFECT.search(out + err), (args, out, err)
        assert got == code, (args, out, err)
        return str(out)

    def run(self, *args: str, code: int = 0) -> str:
        """Starts a run and returns its id."""
        self.call("run", "tea.toy", *args, code=code)
        return str(json.loads(self.call("runs", "--json"))[0]["run"])


@pytest.fixture
def toy_cli(cli: CommandLine) -> CommandLine:
    """A command line with a package installed that adds the dialect."""
    site = cli.work.parent / "site"
    info = site / "toy-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(toy.__file__, site / "toy_dialect.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\ntoy = toy_dialect:TOY\n")
    cli.environ["PYTHONPATH"] += f":{site}"
    cli.tea.unlink()
    cli.write("tea.toy", TEA)
    cli.write("tea.test.yaml", CASES)
    cli.write("broken.txt", "toy: Broken\nsing: A song.\n")
    return cli


@pytest.fixture
def registered() -> Iterator[None]:
    dialects.register(toy.TOY)
    yield
    registry.unregister(toy.TOY.name)


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    made = ServedApp(tmp_path, monkeypatch)
    yield made
    await made.stop()


def test_every_command(toy_cli: CommandLine) -> None:
    terminal = Terminal(toy_cli)
    call = terminal.call
    try:
        assert call("new", "hello", "--dialect", "toy") == "hello.toy\n"
        assert call("validate", "tea.toy", "hello.toy") == "2 playbooks, no problems\n"
        assert "2 playbooks" in call("validate", ".")
        assert "Unknown verb 'sing'" in call("validate", "broken.txt", code=2)
        assert "broken.txt" in call("validate", "broken.txt", "--sarif", code=2)
        for command in ("explain", "summary", "parse"):
            assert "Tea time" in call(command, "tea.toy"), command
            assert "Tea time" in json.dumps(json.loads(call(command, "tea.toy", "--json"))), command
        assert "flowchart" in call("graph", "tea.toy")
        call("convert", "tea.toy", "--to", "json", code=2)
        assert "1 passed" in call("test", "tea.toy")
        call("plan", "tea.toy")
        for option in ("--plan", "--summary"):
            assert "Tea time" in call("explain", "tea.toy", option), option
        assert "Tea time" in call("validate", "--parse", "tea.toy")
        call("run", "tea.toy", "--dry-run")
        done = terminal.run("--kind", "green", "--answer", "2=yes")
        waiting = terminal.run(code=3)
        call("answer", waiting, "yes")
        paused = terminal.run("--break", "1", "--answer", "2=yes", code=3)
        call("resume", paused)
        asked = terminal.run(code=3)
        call("decide", asked, "approve", code=2)
        call("cancel", asked, code=5)
        call("retry", asked, code=3)
        again = terminal.run("--kind", "black", "--answer", "2=no")
        call("restart", done, "2")
        call("fork", done, "1", "--set", "kind=white")
        assert "Tea time" in call("show", done)
        call("graph", "--run", done)
        assert "no files" in call("files", done)
        call("diff", done, again)
        assert "it asks once" in call("compare", "tea.toy", "--inputs", "tea.test.yaml", "--yes")
        assert "passed" in call("compare", "--runs", f"{done},{again}")
        for command in ("show", "events", "audit", "replay", "verify"):
            call(command, done)
        call("audit", "--verify", done)
        assert "Do you like it?" in call("inbox")
        assert "0 not copied" in call("store", "copy", str(toy_cli.store), "copy.db")
        assert "Tea time" in call("show", done, "--store", "copy.db")
        call("export", done, "done.runs")
        call("import", "done.runs", "--store", "elsewhere.db")
        call("backup", "all.backup")
        call("restore", "all.backup", "--store", "restored.db")
        assert "Tea time" in call("show", done, "--store", "restored.db")
        call("prune", "--older-than", "30d", "--dry-run")
        call("erase", "--owner", "someone", "--dry-run")
        assert "tea.toy" in call("usage", "--by", "playbook")
        call("budget", "list")
        call("schedule", "add", "tea.toy", "--cron", "@daily")
        assert "tea.toy" in call("schedule", "show", "tea")
        assert "again" in call("trigger", "add", "tea.toy", "--name", "again", "--after", "other")
        assert "administrative acts" in call("audit", "--export", "runs.jsonl")
        call("evidence", "keygen", "evidence-key")
        call("notify", "status")
        call("delete", again)
        call("doctor")
        call("models")
        call("keys", "--help")
        for served in ("worker", "node"):
            call(served, "--help")
        for listed in ("nodes", "secrets", "state", "users"):
            call(listed, "list")
        call("policy", "show")
        assert "cuebook" in call("completion", "bash")
        call("runtime", json.dumps({"action": "run", "pipeline": "toy: Hello\nmodel: Say hello.\n"}))
        called = {*terminal.called, "serve", "mcp"}  # these are started by the tests of pages and tools
        assert called == set(COMMANDS)
    finally:
        terminal.end()


async def test_every_page_and_route(registered: None, web: ServedApp) -> None:
    book = web.book("tea.toy", TEA)
    await web.model(ScriptedModel(["oolong", "sencha", "oolong", "oolong"])).serve()
    done, other = [await web.begin(playbook=book, inputs={"kind": kind}) for kind in ("green", "black")]
    for run in (done, other):
        wait = (await web.waiting(run))["wait"]
        for path in (f"/waits/{wait}", "/inbox", f"/runs/{run}", f"/api/waits/{wait}", "/api/inbox"):
            assert (await web.client.get(path)).status_code == 200, path
        await web.post(f"/api/waits/{wait}/answer", 200, value="yes")
        await web.until(run, "completed")
    await web.post("/api/schedules", 201, playbook=book, cron="@daily", name="daily")
    playbook = Playbook.from_text(TEA, "tea.toy")
    made = plan(web.site.wiring, [playbook], [], read_cases(None, playbook), None, 2)
    compared = (await web.service.comparisons.add(made.comparison(web.service, Principal()), Principal())).id
    names = {
        "kind": "schedule",
        "other": other,
        "record": "1",
        "name": "app.css",
        "provider": "test",
        "digest": "0" * 64,
    }
    seen = set()
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.kind != "stream" and "waits" not in endpoint.path:
            id = book if "playbooks" in endpoint.path else compared if "compare" in endpoint.path else done
            trigger = {"name": "daily"} if "{kind}" in endpoint.path else {}
            path = endpoint.path.format(id=id, **names | trigger)
            answer = await web.client.get(path, follow_redirects=True)
            assert not DEFECT.search(answer.text), path
            may_be_missing = any(
                one in endpoint.path
                for one in ("{record}", "{digest}", "static", "evidence/key", "oidc", ".well-known", "metrics")
            )
            assert answer.status_code in ((200, 404) if may_be_missing else (200,)), path
            seen.add(endpoint.path)
    assert {"/", "/playbooks/{id}", "/playbooks/{id}/run", "/runs/{id}", "/runs/{id}/diff/{other}"} <= seen
    page = await web.client.get(f"/runs/{done}")
    assert "Tea time" in page.text
    assert "oolong" in page.text
    async with web.stream(done, kind="events") as events:
        assert (await anext(events)).data
    restarted = (await web.post(f"/api/runs/{done}/restart", 201, step="2"))["run"]
    await web.waiting(restarted)
    await web.post(f"/api/runs/{restarted}/cancel", 202)


TOOLS: dict[str, dict[str, Any]] = {
    "list_playbooks": {},
    "playbook_read": {"playbook_id": "tea"},
    "playbook_parse": {"content": TEA},
    "playbook_validate": {"content": TEA},
    "playbook_summarize": {"content": TEA},
    "playbook_explain": {"playbook_id": "tea"},
    "playbook_write": {"description": "Tea", "dialect": "toy"},
    "playbook_run": {"content": TEA},
    "execute_playbook": {"playbook_id": "tea", "elicit": {"2": "yes"}},
    "get_playbook_execution": {"execution_id": "done"},
    "next_step": {"execution_id": "done"},
    "list_playbook_executions": {},
    "restart_playbook_execution": {"execution_id": "done", "step": "2"},
    "edit_playbook_execution": {"execution_id": "asked", "content": TEA + "\n"},
    "respond_to_elicitation": {"execution_id": "asked", "response": "yes"},
    "resume_playbook_execution": {"execution_id": "paused"},
    "cancel_playbook_execution": {"execution_id": "also asked"},
}
REFUSED: dict[str, dict[str, Any]] = {
    "playbook_convert": {"content": TEA, "to": "json"},
    "complete_step": {"execution_id": "done", "claim_id": "x", "result": "y"},
    "call_step_tool": {"execution_id": "done", "claim_id": "x", "tool": "y"},
}
"""A toy cannot be converted, and it has no steps for an assistant. The tools say so."""


async def test_every_mcp_tool(toy_cli: CommandLine) -> None:
    async with over_stdio(toy_cli, command=new_process) as client:
        assert (await client.tools()).keys() - {"decide_approval"} == TOOLS.keys() | REFUSED.keys()
        runs = {
            "done": await _started(client, elicit={"2": "yes"}),
            "asked": await _started(client),
            "paused": await _started(client, breakpoints=["1"], elicit={"2": "yes"}),
            "also asked": await _started(client),
        }
        for name, given in TOOLS.items():
            run = {"execution_id": runs[given["execution_id"]]} if "execution_id" in given else {}
            assert await client.call(name, **{**given, **run}), name
        for name, given in REFUSED.items():
            run = {"execution_id": runs[given["execution_id"]]} if "execution_id" in given else {}
            assert not DEFECT.search(await client.refused(name, **{**given, **run})), name
        assert "Toys: one step a line" in await client.read("playbook://spec/toy")
        assert "tea.toy" in await client.read(f"playbook://runs/{runs['done']}")


async def _started(client: McpClient, **given: Any) -> str:
    return str((await client.call("execute_playbook", playbook_id="tea", **given))["execution_id"])


def test_a_name_is_taken_once(registered: None) -> None:
    assert registry.named("toy") is toy.TOY
    with pytest.raises(BadInput, match="already a dialect named 'toy'"):
        dialects.register(toy.ToyDialect())
