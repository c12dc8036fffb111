"""Secrets are named by where they are stored; whether they can be read is shown, their values never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.surfaces.cli.commands.test_keys import KEYRING

VALUE = "s3cr3t-value-0123"


@pytest.fixture
def token(cli: CommandLine) -> Path:
    path = cli.home / "token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    return path


def all_said(*said: Ran) -> str:
    return "".join(one.out + one.err for one in said)


def test_a_secret_is_named_listed_checked_and_removed_and_never_shown(cli: CommandLine, token: Path) -> None:
    cli.environ["GITHUB_TOKEN"] = VALUE
    (cli.home / "ring").mkdir()
    (cli.home / "ring" / "test_ring.py").write_text(KEYRING)
    (cli.home / "ring" / "ring.json").write_text(f'{{"cuebook db": "{VALUE}"}}')
    cli.environ["PYTHONPATH"] += f":{cli.home / 'ring'}"
    cli.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"

    added = cli.call("secrets", "add", "github", "env:GITHUB_TOKEN")
    assert (added.code, added.out) == (0, "github now refers to env:GITHUB_TOKEN.\nIts value can be read.\n")
    said = [
        cli.call("secrets", "add", "db", "keyring:db"),
        cli.call("secrets", "add", "file", "file:~/token", "--json"),
    ]
    assert said[1].object == {
        "name": "file",
        "handle": f"file:{token}",
        "readable": True,
        "problem": "",
        "concern": "",
    }
    listed = cli.call("secrets", "list")
    for words in ("github", "env:GITHUB_TOKEN", "keyring:db", f"file:{token}"):
        assert words in listed.out
    assert (listed.out.count("can be read"), listed.code) == (3, 0)
    checked = cli.call("secrets", "check", "--json")
    assert checked.code == 0
    assert {one["name"]: one["readable"] for one in checked.object} == {"github": True, "db": True, "file": True}
    assert {one["owner"] for one in checked.object} == {"local"}

    removed = [cli.call("secrets", "remove", "github"), cli.call("secrets", "remove", "github")]
    assert [(one.code, one.out) for one in removed] == [(0, "Removed github.\n"), (2, "")]
    assert removed[1].err.startswith("cuebook: There is no secret 'github'.")
    assert VALUE not in all_said(added, *said, listed, checked, *removed)
    assert VALUE.encode() not in b"".join(path.read_bytes() for path in cli.store.parent.iterdir())


def test_a_value_that_is_not_there_yet_may_be_named_and_fails_the_check(cli: CommandLine) -> None:
    added = cli.call("secrets", "add", "later", "env:LATER")
    assert (added.code, "It is not usable yet." in added.out, "Set LATER" in added.out) == (0, True, True)
    assert cli.call("secrets", "list").code == 0
    checked = cli.call("secrets", "check")
    assert (checked.code, "cannot be read" in checked.out, "Set LATER" in checked.out) == (2, True, True)
    assert cli.call("secrets", "check", "--json").object[0]["readable"] is False
    cli.environ["LATER"] = VALUE
    assert cli.call("secrets", "check").code == 0


def test_without_secrets_there_is_nothing_to_check(cli: CommandLine) -> None:
    assert cli.call("secrets", "check").out == "There are no secrets yet. `cuebook secrets add NAME HANDLE` adds one.\n"
    assert cli.call("secrets", "list", "--json").object == []


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
def test_a_value_in_the_wrong_place_is_refused_and_not_repeated(cli: CommandLine, words: list[str]) -> None:
    ran = cli.call("secrets", "add", *words)
    assert ran.code == 2
    assert VALUE not in all_said(ran)
    assert cli.call("secrets", "list", "--json").object == []


def test_a_short_value_is_refused(cli: CommandLine) -> None:
    cli.environ["SHORT"] = "1234567"
    ran = cli.call("secrets", "add", "short", "env:SHORT")
    assert (ran.code, "fewer than 8 characters" in ran.err, "1234567" in all_said(ran)) == (2, True, False)
    assert cli.call("secrets", "list", "--json").object == []


def test_a_file_that_others_can_read_is_reported(cli: CommandLine, token: Path) -> None:
    token.chmod(0o644)
    ran = cli.call("secrets", "add", "file", f"file:{token}")
    assert (ran.code, ran.out.count("chmod 600"), ran.err) == (0, 1, "")
    assert cli.call("secrets", "list").out.count("chmod 600") == 1


def test_a_folder_is_not_a_secret_and_its_permissions_are_not_blamed(cli: CommandLine) -> None:
    (cli.home / "folder").mkdir(mode=0o755)
    ran = cli.call("secrets", "add", "folder", f"file:{cli.home / 'folder'}")
    assert (ran.code, "it is not a file" in ran.err, "chmod" in all_said(ran)) == (2, True, False)
    assert cli.call("secrets", "list", "--json").object == []


def test_a_missing_keyring_is_reported(cli: CommandLine) -> None:
    ran = cli.call("secrets", "add", "db", "keyring:db")
    assert (ran.code, "this system has no keyring that Cuebook can use" in ran.out) == (0, True)
    assert "keyring set" not in ran.out


def test_naming_secrets_needs_an_admin(cli: CommandLine) -> None:
    cli.call("users", "add", "mira", "--role", "approver")
    ran = cli.call("secrets", "add", "github", "env:GITHUB_TOKEN", "--as", "mira")
    assert (ran.code, "requires the role admin" in ran.err) == (5, True)
