"""`cuebook doctor` says what is there, where each value came from, and what is missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

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
