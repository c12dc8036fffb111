"""`cuebook evidence`: keys that sign exports, and the verification of signed files without a store or a configuration."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cuebook.kernel.errors import BadInput, NotFound
from cuebook.service.audit.keys import PublicKey, SigningKey, read_public_keys
from cuebook.service.audit.signature import check
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options
from cuebook.surfaces.cli.options import Given, command, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say


@click.group("evidence", help="Sign exports with a key, and verify signed files.")
def evidence_command() -> None:
    pass


@command("keygen", [click.Argument(["file"], shell_complete=completion.any_file), options.AS_JSON])
def _keygen(given: Given) -> int:
    """Make an Ed25519 key that signs exports.

    The private key is written to FILE, which only you can read, and the public key to FILE.pub, for those who verify. Nothing is
    overwritten. To use the key, set `key` in [evidence] of your cuebook.toml to file:FILE, or store the content of FILE in a
    secret manager and use its handle. From then on, `cuebook audit --export` and `cuebook export` sign what they write.

    To replace a key, make a new one and change the setting. Keep the old FILE.pub: what it signed is verified with it.

    Examples:

    \b
    cuebook evidence keygen evidence-key
    """
    path = Path(given["file"]).absolute()
    public = path.with_name(f"{path.name}.pub")
    key = SigningKey.new()
    for place in (path, public):
        if os.path.lexists(place):
            raise BadInput(f"{place} exists; nothing was written.", fix="Choose another name.")
    _write(path, key.pem(), 0o600)
    _write(public, key.public.pem(), 0o644)
    handle = f"file:{path}"
    if given["as_json"]:
        found = {"key": key.public.id, "file": str(path), "public": str(public), "handle": handle}
        sys.stdout.write(views.json_line(found))
    else:
        say(f"key {key.public.id}")
        say(f"{path}: the private key; only you can read it. Back it up.")
        say(f"{public}: the public key, for those who verify.")
        say(f'To sign exports with it, set key = "{handle}" in [evidence] of your cuebook.toml.')
    return 0


@command("key", [options.AS_JSON])
def _key(given: Given) -> int:
    """Print the public key of the key that signs exports here.

    Give it to those who verify your exports, in another way than the exports.
    """
    from cuebook.wiring.evidence import key_of

    key = key_of(configuration(given))
    if key is None:
        raise NotFound(
            "No key signs exports here.",
            fix="`cuebook evidence keygen FILE` makes one; `key` in [evidence] of your cuebook.toml names it.",
        )
    pem = key.public.pem().decode()
    sys.stdout.write(views.json_line({"key": key.public.id, "public": pem}) if given["as_json"] else pem)
    return 0


@command(
    "verify",
    [
        click.Argument(["file"], shell_complete=completion.any_file),
        click.Option(
            ["--key", "keys"],
            metavar="FILE",
            multiple=True,
            required=True,
            help="A file with the public keys that you trust; repeatable.",
        ),
        options.AS_JSON,
    ],
)
def _verify(given: Given) -> int:
    """Verify a signed export, with the public key alone.

    FILE was written by `cuebook audit --export` or `cuebook export`. Neither a store nor a configuration is needed or read. The
    command says which key signed the file and when, and what that proves: that not a byte has changed since then, and that the
    journals and the administrative acts in it are unbroken. With several keys, as after a rotation, one of them must have signed
    it.

    A file that was changed, cut off or reordered, or signed with another key, is refused with exit code 1, naming the line.

    Examples:

    \b
    cuebook evidence verify october.jsonl --key evidence-key.pub
    """
    from cuebook.service.audit.signed_file import verify_file

    proof = asyncio.run(verify_file(Path(given["file"]), _trusted(given["keys"])))
    if given["as_json"]:
        found: dict[str, Any] = msgspec.to_builtins(proof)
        statement = found.pop("statement") or {}
        statement.pop("marks", None)
        sys.stdout.write(views.json_line({"file": given["file"], "proven": proof.holds, "signed": statement, **found}))
        return 0 if proof.holds else 1
    name = given["file"]
    if proof.problem:
        complain(f"cuebook: {name} is refused: {proof.problem}.")
        if proof.key and proof.statement is not None:
            complain(f"cuebook: The key {proof.key} signed another content on {_utc(proof.statement.made)}.")
        return 1
    assert proof.statement is not None
    say(f"signed with the key {proof.key}")
    say(f"on {_utc(proof.statement.made)}, by the clock of the machine that signed it")
    say(f"by {proof.statement.by} of tenant {proof.statement.tenant}, with Cuebook {proof.statement.version}")
    for run in proof.runs:
        whole = run.problem or "unbroken"
        records = display.counted(run.records, "record")
        say(f"{run.run}  {run.name}  started by {run.owner}  {run.status}  {records}, {whole}, head {run.head}")
    if proof.acts:
        whole = "" if any("act" in one for one in proof.broken) else ", unbroken"
        say(f"{display.counted(proof.acts, 'administrative act')}{whole}, head {proof.acts_head}")
    for one in proof.broken:
        complain(f"cuebook: It was signed as it is, but {one}.")
    if proof.holds:
        say("Proven: not a byte has changed since it was signed, and everything in it is unbroken.")
    return 0 if proof.holds else 1


def signature_words(path: str, key: str) -> str:
    """How to verify a file that was written."""
    file = shlex.quote(path)
    if key:
        return (
            f"Signed with the key {key}; `cuebook evidence verify {file} --key PUBLIC_KEY` verifies it on any machine."
        )
    return f"`cuebook audit --file {file}` verifies it on any machine."


def unchecked_words(path: str, key: str) -> str:
    return (
        f"It names the key {key} as its signer; `cuebook evidence verify {shlex.quote(path)} --key FILE` checks that."
    )


def check_signed(path: str, keys: Sequence[str]) -> None:
    """Raises `BadInput` unless a file is what one of the keys in these files signed."""
    try:
        with open(path, "rb") as file:
            problem = check(file, _trusted(keys)).problem
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.", fix="Check the path.") from None
    if problem:
        raise BadInput(f"{path} is refused: {problem}.", fix="Get the file again from where it was signed.")


def _trusted(names: Sequence[str]) -> list[PublicKey]:
    return read_public_keys([(name, _content(name)) for name in names])


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.", fix="Check the folder.") from None


def _content(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"--key: Cannot read {name}: {error.strerror}.", fix="Check the path.") from None


for _command in (_keygen, _key, _verify):
    evidence_command.add_command(_command)
