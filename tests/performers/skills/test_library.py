"""The available skills: their settings, their missing settings, and skills in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.kernel.effects import ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action
from cuebook.kernel.run import Settings
from cuebook.performers.skills.files import FOLDERS, BadSkill, parse
from cuebook.performers.skills.library import BUILT_IN, Skills
from cuebook.performers.skills.settings import Configured, secret_handles, settings_of
from cuebook.performers.sources import SourcePerformer
from tests.performers.tools.calls import ToolCaller
from tests.support.http_servers import LOOPBACK, Asking

FOR = {
    "github": ["GITHUB_TOKEN"],
    "linear": ["LINEAR_API_KEY"],
    "sentry": ["SENTRY_AUTH_TOKEN", "SENTRY_ORG"],
    "datadog": ["DD_API_KEY", "DD_APP_KEY"],
    "betterstack": ["BETTERSTACK_API_TOKEN"],
    "slack": ["SLACK_BOT_TOKEN or SLACK_WEBHOOK_URL"],
    "notification": ["NOTIFICATION_WEBHOOK_URL or DISCORD_WEBHOOK_URL or TEAMS_WEBHOOK_URL"],
}


async def read(skills: Skills, skill: str, settings: Settings | None = None) -> dict[str, Any]:
    source = await read_any(skills, skill, settings)
    assert isinstance(source, Source), source
    return dict(json.loads(str(source.content)))


async def read_any(skills: Skills, skill: str, settings: Settings | None = None) -> Source | Failed:
    """As the engine reads it: described first, then performed."""
    performer = SourcePerformer([], http=LOOPBACK, skills=skills)
    effect = ReadSource(f"skill:{skill}")
    described = await performer.describe(effect, settings or Settings())
    if isinstance(described, Failed):
        return described
    return await performer.perform(
        effect, msgspec.structs.replace(ToolCaller().call(), settings=settings or Settings())
    )


def names(skill: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in skill["tools"]]


# --- those that come along ---


@pytest.mark.parametrize("skill", BUILT_IN)
async def test_a_skill_that_is_not_configured_is_known_and_says_what_is_missing(skill: str):
    skills = Skills({})
    found = await read(skills, skill)
    assert (found["configured"], found["missing"], found["tools"]) == (False, FOR[skill], [])
    assert found["name"]
    assert found["description"]
    assert skills.tools(LOOPBACK, str) == []


@pytest.mark.parametrize("skill", BUILT_IN)
async def test_a_skill_whose_settings_are_in_the_environment_is_configured(skill: str):
    environ = {name: "https://x.example/value" for some in BUILT_IN[skill].needs for name in some}
    found = await read(Skills(environ), skill)
    assert (found["configured"], found["missing"]) == (True, [])
    assert names(found)
    assert set(names(found)) == {tool.spec.name for tool in Skills(environ).tools(LOOPBACK, str)}
    shown = found["tools"][0]
    assert set(shown) == {"name", "description", "parameters", "reads_only", "idempotent"}
    assert shown["parameters"]["type"] == "object"


async def test_an_empty_variable_is_not_set():
    assert (await read(Skills({"GITHUB_TOKEN": "  "}), "github"))["missing"] == ["GITHUB_TOKEN"]


async def test_a_tool_is_there_only_if_what_it_needs_itself_is():
    some = await read(Skills({"BETTERSTACK_API_TOKEN": "token-of-mine"}), "betterstack")
    assert names(some) == ["betterstack_list_sources", "betterstack_get_source"]
    assert names(await read(Skills({"SLACK_WEBHOOK_URL": "https://hooks.example/x"}), "slack")) == [
        "slack_send_message"
    ]
    teams = await read(Skills({"TEAMS_WEBHOOK_URL": "https://teams.example/x"}), "notification")
    assert names(teams) == ["notify_teams"]


async def test_what_is_configured_comes_before_the_environment():
    configured = {
        "github": Configured({"GITHUB_TOKEN": "keyring:work", "GITHUB_API_URL": "https://git.acme.example/api/v3"})
    }
    environ = {"GITHUB_TOKEN": "token-around", "GITHUB_API_URL": "https://elsewhere.example"}
    skills = Skills(environ, configured)
    assert secret_handles(settings_of(environ, configured)) == ["keyring:work"]
    (tool,) = (tool for tool in skills.tools(LOOPBACK, str) if tool.spec.name == "github_get_issue")
    described = await tool.describe({"repo": "a/b", "number": 1}, Settings())
    assert not isinstance(described, Failed)
    assert described.actions[0].target == "GET https://git.acme.example/api/v3/repos/a/b/issues/1"
    assert Action("secret", "keyring:work", reads_only=True) in described.actions


async def test_a_setting_may_follow_from_another():
    keys = {"DD_API_KEY": "key-number-one", "DD_APP_KEY": "key-number-two"}
    for environ, host in (
        ({}, "api.datadoghq.com"),
        ({"DD_SITE": "datadoghq.eu"}, "api.datadoghq.eu"),
        ({"DD_SITE": "datadoghq.eu", "DD_API_URL": "https://dog.acme.example"}, "dog.acme.example"),
    ):
        (tool,) = (
            one for one in Skills(keys | environ).tools(LOOPBACK, str) if one.spec.name == "datadog_list_monitors"
        )
        described = await tool.describe({}, Settings())
        assert not isinstance(described, Failed)
        assert described.actions[0].target == f"GET https://{host}/api/v1/monitor"


def test_a_configuration_that_makes_no_sense_is_refused_with_its_place():
    with pytest.raises(BadInput, match=r"^c.toml:3: the skill 'github' has no setting 'TOKEN'\.") as unknown:
        Skills({}, {"github": Configured({"TOKEN": "env:X"}, "c.toml:3")})
    assert "GITHUB_TOKEN, GITHUB_API_URL" in unknown.value.fix
    with pytest.raises(BadInput, match=r"^c.toml:3: GITHUB_TOKEN must be the handle of a secret") as plain:
        Skills({}, {"github": Configured({"GITHUB_TOKEN": "ghp_the_token_itself"}, "c.toml:3")})
    assert "ghp_the_token_itself" not in str(plain.value)


def test_the_reference_names_every_skill_with_its_settings_and_tools():
    page = Path(__file__).parents[3].joinpath("docs/reference/skills.md").read_text()
    for skill in BUILT_IN.values():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{skill.id}` |")]
        settings, tools = (row.split("|") for row in rows)
        assert all(f"`{one.name}`" in "|".join(settings) for one in skill.settings), skill.id
        for number, reads_only in ((2, True), (3, False)):
            named = set(tools[number].replace("`", "").split())
            assert named == {tool.name for tool in skill.tools if tool.reads_only is reads_only}, skill.id


# --- those in files ---


def write(root: Path, path: str, text: str) -> None:
    place = root / path / "SKILL.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def skill(name: str, body: str = "Do it well.", **more: str) -> str:
    fields = "".join(f"{field}: {value}\n" for field, value in more.items())
    return f"---\nname: {name}\n{fields}---\n\n{body}\n"


def below(*roots: Path, environ: dict[str, str] | None = None) -> Skills:
    return Skills(environ or {}, roots=lambda settings: roots)


async def test_a_skill_in_a_file_brings_its_instruction(tmp_path: Path):
    write(
        tmp_path,
        ".claude/skills/style",
        skill("style", "Write\n\n---\n\nshort.", description="House style", category="git"),
    )
    assert await read(below(tmp_path), "style") == {
        "id": "style",
        "name": "style",
        "description": "House style",
        "category": "git",
        "instruction": "Write\n\n---\n\nshort.",
        "mcp": None,
        "tools": [],
        "configured": True,
        "missing": [],
    }


async def test_the_four_folders_are_looked_in_in_their_order_the_playbooks_own_before_the_workspace(tmp_path: Path):
    book, workspace = tmp_path / "book", tmp_path / "workspace"
    skills = below(book, workspace)
    for root in (workspace, book):
        for folder in reversed(FOLDERS):
            write(root, f"{folder}/style", skill("style", f"{root.name} {folder}"))
            assert (await read(skills, "style"))["instruction"] == f"{root.name} {folder}"
    assert FOLDERS == (".sweny/skills", ".claude/skills", ".agents/skills", ".gemini/skills")


async def test_a_skill_is_found_by_the_name_that_its_file_gives(tmp_path: Path):
    write(tmp_path, ".agents/skills/aa-broken", "no head")
    write(tmp_path, ".agents/skills/zz", skill("style", "By its name."))
    assert (await read(below(tmp_path), "style"))["instruction"] == "By its name."


async def test_a_file_for_a_built_in_skill_adds_an_instruction_and_keeps_its_tools(tmp_path: Path):
    write(tmp_path, ".sweny/skills/github", skill("github", "Label everything."))
    found = await read(below(tmp_path, environ={"GITHUB_TOKEN": "token-of-mine"}), "github")
    assert (found["name"], found["category"], found["instruction"]) == ("GitHub", "git", "Label everything.")
    assert "github_create_pr" in names(found)
    without = await read(below(tmp_path), "github")
    assert (without["configured"], without["missing"], without["tools"]) == (True, ["GITHUB_TOKEN"], [])
    assert without["instruction"] == "Label everything."


async def test_a_skill_may_bring_a_tool_server_and_nothing_else(tmp_path: Path):
    head = "mcp:\n  command: npx\n  args: ['-y', '@acme/server']\n  env:\n    ACME_KEY: The key of Acme\n"
    write(tmp_path, ".claude/skills/acme", f"---\nname: acme\n{head}---\n")
    found = await read(below(tmp_path), "acme")
    assert found["mcp"] == {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "@acme/server"],
        "url": "",
        "headers": {},
        "env": {"ACME_KEY": "The key of Acme"},
    }
    assert (found["configured"], found["instruction"]) == (True, "")
    write(tmp_path, ".claude/skills/web", "---\nname: web\nmcp: {url: 'https://mcp.example', headers: {X-A: b}}\n---\n")
    assert (await read(below(tmp_path), "web"))["mcp"]["type"] == "http"


async def test_what_a_skill_in_a_file_requires_is_missing_until_it_is_set(tmp_path: Path):
    head = "config:\n  ACME_KEY: {description: A key, required: true}\n  COLOUR: {description: Any}\n"
    write(tmp_path, ".claude/skills/acme", f"---\nname: acme\n{head}---\nUse it.\n")
    found = await read(below(tmp_path), "acme")
    assert (found["configured"], found["missing"]) == (False, ["ACME_KEY"])
    assert (await read(below(tmp_path, environ={"ACME_KEY": "x"}), "acme"))["configured"]


async def test_the_error_for_an_unknown_skill_suggests_similar_ones(tmp_path: Path):
    write(tmp_path, ".claude/skills/house-style", skill("house-style"))
    for wanted, near in (
        ("house-stile", "house-style"),
        ("githb", "github"),
        ("../../etc", ".sweny/skills/NAME/SKILL.md"),
    ):
        failed = await read_any(below(tmp_path), wanted)
        assert isinstance(failed, Failed)
        assert failed.code == "not_found"
        assert near in failed.fix


async def test_a_link_that_leads_out_of_the_root_is_not_a_skill(tmp_path: Path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    write(outside, "style", skill("style", "From outside."))
    (root / ".claude" / "skills").mkdir(parents=True)
    (root / ".claude" / "skills" / "style").symlink_to(outside / "style")
    failed = await read_any(below(root), "style")
    assert isinstance(failed, Failed)
    assert failed.code == "not_found"


async def test_a_file_is_named_to_the_gate_and_a_link_that_was_swapped_in_is_asked_about(tmp_path: Path):
    write(tmp_path, ".claude/skills/style", skill("style"))
    performer = SourcePerformer([], http=LOOPBACK, skills=below(tmp_path))
    effect = ReadSource("skill:style")
    described = await performer.describe(effect, Settings())
    assert not isinstance(described, Failed)
    assert described.actions == (Action("file", "read:.claude/skills/style/SKILL.md", True),)
    denied = Asking(refuse=lambda action: Failed("forbidden", action.target))
    assert await performer.perform(effect, denied.call()) == Failed("forbidden", "read:.claude/skills/style/SKILL.md")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Just text.\n", "does not begin with front matter"),
        ("---\nname: x\nno end\n", "does not begin with front matter"),
        ("---\nname: [a\n---\nx\n", "S.md:3: invalid YAML"),
        (
            "---\nname: a\nname: b\n---\nx\n",
            "S.md:3: 'name' is defined twice. Remove one of them; the first is on line 2.",
        ),
        ("---\n- a\n---\nx\n", "its front matter must consist of names and values"),
        ("---\ndescription: a\n---\nx\n", "S.md:1: its name is 'None'"),
        ("---\ndescription: a\nname: Not Kebab\n---\nx\n", "S.md:3: its name is 'Not Kebab'"),
        ("---\nname: a--b\n---\nx\n", "its name is 'a--b'"),
        (f"---\nname: {'a' * 65}\n---\nx\n", "its name is"),
        ("---\nname: a\n---\n\n", "neither an instruction nor an mcp server"),
        ("---\nname: a\nmcp: {args: [x]}\n---\nx\n", "S.md:3: its mcp server needs either a command or a url"),
        ("---\nname: a\nmcp: {command: x, url: 'https://y'}\n---\nx\n", "needs either a command or a url"),
        ("---\nname: a\nmcp: {command: 3}\n---\nx\n", "its mcp server is invalid"),
        ("---\nname: a\nmcp: x\n---\nx\n", "its mcp server is invalid"),
        ("---\nname: a\nmcp: {command: x, type: http}\n---\nx\n", "is not of type 'http'"),
        ("---\nname: a\nconfig: [x]\n---\nx\n", "S.md:3: its config must contain a table"),
        (f"---\nname: a\nx: {'[' * 9000}\n---\nx\n", "S.md"),
        (f"---\nname: a\ndescription: {'x' * 20000}\n---\nx\n", "its front matter is longer"),
    ],
)
def test_the_error_for_an_invalid_skill_file_says_why(text: str, said: str):
    with pytest.raises(BadSkill) as bad:
        parse(text, "S.md")
    assert said in str(bad.value)
    assert bad.value.fix


async def test_an_unusable_file_is_reported_and_not_skipped(tmp_path: Path):
    write(tmp_path, ".sweny/skills/style", "broken")
    write(tmp_path, ".claude/skills/style", skill("style"))
    failed = await read_any(below(tmp_path), "style")
    assert isinstance(failed, Failed)
    assert failed.code == "bad_skill"
    assert ".sweny/skills/style/SKILL.md:1" in failed.message
