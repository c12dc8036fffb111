"""`cuebook users`: each change has its own command, which prints what it did."""

from __future__ import annotations

from tests.support.command_line import CommandLine


def test_users_are_added_once_and_changed_by_name(cli: CommandLine) -> None:
    added = cli.call("users", "add", "ann", "--role", "runner", "--json").object
    again = cli.call("users", "add", "ann", "--role", "approver")
    assert (again.code, again.out) == (2, "")
    for advice in ("nothing was changed", "users grant ann --role ROLE", "users token ann"):
        assert advice in again.err
    granted = cli.call("users", "grant", "ann", "--role", "approver")
    assert (granted.code, granted.out) == (0, "ann: runner, approver\n")
    revoked = cli.call("users", "revoke", "ann", "--role", "runner", "--json")
    assert (revoked.object["roles"], "token" in revoked.object) == (["approver"], False)
    last = cli.call("users", "revoke", "ann", "--role", "approver")
    assert (last.code, "users remove ann" in last.err) == (2, True)
    renewed = cli.call("users", "token", "ann")
    assert "The old token is no longer valid." in renewed.out
    assert added["token"] not in renewed.out
    assert [one["roles"] for one in cli.call("users", "list", "--json").object] == [["approver"]]
    assert cli.call("users", "grant", "bob", "--role", "viewer").code == 2


def test_a_refusal_advises_the_command_that_gives_the_role(cli: CommandLine) -> None:
    cli.call("users", "add", "vic", "--role", "viewer")
    refused = cli.call("users", "add", "eve", "--role", "admin", "--as", "vic")
    assert (refused.code, "`cuebook users grant vic --role admin`" in refused.err) == (5, True)
    reserved = cli.call("users", "add", "trigger.note", "--role", "viewer")
    assert (reserved.code, "'trigger.'" in reserved.err) == (2, True)


def test_the_name_of_a_removed_user_is_only_for_the_same_person(cli: CommandLine) -> None:
    cli.call("users", "add", "zed", "--role", "viewer")
    assert cli.call("users", "remove", "zed").out.startswith("Removed zed.")
    refused = cli.call("users", "add", "zed", "--role", "viewer")
    assert (refused.code, refused.out) == (2, "")
    assert "An earlier user named 'zed' was removed" in refused.err
    assert "`cuebook users add zed --role ROLE --same-person`" in refused.err
    again = cli.call("users", "add", "zed", "--role", "viewer", "--same-person", "--json")
    assert (again.code, again.object["name"]) == (0, "zed")
