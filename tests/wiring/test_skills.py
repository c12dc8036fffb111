"""Skills in a fully wired process: configured by the environment and the user's files, behind the gate, without leaks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.config import config_folder, load
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.context import ToolCall
from cuebook.kernel.conversation.subagents import TASK
from cuebook.kernel.effects import CallTool, Effect, Program, ReadSource, ServerSpec
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import RunRow, Settings
from cuebook.kernel.tool_names import BUILT_IN
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import Says, ScriptedModel
from cuebook.wiring.wiring import Wiring
from tests.gate.harness import bytes_below
from tests.performers.mcp.harness import GOOD
from tests.support.http_servers import Server, answer

TOKEN = "ghp_a_token_for_these_tests"
READ = CallTool("github_get_issue", {"repo": "acme/shop", "number": 7}, reads_only=True)
WRITE = CallTool("github_create_issue", {"repo": "acme/shop", "title": "Checkout"})


class Place:
    """A home, a working folder and an environment for wired processes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        (folder / "home").mkdir()
        self._set = monkeypatch.setenv
        self.set("HOME", str(folder / "home"))
        self.set("CUEBOOK_MODEL", "ollama/none")
        self.own = config_folder(os.environ)
        self.own.mkdir(parents=True)
        self.rows: list[RunRow] = []

    def set(self, name: str, value: str) -> None:
        self._set(name, value)

    def wiring(self) -> Wiring:
        return Wiring(load(environ=os.environ, folder=self.work))

    def allow(self, server: Server, *, ask: str = "nothing") -> None:
        """A policy that allows the server, but asks about everything below one of its paths."""
        origin = f"http://127.0.0.1:{server.port}"
        (self.own / "policy.toml").write_text(f'[egress]\nallow = ["{origin}/*"]\nask = ["{origin}/{ask}/*"]\n')

    def service(self, *effects: Effect) -> Service:
        def program(state: Any) -> Program[Any]:
            told = []
            for effect in effects:
                try:
                    outcome = yield effect
                except EffectFailed as error:
                    outcome = error.failed
                told.append(msgspec.to_builtins(outcome, enc_hook=str))
            return told

        store = SqliteStore(self.folder / "runs.db", synchronous="NORMAL")
        return self.wiring().service(store, lambda row, text, inputs, options: program)

    async def run(self, service: Service, settings: Settings | None = None) -> RunRow:
        row = await service.start_program("any text", "mine", {}, settings or self.wiring().settings())
        return await service.drive(row.id)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    kept = ("PATH", "LANG", "PYTHONPATH")
    for name in [name for name in os.environ if name not in kept and not name.startswith(("PYTEST", "TMP"))]:
        monkeypatch.delenv(name)
    return Place(tmp_path, monkeypatch)


def said(given: Any) -> Callable[..., Any]:
    return answer(given if isinstance(given, str) else json.dumps(given))


async def test_reading_passes_where_the_host_is_allowed_and_writing_is_asked_about(place: Place) -> None:
    async with Server(said({"number": 7, "title": "T"}), said({"number": 8})) as server:
        place.set("GITHUB_TOKEN", TOKEN)
        place.set("GITHUB_API_URL", server.url("/api/v3"))
        place.allow(server)
        service = place.service(READ, WRITE)
        try:
            row = await place.run(service)
            assert row.status == "awaiting_approval"
            assert [one.method for one in server.requests] == ["GET"]
            assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
            (wait,) = await service.waits(row.id)
            assert (
                wait.details["summary"] == f"github_create_issue: POST {server.url('/api/v3/repos/acme/shop/issues')}"
            )
            assert "[secret env:GITHUB_TOKEN]" in wait.details["preview"]["headers"]
            await service.decide(wait.id, "approve")
            row = await service.drive(row.id)
            assert row.status == "completed", row.error
            assert (await service.view(row.id)).result[0]["value"] == {"number": 7, "title": "T"}
            assert json.loads(server.requests[1].body) == {"title": "Checkout"}
        finally:
            await service.close()
        assert TOKEN.encode() not in bytes_below(place.folder)


async def test_a_token_that_an_answer_repeats_is_masked_before_a_model_sees_it(place: Place) -> None:
    async with Server(said({"number": 7, "title": f"my token is {TOKEN}"})) as server:
        place.set("GITHUB_TOKEN", TOKEN)
        place.set("GITHUB_API_URL", server.url("/"))
        place.allow(server)
        service = place.service(READ)
        try:
            row = await place.run(service)
            assert "[secret env:GITHUB_TOKEN]" in (await service.view(row.id)).result[0]["value"]["title"]
        finally:
            await service.close()
        assert TOKEN.encode() not in bytes_below(place.folder)


