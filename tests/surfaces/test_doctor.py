"""`cuebook doctor` says what is there, where each value came from, and what is missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.surfaces.desk import Desk


def test_a_machine_that_is_ready(desk: Desk) -> None:
    before = desk.files()
    ran = desk.call("doctor")
    assert ran.code == 0
    assert "model     test/echo-1 (ready)" in ran.out
    assert f"store     {desk.store} (not there yet; the first run creates it)" in ran.out
    assert "CUEBOOK_STORE" in ran.out
    assert desk.files() == before
    found = desk.call("doctor", "--json").object
    assert found["ready"] is True
    assert found["settings"]["model"] == {"value": "test/echo-1", "origin": f"{desk.config}:1"}
    assert found["keyring"]["usable"] is False
    names = [provider["name"] for provider in found["providers"]]
    assert names == ["local", "openai", "anthropic", "openrouter", "ollama", "test"]


def test_a_machine_that_is_not(bare_desk: Desk) -> None:
    ran = bare_desk.call("doctor")
    assert ran.code == 2
    assert "model     local/smollm2-135m (cannot be used)" in ran.out
    assert "Run `cuebook models install local` once (98 MB)." in ran.out
    bare_desk.write("notes.db", "This is no store. " * 100)
    broken = bare_desk.call("doctor", "--store", "notes.db", "--json").object
    assert "cannot be read" in broken["store"]["problem"]


def test_another_programs_database_is_no_store(desk: Desk) -> None:
    with closing(sqlite3.connect(desk.work / "other.db")) as other, other:
        other.execute("CREATE TABLE contacts (name TEXT)")
    ran = desk.call("doctor", "--store", "other.db")
    assert ran.code == 2
    assert "not a Cuebook store" in ran.out


def test_a_policy_that_cannot_be_read_keeps_a_run_from_starting(desk: Desk) -> None:
    path = desk.write("cuebook.policy.toml", "[tools]\nalow = []\n")
    ran = desk.call("doctor")
    assert ran.code == 2
    assert f"policy    BROKEN: {path}:2: there is no setting 'tools.alow'." in ran.out
    assert desk.call("run", "tea.md").code == 2
    found = desk.call("doctor", "--json").object
    assert (found["ready"], found["policy"]) == (False, [])
    assert "tools.alow" in found["policy_problem"]


def test_it_is_told_whether_the_projects_policy_is_trusted(desk: Desk) -> None:
    path = desk.write("cuebook.policy.toml", '[tools]\nallow = ["x"]\n')
    assert f"policy    {path} (project, not trusted: it can only restrict)" in desk.call("doctor").out
    desk.call("policy", "trust")
    before = desk.files()
    assert f"policy    {path} (project, trusted)" in desk.call("doctor").out
    assert desk.files() == before
    path.write_text("")
    assert desk.call("doctor", "--json").object["policy"] == [{"whose": "project", "path": str(path), "trusted": False}]


def test_python_tools_are_listed_with_whether_they_load(desk: Desk) -> None:
    (desk.home / "mods").mkdir()
    (desk.home / "mods" / "my_tools.py").write_text("def greet(name: str) -> str:\n    return name\n")
    desk.environ["PYTHONPATH"] += f":{desk.home / 'mods'}"
    desk.config.write_text(desk.config.read_text() + '[tools]\ngreet = "my_tools:greet"\ngone = "no_such:tool"\n')
    ran = desk.call("doctor")
    assert ran.code == 0
    assert "tools     greet: my_tools:greet (loads)\n" in ran.out
    assert "tools     gone: no_such:tool (cannot be loaded)\n" in ran.out
    assert "The tool 'gone' cannot be loaded from no_such:tool: No module named 'no_such'." in ran.out


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PAUSE_EXPIRY", "", "24 h"),
        ("PAUSE_EXPIRY", "never", "never"),
        ("PAUSE_EXPIRY", "7d", "7 d"),
        ("PAUSE_EXPIRY", "90", "90 s"),
        ("LIMITS_MEMORY", "", "1 GiB"),
        ("LIMITS_REPLY", "", "8 MiB"),
        ("LIMITS_MEMORY", "1000001", "1,000,001 bytes"),
        ("LIMITS_OUTPUT", "", "32 KiB"),
        ("PASS_ENV", "", "none"),
        ("PASS_ENV", "LANG,EDITOR", "LANG, EDITOR"),
    ],
)
def test_values_are_shown_as_a_person_would_say_them(desk: Desk, name: str, value: str, shown: str) -> None:
    desk.environ[f"CUEBOOK_{name}"] = value
    setting = name.lower().replace("limits_", "limits.")
    line = next(line for line in desk.call("doctor").out.splitlines() if line.strip().startswith(f"{setting} "))
    assert line.strip().removeprefix(setting).strip().startswith(f"{shown}  ")


def test_a_store_in_the_workspace_is_told(desk: Desk) -> None:
    assert "It lies in the workspace." not in desk.call("doctor").out
    assert "It lies in the workspace." in desk.call("doctor", "--store", desk.work / "runs.db").out


def test_a_user_with_a_reserved_name_is_reported(desk: Desk) -> None:
    desk.call("users", "add", "ann", "--role", "viewer")
    with sqlite3.connect(desk.store) as store:
        store.execute("UPDATE kept SET name = 'local' WHERE kind = 'user'")
    store.close()
    assert "`cuebook users remove local`" in desk.call("doctor").out
