"""Stored playbooks are found by id and by path; those that cannot be run are left out and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.formats import yaml
from cuebook.service.playbooks.library import Library, Stored
from tests.support.runtime import RuntimeHarness

ONE = "id: one\nname: One\nversion: '1'\nsteps:\n  - {id: a, command: cli echo one, effect: read}\n"
TWO = "name: Two\nsteps:\n  - {id: a, command: cli pwd, effect: read}\n"
BOOK = "# Book\n\n## STEP 1: A\n\nDo it.\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_playbooks_are_found_in_files_and_folders_of_every_dialect(tmp_path: Path) -> None:
    write(tmp_path, "release/playbook.yml", ONE)
    write(tmp_path, "two.yaml", TWO)
    write(tmp_path, "book.md", BOOK)
    write(tmp_path, "notes.txt", "no playbook")
    write(tmp_path, "book/readme.md", "# Nothing")
    found, left_out = Stored([tmp_path]).found()
    assert [(one.id, one.title, one.dialect, one.name) for one in found] == [
        ("book", "Book", "markdown", "book.md"),
        ("one", "One", "pipeline", "release/playbook.yml"),
        ("two", "Two", "pipeline", "two.yaml"),
    ]
    assert left_out == []


def test_files_that_are_not_playbooks_are_not_read_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may contain other data; listing it must not spend time on finding out what is wrong with it."""

    def never(*given: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr(yaml, "read_yaml_or_json", never)
    data = write(tmp_path, "data.yml", "numbers:\n" + "  - 1\n" * 1000)
    found, left_out = Stored([tmp_path]).found()
    assert (found, [(one.path, one.problem) for one in left_out]) == (
        [],
        [(data, "data.yml: this is not a playbook of any known dialect.")],
    )


def test_a_playbook_that_cannot_be_run_is_left_out_and_reported(tmp_path: Path) -> None:
    broken = write(tmp_path, "broken.yml", "name: B\nsteps: []\n")
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"\xff\xfe\x00")
    found, left_out = Stored([tmp_path]).found()
    assert found == []
    assert {one.path for one in left_out} == {broken, binary}
    assert all(one.problem for one in left_out)


def test_a_missing_folder_contains_no_playbooks(tmp_path: Path) -> None:
    assert Stored([tmp_path / "missing"]).found() == ([], [])