async def test_a_webhook_url_is_masked_in_every_form(place: Place) -> None:
    async with Server(said("ok")) as server:
        place.set("SLACK_WEBHOOK_URL", f"HTTP://127.0.0.1:{server.port}/x/../services/T0/B0/webhook-secret?sig=a%7Eb")
        place.allow(server, ask="services")  # so that the address is among what a person may always allow
        service = place.service(CallTool("slack_send_message", {"text": "Down"}))
        try:
            row = await place.run(service)
            (wait,) = await service.waits(row.id)
            assert f"127.0.0.1:{server.port}" in wait.prompt
            assert "webhook-secret" not in str(wait.details)
            await service.decide(wait.id, "approve")
            assert (await service.drive(row.id)).status == "completed"
            assert server.requests[0].target.startswith("/services/T0/B0/webhook-secret?")
        finally:
            await service.close()
        assert b"webhook-secret" not in bytes_below(place.folder)


async def test_a_skill_without_its_settings_is_available_without_its_tools(place: Place) -> None:
    service = place.service(ReadSource("skill:github"), READ)
    try:
        row = await place.run(service)
        found, called = (await service.view(row.id)).result
        assert json.loads(found["content"])["missing"] == ["GITHUB_TOKEN"]
        assert called["code"] == "no_such_tool"
    finally:
        await service.close()


async def test_only_the_users_file_can_configure_a_skill(place: Place) -> None:
    place.set("WORK_TOKEN", TOKEN)
    told = '[skills.github]\nGITHUB_TOKEN = "env:WORK_TOKEN"\nGITHUB_API_URL = "https://git.acme.example/api/v3"\n'
    (place.own / "cuebook.toml").write_text(told)
    factory = place.wiring().factory
    assert factory.skill_handles == ["env:WORK_TOKEN"]
    described = await factory.performers(place.wiring().performer())[CallTool].describe(READ, Settings())
    assert "https://git.acme.example/api/v3/repos" in described.summary

    (place.own / "cuebook.toml").write_text('[skills.github]\nGITHUB_TOKEN = "the token itself"\n')
    with pytest.raises(BadInput, match=r"cuebook.toml:1: GITHUB_TOKEN must be the handle of a secret"):
        place.wiring()
    (place.own / "cuebook.toml").write_text('[skills.github]\nGITHUB_API_ADDRESS = "x"\n')
    with pytest.raises(BadInput, match=r"cuebook.toml:1: the skill 'github' has no setting 'GITHUB_API_ADDRESS'"):
        place.wiring()
    for wrong in ("[skills]\ngithub = 1\n", "[skills.GitHub]\nA = 'b'\n", "[skills.github]\nGITHUB_TOKEN = 1\n"):
        (place.own / "cuebook.toml").write_text(wrong)
        with pytest.raises(BadInput, match=r"cuebook.toml:\d: "):
            place.wiring()
    (place.own / "cuebook.toml").unlink()
    (place.work / "cuebook.toml").write_text('[skills.github]\nGITHUB_API_URL = "https://evil.example"\n')
    with pytest.raises(BadInput, match="A project file may not configure a skill"):
        place.wiring()


async def test_a_users_tool_replaces_a_skills_tool_of_the_same_name(place: Place) -> None:
    place.set("GITHUB_TOKEN", TOKEN)
    (place.own / "cuebook.toml").write_text('[tools]\ngithub_get_issue = "os.path:basename"\n')
    wiring = place.wiring()
    wiring.factory.performers(wiring.performer())
    specs = await wiring.factory.tools.specs("github_get_issue")
    assert isinstance(specs, list)
    assert [set(spec.parameters["properties"]) for spec in specs] == [{"p"}]


async def test_skill_files_are_found_next_to_the_playbook_and_in_the_workspace(place: Place) -> None:
    book = place.folder / "book"
    for root, words in ((book, "Of the book."), (place.work, "Of the workspace.")):
        for name in ("style", root.name):
            (root / ".claude/skills" / name).mkdir(parents=True)
            (root / ".claude/skills" / name / "SKILL.md").write_text(f"---\nname: {name}\n---\n{words}\n")
    service = place.service(*(ReadSource(f"skill:{name}") for name in ("style", "work", "book")))
    try:
        row = await place.run(service, place.wiring().settings(folder=book))
        told = (await service.view(row.id)).result
        assert [json.loads(one["content"])["instruction"] for one in told] == [
            *("Of the book.", "Of the workspace.", "Of the book.")
        ]
    finally:
        await service.close()


async def test_a_playbooks_server_gets_the_variables_it_names_as_secrets(place: Place) -> None:
    place.set("DB_TOKEN", "the-token-of-the-database")
    spec = ServerSpec("db", (sys.executable, GOOD), env_names=("DB_TOKEN", "NOT_SET"))
    service = place.service(ReadSource("tools:db.*", spec), CallTool("db.seen", {}, spec))
    asked = []
    try:
        row = await place.run(service)
        while row.status == "awaiting_approval":
            (wait,) = await service.waits(row.id)
            asked.append(wait)
            await service.decide(wait.id, "approve")
            row = await service.drive(row.id)
        listed, seen = (await service.view(row.id)).result
    finally:
        await service.close()
    assert [wait.prompt for wait in asked] == [
        "Start the tool server 'db'? The playbook brings it along.",
        "Call db.seen",
    ]
    assert asked[0].details["preview"]["environment"] == "DB_TOKEN=[secret env:DB_TOKEN]"
    assert "db.add" in [tool["name"] for tool in json.loads(listed["content"])]
    assert seen["value"]["DB_TOKEN"] == "[secret env:DB_TOKEN]"
    assert "NOT_SET" not in seen["value"]
    assert b"the-token-of-the-database" not in bytes_below(place.folder)


