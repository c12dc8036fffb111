"""The command line on a store in Postgres: every command works as on a file, and no password appears anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import cuebook.wiring.stores
from cuebook.config import load
from cuebook.kernel.errors import BadInput
from cuebook.wiring.wiring import Wiring
from tests.support.command_line import CommandLine
from tests.support.postgres import server
from tests.support.runtime import GATED

pytestmark = pytest.mark.needs("postgres")

KEY = "0123456789abcdef" * 4
CANARY = "kanarie-4711-secret"


@pytest.fixture
def url() -> Iterator[str]:
    with server().schema() as found:
        yield found


@pytest.fixture
def cli(bare_cli: CommandLine, url: str) -> CommandLine:
    bare_cli.environ |= {"CUEBOOK_STORE": url, "TEAM_KEY": KEY, "CUEBOOK_SIGNING_KEY": "env:TEAM_KEY"}
    bare_cli.config.parent.mkdir(parents=True)
    (bare_cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    bare_cli.write("gated.yml", GATED)
    return bare_cli


def test_a_run_waits_is_decided_and_ends(cli: CommandLine) -> None:
    assert "no runs yet" in cli.call("runs").out + cli.call("runs").err
    ran = cli.call("run", "gated.yml")
    assert ran.code == 3, ran.err
    (listed,) = cli.call("runs", "--json").object
    run = listed["run"]
    (wait,) = cli.call("inbox", "--json").object
    assert cli.call("decide", wait["wait"], "approve").code == 0
    assert cli.call("show", run, "--json").object["status"] == "completed"
    assert (cli.work / "made.txt").exists()
    assert cli.call("audit", "--verify", run).code == 0
    assert cli.call("replay", run).code == 0
    assert cli.call("events", run).code == 0
    assert run[:4] in cli.call("show", run[:6]).out
    restarted = cli.call("restart", run, "count")
    assert restarted.code == 0, restarted.err


def test_doctor_looks_at_the_database_and_creates_nothing(cli: CommandLine, url: str) -> None:
    found = cli.call("doctor", "--json").object["store"]
    assert (found["exists"], found["schema"], found["problem"]) == (False, None, "")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('cuebook_schema')").fetchone() == (None,)
    cli.call("users", "add", "ann", "--role", "admin")
    assert cli.call("doctor", "--json").object["store"]["schema"] == 1


def test_runs_are_copied_to_a_file_and_back(cli: CommandLine, url: str) -> None:
    cli.call("run", "gated.yml")
    copied = cli.call("store", "copy", url, "copy.db")
    assert (copied.code, copied.out.splitlines()[0]) == (0, "1 run copied, 0 already there, 0 not copied."), copied.err
    assert "use only copy.db" in copied.out
    again = cli.call("store", "copy", url, "copy.db", "--json").object
    assert [one["result"] for one in again["runs"]] == ["present"]
    (wait,) = cli.call("inbox", "--json", "--store", "copy.db").object
    assert cli.call("decide", wait["wait"], "approve", "--store", "copy.db").code == 0
    assert cli.call("store", "copy", "copy.db", "copy.db").code == 2
    assert cli.call("store", "copy", "nothing.db", url).code == 2


def test_a_store_in_a_database_needs_a_shared_key(cli: CommandLine) -> None:
    del cli.environ["CUEBOOK_SIGNING_KEY"]
    refused = cli.call("runs")
    assert refused.code == 2
    assert "needs a signing key" in refused.err
    assert "openssl rand -hex 32" in refused.err
    cli.environ |= {"CUEBOOK_SIGNING_KEY": "env:TEAM_KEY", "TEAM_KEY": "too-short-a-key"}
    assert "fewer than 32 characters" in cli.call("runs").err


@pytest.mark.parametrize("place", ["flag", "file"])
def test_a_password_in_a_place_that_others_can_read_is_refused(cli: CommandLine, url: str, place: str) -> None:
    secret = url.replace("postgres@", f"postgres:{CANARY}@")
    if place == "flag":
        refused = cli.call("runs", "--store", secret)
    else:
        del cli.environ["CUEBOOK_STORE"]
        cli.config.write_text(f'store = "{secret}"\n')
        refused = cli.call("runs")
    assert refused.code == 2
    assert "contains a password" in refused.err
    assert "store_password" in refused.err
    assert CANARY not in refused.out + refused.err


def test_a_password_of_the_environment_works_and_is_never_shown(cli: CommandLine, url: str) -> None:
    cli.environ["CUEBOOK_STORE"] = url.replace("postgres@", f"postgres:{CANARY}@")
    said = [cli.call("run", "gated.yml"), cli.call("runs"), cli.call("doctor"), cli.call("doctor", "--json")]
    cli.environ["CUEBOOK_STORE"] = f"postgresql://postgres:{CANARY}@127.0.0.1:1/nothing"
    said += [cli.call("runs"), cli.call("doctor"), cli.call("run", "gated.yml"), cli.call("--debug", "runs")]
    cli.environ["CUEBOOK_STORE"] = f"postgresql://postgres:{CANARY}@"
    said += [cli.call("runs"), cli.call("doctor")]
    for one in said:
        assert CANARY not in one.out + one.err
    for file in cli.home.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes()


def test_a_password_from_a_handle(cli: CommandLine) -> None:
    cli.environ |= {"CUEBOOK_STORE_PASSWORD": "env:TEAM_PASSWORD", "TEAM_PASSWORD": CANARY}
    assert cli.call("runs").code == 0
    cli.environ["CUEBOOK_STORE_PASSWORD"] = "env:NOT_SET"
    refused = cli.call("runs")
    assert refused.code == 2
    assert "NOT_SET" in refused.err


def test_a_missing_driver_is_one_line_that_says_how_to_get_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuebook.wiring.stores, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="Postgres driver") as caught:
        Wiring(load({"store": url})).open_store()
    assert "cuebook[postgres]" in caught.value.fix
