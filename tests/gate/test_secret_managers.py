"""Named secrets come from the programs of secret managers, which may be slow, broken or missing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from cuebook.gate import secret_managers
from cuebook.gate.secret_managers import KINDS, BadSource, Managers, source
from cuebook.gate.secrets import SecretProblem, SecretUnknown, SecretUnreadable, Vault, check_handle
from tests.gate.test_secrets import no_keyring

VALUE = "s3cr3t-value-0123"


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    """A folder of programs."""
    made = tmp_path / "bin"
    made.mkdir()
    return made


def program(bin: Path, name: str, script: str) -> None:
    path = bin / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def vault(bin: Path, patience: float = 10.0, fresh: float = 60.0, **named: str) -> Vault:
    environ = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    managers = Managers({name: source(at) for name, at in named.items()}, environ, patience=patience, fresh=fresh)
    return Vault(environ=environ, keyring=no_keyring, managers=managers)


# What each program gets is written down by the program itself.
ASKED = 'printf "%s\\n" "${0##*/}" "$@" > "$0.asked"\n'


@pytest.mark.parametrize(
    ("handle", "asked", "printed"),
    [
        ("vault:kv/ci#token", "vault kv get -field=token kv/ci", VALUE),
        ("op://Ops/GitHub/token", "op read --no-newline op://Ops/GitHub/token", VALUE),
        ("op:Ops/GitHub/login/token", "op read --no-newline op://Ops/GitHub/login/token", VALUE),
        ("aws:ci", "aws secretsmanager get-secret-value --secret-id=ci --query=SecretString --output=text", VALUE),
        (
            "aws:ci#token",
            "aws secretsmanager get-secret-value --secret-id=ci --query=SecretString --output=text",
            f'{{"token": "{VALUE}"}}',
        ),
        ("gcp:ci", "gcloud secrets versions access latest --secret=ci", VALUE),
        ("gcp:projects/p/secrets/ci/versions/3", "gcloud secrets versions access 3 --secret=ci --project=p", VALUE),
        ("exec:pass show 'my token'", "pass show my token", VALUE),
    ],
)
def test_each_manager_is_asked_by_its_own_program(bin: Path, handle: str, asked: str, printed: str) -> None:
    name = asked.split()[0]
    program(bin, name, f"{ASKED}printf '%s\\n' '{printed}'")
    found = vault(bin, token=handle)
    assert found.resolve("token") == found.resolve("secret:token") == VALUE
    assert found.canonical("token") == "secret:token"
    assert " ".join((bin / f"{name}.asked").read_text().splitlines()) == asked


@pytest.mark.parametrize(
    "handle",
    ["vault:kv/ci", "op:Ops", "op://a//b", "aws:", "gcp:a/b", "exec:'open", "exec: ", "exec:./get x", "exec:bin/get"],
)
def test_a_handle_of_a_manager_says_everything_that_its_program_needs(handle: str) -> None:
    with pytest.raises(BadSource) as refused:
        source(handle)
    assert refused.value.fix.startswith(f"Write it as {handle.partition(':')[0]}:")


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_configuration_can_ask_a_manager(bin: Path, kind: str) -> None:
    """Not a playbook, an argument, or a name that was added with a command."""
    found = vault(bin, token="exec:echo no")
    for refuse in (check_handle, found.canonical):
        with pytest.raises(SecretProblem, match="cannot begin with"):
            refuse(f"{kind}:echo#x/y/z")
    with pytest.raises(SecretUnknown, match="Did you mean token"):
        found.resolve("tokem")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"echo {VALUE} >&2; exit 3", "failed with exit code 3"),
        (f"echo {VALUE}; kill -9 $$", "was ended by signal 9"),
        ("head -c 100000 /dev/zero", "is larger than 64 KiB"),
        ("printf '\\377\\377\\377'", "is not UTF-8 text"),
        ("true", "has no value"),
    ],
)
def test_a_failure_says_why_and_repeats_nothing_that_was_printed(bin: Path, script: str, why: str) -> None:
    program(bin, "pass", script)
    found = vault(bin, token=f"exec:pass {VALUE}")
    with pytest.raises(SecretProblem, match=why) as problem:
        found.resolve("token")
    assert VALUE not in f"{problem.value}{problem.value.fix}"


def test_a_missing_program_is_named(bin: Path) -> None:
    with pytest.raises(SecretUnreadable, match="the program gone-away was not found"):
        vault(bin, token="exec:gone-away").resolve("token")


def test_a_value_is_asked_for_once_in_a_while_by_however_many_runs(bin: Path) -> None:
    program(bin, "pass", f'echo x >> "$0.calls"; sleep 0.1; echo {VALUE}')
    found = vault(bin, token="exec:pass")

    async def at_once() -> None:
        await asyncio.gather(*(found.fetch(["secret:token"]) for _ in range(50)))

    asyncio.run(at_once())
    assert found.resolve("token") == VALUE
    assert (bin / "pass.calls").read_text() == "x\n"


def test_a_rotated_value_is_used_once_the_old_one_is_stale(bin: Path) -> None:
    program(bin, "pass", f"echo {VALUE}")
    found = vault(bin, fresh=0.0, token="exec:pass")
    assert found.resolve("token") == VALUE
    program(bin, "pass", "echo another-value-4567")
    assert found.resolve("token") == "another-value-4567"


def test_a_manager_that_hangs_is_ended_and_holds_up_nothing_else(bin: Path) -> None:
    program(bin, "pass", 'sleep 600 & echo $! > "$0.child"; wait')
    found = vault(bin, patience=0.5, token="exec:pass")

    async def fetched() -> tuple[dict[str, SecretProblem], int]:
        turns = 0
        asking = asyncio.ensure_future(found.fetch(["secret:token"]))
        while not asking.done():
            await asyncio.sleep(0.01)
            turns += 1
        return await asking, turns

    problem, turns = asyncio.run(fetched())
    assert "did not return it within 0.5 s" in problem["secret:token"].message
    assert turns > 5
    child = int((bin / "pass.child").read_text())
    until = time.monotonic() + 20
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(child)


@pytest.mark.parametrize(
    "script",
    [
        f"sleep 600 & echo $! > $0.child; echo {VALUE}",
        f"setsid sleep 600 & echo $! > $0.child; echo {VALUE}",
        f"sleep 600 & echo $! > $0.child; sleep 0.2; echo {VALUE}",
    ],
)
def test_what_a_manager_leaves_running_is_not_waited_for(bin: Path, script: str) -> None:
    program(bin, "pass", script)
    try:
        assert vault(bin, token="exec:pass").resolve("token") == VALUE
    finally:
        os.kill(int((bin / "pass.child").read_text()), signal.SIGKILL)


def test_a_manager_whose_program_leaves_its_group_is_given_up(bin: Path) -> None:
    program(bin, "pass", "setsid sh -c 'echo $$ > \"$0.child\"; exec sleep 600' $0; true")
    found = vault(bin, patience=0.5, token="exec:pass")
    try:
        with pytest.raises(SecretProblem, match=r"did not return it within 0\.5 s"):
            found.resolve("token")
    finally:
        os.kill(int((bin / "pass.child").read_text()), signal.SIGKILL)


def test_however_many_wait_for_a_manager_others_are_not_held_up(bin: Path) -> None:
    program(bin, "pass", 'echo x >> "$0.calls"; while [ ! -e "$0.go" ]; do sleep 0.05; done; echo ' + VALUE)
    program(bin, "quick", "echo another-value-4567")
    found = vault(bin, token="exec:pass", other="exec:quick")

    async def all_of_them() -> list[str]:
        waiting = [asyncio.ensure_future(found.revealed("token")) for _ in range(100)]
        given_up = asyncio.ensure_future(found.revealed("token"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await found.revealed("other") == "another-value-4567"
        assert await asyncio.to_thread(lambda: "a thread is free") == "a thread is free"
        assert not any(one.done() for one in waiting)
        (bin / "pass.go").touch()
        return await asyncio.gather(*waiting)

    assert set(asyncio.run(all_of_them())) == {VALUE}
    assert (bin / "pass.calls").read_text() == "x\n"


def test_each_problem_is_reported_however_long_the_others_take(bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_managers, "FAILED_FRESH", 0.0)
    program(bin, "pass", 'echo x >> "$0.calls"; exit 1')
    program(bin, "slow", f"sleep 0.3; echo {VALUE}")
    found = vault(bin, token="exec:pass", other="exec:slow")
    problems = asyncio.run(found.fetch(["secret:token", "secret:other", "env:HOME"]))
    assert list(problems) == ["secret:token"]
    assert (bin / "pass.calls").read_text() == "x\n", "asked once"


def _runs(pid: int) -> bool:
    """Whether a process runs. One that was not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
