"""Secrets are named by where they are found; whether they can be read is told, their values never."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.desk import Desk, Ran
from tests.surfaces.test_keys import KEYRING

VALUE = "s3cr3t-value-0123"


@pytest.fixture
def token(desk: Desk) -> Path:
    path = desk.home / "token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    return path


def all_said(*said: Ran) -> str:
    return "".join(one.out + one.err for one in said)


def test_a_secret_is_named_listed_checked_and_removed_and_never_shown(desk: Desk, token: Path) -> None:
    desk.environ["GITHUB_TOKEN"] = VALUE
    (desk.home / "ring").mkdir()
    (desk.home / "ring" / "test_ring.py").write_text(KEYRING)
    (desk.home / "ring" / "ring.json").write_text(f'{{"cuebook db": "{VALUE}"}}')
    desk.environ["PYTHONPATH"] += f":{desk.home / 'ring'}"
    desk.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"

    added = desk.call("secrets", "add", "github", "env:GITHUB_TOKEN")
    assert (added.code, added.out) == (0, "github stands for env:GITHUB_TOKEN.\nIts value can be read.\n")
    said = [
        desk.call("secrets", "add", "db", "keyring:db"),
        desk.call("secrets", "add", "file", "file:~/token", "--json"),
    ]
    assert said[1].object == {
        "name": "file",
        "handle": f"file:{token}",
        "readable": True,
        "problem": "",
        "concern": "",
    }
    listed = desk.call("secrets", "list")
    for words in ("github", "env:GITHUB_TOKEN", "keyring:db", f"file:{token}"):
        assert words in listed.out
    assert (listed.out.count("can be read"), listed.code) == (3, 0)
    checked = desk.call("secrets", "check", "--json")
    assert checked.code == 0
    assert {one["name"]: one["readable"] for one in checked.object} == {"github": True, "db": True, "file": True}
    assert {one["owner"] for one in checked.object} == {"local"}

    removed = [desk.call("secrets", "remove", "github"), desk.call("secrets", "remove", "github")]
    assert [(one.code, one.out) for one in removed] == [(0, "github is removed.\n"), (2, "")]
    assert removed[1].err.startswith("cuebook: There is no secret 'github'.")
    assert VALUE not in all_said(added, *said, listed, checked, *removed)
    assert VALUE.encode() not in b"".join(path.read_bytes() for path in desk.store.parent.iterdir())


def test_a_value_that_is_not_there_yet_may_be_named_and_fails_the_check(desk: Desk) -> None:
    added = desk.call("secrets", "add", "later", "env:LATER")
    assert (added.code, "It cannot be used yet." in added.out, "Set LATER" in added.out) == (0, True, True)
    assert desk.call("secrets", "list").code == 0
    checked = desk.call("secrets", "check")
    assert (checked.code, "cannot be read" in checked.out, "Set LATER" in checked.out) == (2, True, True)
    assert desk.call("secrets", "check", "--json").object[0]["readable"] is False
    desk.environ["LATER"] = VALUE
    assert desk.call("secrets", "check").code == 0


def test_without_secrets_there_is_nothing_to_check(desk: Desk) -> None:
    assert (
        desk.call("secrets", "check").out == "There are no secrets yet. `cuebook secrets add NAME HANDLE` adds one.\n"
    )
    assert desk.call("secrets", "list", "--json").object == []


@pytest.mark.parametrize(
    "words",
    [
        ["github", VALUE],
        ["github", "env:GITHUB_TOKEN", VALUE],
        [VALUE, "env:GITHUB_TOKEN", "more"],
        ["env:GITHUB_TOKEN", VALUE],
        [f"x:{VALUE}", "env:GITHUB_TOKEN"],
        ["github", f"https://{VALUE}"],
        ["github", f"file:{VALUE}"],
    ],
)
def test_a_value_in_the_wrong_place_is_refused_and_not_repeated(desk: Desk, words: list[str]) -> None:
    ran = desk.call("secrets", "add", *words)
    assert ran.code == 2
    assert VALUE not in all_said(ran)
    assert desk.call("secrets", "list", "--json").object == []


def test_a_short_value_is_refused(desk: Desk) -> None:
    desk.environ["SHORT"] = "1234567"
    ran = desk.call("secrets", "add", "short", "env:SHORT")
    assert (ran.code, "fewer than 8 characters" in ran.err, "1234567" in all_said(ran)) == (2, True, False)
    assert desk.call("secrets", "list", "--json").object == []


def test_a_file_that_others_can_read_is_told(desk: Desk, token: Path) -> None:
    token.chmod(0o644)
    ran = desk.call("secrets", "add", "file", f"file:{token}")
    assert (ran.code, ran.out.count("chmod 600"), ran.err) == (0, 1, "")
    assert desk.call("secrets", "list").out.count("chmod 600") == 1


def test_a_folder_is_no_secret_and_nobody_is_told_to_change_its_permissions(desk: Desk) -> None:
    (desk.home / "folder").mkdir(mode=0o755)
    ran = desk.call("secrets", "add", "folder", f"file:{desk.home / 'folder'}")
    assert (ran.code, "it is no file" in ran.err, "chmod" in all_said(ran)) == (2, True, False)
    assert desk.call("secrets", "list", "--json").object == []


def test_where_there_is_no_keyring_that_is_told(desk: Desk) -> None:
    ran = desk.call("secrets", "add", "db", "keyring:db")
    assert (ran.code, "this system has no keyring that Cuebook can use" in ran.out) == (0, True)
    assert "keyring set" not in ran.out


def test_naming_secrets_needs_an_admin(desk: Desk) -> None:
    desk.call("users", "add", "mira", "--role", "approver")
    ran = desk.call("secrets", "add", "github", "env:GITHUB_TOKEN", "--as", "mira")
    assert (ran.code, "needs the role admin" in ran.err) == (5, True)