def test_the_first_of_two_playbooks_with_the_same_id_wins(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    first = write(mine, "one.yml", ONE)
    second = write(theirs, "other.yml", ONE)
    found, left_out = Stored([mine, theirs]).found()
    assert [one.path for one in found] == [first]
    assert [one.path for one in left_out] == [second]
    assert str(first) in left_out[0].problem


def test_a_link_out_of_the_folder_is_left_out(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside/one.yml", ONE)
    folder = tmp_path / "playbooks"
    folder.mkdir()
    (folder / "one.yml").symlink_to(outside)
    found, left_out = Stored([folder]).found()
    assert (found, len(left_out)) == ([], 1)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "one.yml", ONE)
    stored = Stored([tmp_path])
    assert stored.named("one") is not None
    path.write_text(ONE.replace("id: one", "id: another"))
    assert stored.named("one") is None
    assert stored.named("another") is not None
    path.unlink()
    assert stored.all() == []


# --- through the runtime -----------------------------------------------------------------------------------------------


async def test_a_stored_playbook_is_run_by_id_and_by_path(runtime: RuntimeHarness) -> None:
    path = write(runtime.config / "playbooks", "release/playbook.yml", ONE)
    for pipeline in ("one", str(path), "release/playbook.yml"):
        envelope = await runtime.run(pipeline)
        assert envelope["output"] == ["one\n"]
    assert {row.name for row in await runtime.rows()} == {"release/playbook.yml"}


async def test_a_projects_playbooks_are_stored_too(runtime: RuntimeHarness) -> None:
    write(runtime.work / "playbooks", "two.yml", TWO)
    await runtime.close()
    runtime.open()
    assert (await runtime.run("two"))["status"] == "ok"
    assert [one.id for one in runtime.runtime.stored.all()] == ["two"]


@pytest.mark.parametrize(
    "pipeline", ["three", "/etc/passwd", "../outside.yml", "playbooks/../outside.yml", "\0", "x" * 9000]
)
async def test_no_other_file_can_be_run(runtime: RuntimeHarness, pipeline: str) -> None:
    write(runtime.work / "playbooks", "two.yml", TWO)
    write(runtime.work, "outside.yml", TWO)
    await runtime.close()
    runtime.open()
    envelope = await runtime.run(pipeline)
    assert envelope["error"]["code"] == "invalid_request"
    assert "two" in envelope["error"]["message"], "what is stored is told"
    assert (await runtime.run(str(runtime.work / "outside.yml")))["error"]["code"] == "invalid_request"
    assert await runtime.rows() == []


async def test_an_id_takes_precedence_over_text(runtime: RuntimeHarness) -> None:
    write(runtime.config / "playbooks", "one.yml", ONE)
    assert (await runtime.run('{"name": "J", "steps": [{"id": "a", "command": "cli echo text"}]}'))["output"] == [
        "text\n"
    ]


async def test_a_stored_playbook_is_run_by_its_name_as_it_is_written(runtime: RuntimeHarness) -> None:
    folder = runtime.config / "playbooks"
    write(folder, "nightly.yml", ONE.replace("id: one\nname: One", "name: My Nightly Backup"))
    for pipeline in ("my-nightly-backup", "My Nightly Backup"):
        assert (await runtime.run(pipeline))["output"] == ["one\n"]
    write(folder, "other.yml", ONE.replace("name: One", "name: My Nightly Backup"))
    envelope = await runtime.run("My Nightly Backup")
    assert "or one of these ids: my-nightly-backup, one" in envelope["error"]["message"], "two are called so"


async def test_playbook_names_are_case_sensitive(tmp_path: Path) -> None:
    write(tmp_path, "snow.yml", TWO.replace("Two", "☃"))
    write(tmp_path, "sun.yml", TWO.replace("Two", "☀"))
    found, left_out = Stored([tmp_path]).found()
    assert ({one.title for one in found}, left_out) == ({"☃", "☀"}, [])


async def test_a_path_may_be_relative_to_the_working_folder(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(runtime.config / "playbooks", "one.yml", ONE)
    monkeypatch.chdir(runtime.config)
    assert (await runtime.run("playbooks/one.yml"))["output"] == ["one\n"]


@pytest.mark.parametrize("pipeline", ["bad", "bad.yml"])
async def test_the_problem_of_an_invalid_stored_playbook_is_reported(runtime: RuntimeHarness, pipeline: str) -> None:
    path = write(runtime.config / "playbooks", "bad.yml", "name: B\nsteps: []\n")
    error = (await runtime.run(pipeline))["error"]
    assert error["code"] == "invalid_request"
    assert f"The stored playbook '{pipeline}' cannot be run: bad.yml:2: steps must not be empty." in error["message"]
    assert f"`cuebook validate {path}`" in error["message"]


async def test_the_second_of_two_playbooks_with_the_same_id_names_the_first(runtime: RuntimeHarness) -> None:
    first = write(runtime.config / "playbooks", "a.yml", ONE)
    write(runtime.config / "playbooks", "b.yml", ONE)
    assert (await runtime.run("one"))["output"] == ["one\n"]
    error = (await runtime.run("b.yml"))["error"]
    assert f"The id 'one' is taken by {first}. Change one of the ids." in error["message"]


def test_a_skill_is_listed_under_the_name_of_its_folder(tmp_path: Path) -> None:
    skill = "---\nname: tidy\ndescription: Tidies.\n---\n\n# Tidy\n\n1. Look.\n2. Do it.\n"
    write(tmp_path, "skills/tidy/SKILL.md", skill)
    write(tmp_path, "skills/notes/SKILL.md", "# Not a skill\n\nOnly notes.\n")
    library = Library([tmp_path])
    assert [(one.id, one.title, [step.label for step in one.steps]) for one in library.all()] == [
        ("tidy", "Tidy", ["1", "2"])
    ]
