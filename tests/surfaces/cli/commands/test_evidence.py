"""`cuebook evidence`, and exports that are signed: verified by a machine that has only the file and the public key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def signing(cli: CommandLine) -> CommandLine:
    """An installation whose exports are signed."""
    made = cli.call("evidence", "keygen", "keys/ours", "--json")
    assert made.code == 2  # there is no folder keys
    handle = cli.call("evidence", "keygen", "ours", "--json").object["handle"]
    configure(cli, handle)
    return cli


def configure(cli: CommandLine, handle: str) -> None:
    before = cli.config.read_text().partition("\n[evidence]")[0]
    cli.config.write_text(f'{before}\n[evidence]\nkey = "{handle}"\n')


def elsewhere(cli: CommandLine, folder: Path, *names: str) -> CommandLine:
    """Another machine, with copies of these files and nothing else."""
    folder.mkdir()
    other = CommandLine(folder)
    for name in names:
        (other.work / name).write_bytes((cli.work / name).read_bytes())
    return other


def test_exports_are_verified_where_there_is_only_the_file_and_the_public_key(
    signing: CommandLine, tmp_path: Path
) -> None:
    key = signing.call("evidence", "key", "--json").object
    assert (signing.work / "ours.pub").read_text() == key["public"]
    run = signing.call("run", "tea.md", "--json").object["run"]
    signing.call("users", "add", "ann", "--role", "admin")
    assert signing.call("audit", run, "--export", "run.json", "--as", "ann").code == 0
    exported = signing.call("audit", "--export", "all.jsonl")
    assert f"Signed with the key {key['key']}; `cuebook evidence verify all.jsonl --key PUBLIC_KEY`" in exported.out
    assert signing.call("export", run, "run.cuebook").out.endswith(f"signed with the key {key['key']}.\n")
    assert signing.call("audit", "--admin", "--export", "acts.jsonl", "--json").object["key"] == key["key"]

    files = ("run.json", "all.jsonl", "run.cuebook", "acts.jsonl")
    other = elsewhere(signing, tmp_path / "other", *files, "ours.pub")
    before = other.files()
    for name in files:
        found = other.call("evidence", "verify", name, "--key", "ours.pub", "--json")
        assert (found.code, found.err) == (0, "")
        assert (found.object["proven"], found.object["key"]) == (True, key["key"])
        assert [one["run"] for one in found.object["runs"]] == ([] if name == "acts.jsonl" else [run])
    assert other.files() == before  # no store was made, nothing was written
    ran = other.call("evidence", "verify", "run.json", "--key", "ours.pub")
    assert f"signed with the key {key['key']}\n" in ran.out
    assert "by ann of tenant local, with Cuebook " in ran.out
    assert f"{run}  tea.md  started by local  completed  " in ran.out
    assert ran.out.endswith("Proven: not a byte has changed since it was signed, and everything in it is unbroken.\n")
    acts = other.call("evidence", "verify", "acts.jsonl", "--key", "ours.pub")
    assert "1 administrative act, unbroken, head " in acts.out

    # What read such files before still does, and says that the signature was not checked.
    for name in ("run.json", "all.jsonl"):
        shown = other.call("audit", "--file", name)
        assert shown.code == 0
        assert f"It names the key {key['key']} as its signer" in shown.out


def test_a_file_that_was_tampered_with_is_refused_with_its_line(signing: CommandLine) -> None:
    run = signing.call("run", "tea.md", "--json").object["run"]
    signing.call("audit", run, "--export", "run.json")
    signing.call("audit", "--export", "all.jsonl")
    lines = (signing.work / "run.json").read_text().splitlines(keepends=True)
    number = next(at for at, line in enumerate(lines, start=1) if "[3," in line)
    lines[number - 1] = lines[number - 1].replace('"chain":"', '"chain":"0', 1)
    signing.write("changed.json", "".join(lines))
    ran = signing.call("evidence", "verify", "changed.json", "--key", "ours.pub")
    assert (ran.code, ran.out) == (1, "")
    assert f"changed.json is refused: line {number} was changed (record 3)." in ran.err
    assert "signed another content on " in ran.err
    text = (signing.work / "all.jsonl").read_text()
    signing.write("changed.jsonl", text.replace("Choose a green tea", "Choose a black tea", 1))
    found = signing.call("evidence", "verify", "changed.jsonl", "--key", "ours.pub", "--json")
    assert (found.code, found.object["proven"], found.object["line"]) == (1, False, 2)
    assert f"line 2 was changed (run {run}" in found.object["problem"]
    signing.write("cut.jsonl", text[: len(text) // 2])
    assert "is cut off in line" in signing.call("evidence", "verify", "cut.jsonl", "--key", "ours.pub").err
    unsigned = "".join(text.splitlines(keepends=True)[:-1])
    signing.write("unsigned.jsonl", unsigned)
    assert "it was never signed" in signing.call("evidence", "verify", "unsigned.jsonl", "--key", "ours.pub").err


def test_an_import_can_require_a_signature(signing: CommandLine) -> None:
    run = signing.call("run", "tea.md", "--json").object["run"]
    signing.call("export", run, "run.cuebook")
    signing.call("evidence", "keygen", "theirs")
    other = ["--store", "other.db"]
    refused = signing.call("import", "run.cuebook", "--key", "theirs.pub", *other)
    assert (refused.code, "run.cuebook is refused: line " in refused.err) == (2, True)
    assert not (signing.work / "other.db").exists()
    taken = signing.call("import", "run.cuebook", "--key", "theirs.pub", "--key", "ours.pub", *other)
    assert (taken.code, taken.out.startswith("1 run imported")) == (0, True)
    assert signing.call("replay", run, *other).code == 0
    assert signing.call("import", "run.cuebook", "--store", "third.db").code == 0  # without a key, as before


def test_after_a_rotation_both_keys_verify(signing: CommandLine) -> None:
    run = signing.call("run", "tea.md", "--json").object["run"]
    signing.call("audit", run, "--export", "old.json")
    configure(signing, signing.call("evidence", "keygen", "next", "--json").object["handle"])
    signing.call("audit", run, "--export", "new.json")
    (signing.work / "both.pub").write_bytes(
        (signing.work / "ours.pub").read_bytes() + (signing.work / "next.pub").read_bytes()
    )
    for name in ("old.json", "new.json"):
        assert signing.call("evidence", "verify", name, "--key", "both.pub").code == 0
        assert signing.call("evidence", "verify", name, "--key", "ours.pub", "--key", "next.pub").code == 0
    assert signing.call("evidence", "verify", "old.json", "--key", "next.pub").code == 1


def test_a_key_is_private_and_never_replaced(signing: CommandLine) -> None:
    private = signing.work / "ours"
    assert private.stat().st_mode & 0o777 == 0o600
    for name in ("ours", "ours.pub"):
        again = signing.call("evidence", "keygen", name.removesuffix(".pub"))
        assert (again.code, "exists; nothing was written" in again.err) == (2, True)
    run = signing.call("run", "tea.md", "--json").object["run"]
    private.chmod(0o640)
    for command in (
        ["audit", run, "--export", "x"],
        ["audit", "--export", "x"],
        ["export", run, "x"],
        ["evidence", "key"],
    ):
        ran = signing.call(*command)
        assert (ran.code, "other users of this machine can access" in ran.err, "chmod 600" in ran.err) == (
            2,
            True,
            True,
        )
        assert not (signing.work / "x").exists()
    secret = private.read_text().splitlines()[1]
    private.write_text("not a key, but long enough")
    private.chmod(0o600)
    wrong = signing.call("audit", run, "--export", "x")
    assert (wrong.code, "is not an Ed25519 private key" in wrong.err) == (2, True)
    assert secret not in wrong.err
    private.unlink()
    missing = signing.call("audit", run, "--export", "x")
    assert (missing.code, "there is no such file" in missing.err) == (2, True)


def test_the_key_may_be_in_the_environment_or_in_a_secret_manager(cli: CommandLine) -> None:
    cli.call("evidence", "keygen", "ours")
    key = cli.call("evidence", "verify", "ours", "--key", "ours")
    assert (key.code, "has a private key" in key.err) == (2, True)
    run = cli.call("run", "tea.md", "--json").object["run"]
    assert cli.call("audit", run, "--export", "unsigned.json", "--json").object["key"] == ""
    none = cli.call("evidence", "key")
    assert (none.code, "cuebook evidence keygen FILE" in none.err) == (2, True)
    pem = (cli.work / "ours").read_text()
    cli.environ["EVIDENCE_KEY"] = pem
    configure(cli, "env:EVIDENCE_KEY")
    assert cli.call("audit", run, "--export", "one.json").code == 0
    configure(cli, "secret:proof")
    cli.config.write_text(cli.config.read_text() + f'\n[secrets]\nproof = "exec:cat {cli.work / "ours"}"\n')
    assert cli.call("audit", run, "--export", "two.json").code == 0
    for name in ("one.json", "two.json"):
        assert cli.call("evidence", "verify", name, "--key", "ours.pub").code == 0
    (cli.work / "cuebook.toml").write_text('[evidence]\nkey = "env:OTHER"\n')
    refused = cli.call("audit", run, "--export", "three.json")
    assert (refused.code, "a project file may not set 'evidence.key'" in refused.err) == (2, True)