# --- in a workflow ---

WORKFLOW: dict[str, Any] = {
    "id": "sums",
    "name": "Sums",
    "entry": "count",
    "skills": {"calc": {"mcp": {"command": sys.executable, "args": [GOOD]}}},
    "nodes": {
        "count": {"name": "Count", "instruction": "Add one and two.", "skills": ["calc"]},
        "file": {"name": "File", "instruction": "File it.", "skills": ["github", "linear"]},
    },
    "edges": [{"from": "count", "to": "file"}],
}


class WorkflowRun:
    """Runs a workflow with a scripted model, approves everything, and keeps the questions."""

    def __init__(self, place: Place, *says: Says | str) -> None:
        self.place = place
        self.model = ScriptedModel(list(says))
        self.asked: list[str] = []

    async def run(self, workflow: dict[str, Any]) -> tuple[Service, str]:
        wiring = Wiring(self.place.wiring().config, models={"test": self.model})
        service = wiring.service(SqliteStore(self.place.folder / "runs.db", synchronous="NORMAL"))
        row = await service.start(Playbook.from_text(json.dumps(workflow), "sums.json"), {}, wiring.settings())
        row = await service.drive(row.id)
        while row.status == "awaiting_approval":
            (wait,) = await service.waits(row.id)
            self.asked.append(wait.prompt)
            await service.decide(wait.id, "approve")
            row = await service.drive(row.id)
        assert row.status == "completed", row.error
        return service, row.id

    def offered(self, turn: int) -> set[str]:
        """The tools that a model was shown, without the built-in ones."""
        return {tool.name for tool in self.model.requests[turn].tools} - {*BUILT_IN, TASK}


def calls(name: str, **arguments: Any) -> Says:
    return Says("", calls=(ToolCall("1", name, arguments),))


async def test_a_skill_that_is_only_a_server_is_wired_for_its_node_and_no_other(place: Place) -> None:
    place.set("CUEBOOK_MODEL", "test/scripted")
    made = WorkflowRun(place, calls("calc_add", a=1, b=2), "It is three.", "Filed.")
    service, run = await made.run(WORKFLOW)
    try:
        assert made.asked == ["Start the tool server 'calc'? The playbook brings it along.", "Call calc.add"]
        assert {"calc_add", "calc_say"} <= made.offered(0)
        assert '{"result":3}' in str(made.model.requests[1])
        assert made.offered(2) == set()
        warned = [entry.event async for entry in service.entries(run) if isinstance(entry.event, Warned)]
        assert [one.code for one in warned] == ["skill_not_configured", "skill_not_configured", "no_skills"]
        assert "GITHUB_TOKEN is not set" in warned[0].message
        assert "LINEAR_API_KEY is not set" in warned[1].message
    finally:
        await service.close()


async def test_a_node_has_the_tools_of_its_skills_and_errors_go_back_to_the_model(place: Place) -> None:
    async with Server(said({"number": 7, "title": "T"})) as server:
        place.set("CUEBOOK_MODEL", "test/scripted")
        place.set("GITHUB_TOKEN", TOKEN)
        place.set("GITHUB_API_URL", server.url("/"))
        place.allow(server)
        workflow = {**WORKFLOW, "entry": "file", "edges": []}
        workflow["nodes"] = {"file": {**WORKFLOW["nodes"]["file"], "tools": {"deny": ["github_create_pr"]}}}
        made = WorkflowRun(
            place,
            calls("github_get_issue", repo="acme/shop"),
            calls("github_get_issue", repo="acme/shop", number=7),
            "Seven.",
        )
        service, _ = await made.run(workflow)
        try:
            assert "github_create_issue" in made.offered(0)
            assert "github_create_pr" not in made.offered(0)
            assert "'number' is a required property" in str(made.model.requests[1])
            assert '"number":7' in str(made.model.requests[2])
            assert made.asked == []
            assert len(server.requests) == 1
        finally:
            await service.close()


async def test_the_parts_of_a_secret_url_are_known_before_its_first_use(place: Place) -> None:
    place.set("NOTIFICATION_WEBHOOK_URL", "https://hooks.example.com/services/T0AAAAAA/B0BBBBBB")
    factory = place.wiring().factory
    factory.learn(())
    for text in ("GET /services/T0AAAAAA/B0BBBBBB", "https://hooks.example.com/services/T0AAAAAA/B0BBBBBB"):
        assert "T0AAAAAA" not in factory.redactor.text(text)
