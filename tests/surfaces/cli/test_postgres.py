"""The command line on a store in Postgres: every command works as on a file, and no password appears anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import cuebook.wiring.stores
from cuebook.config import load
from cuebook.kernel.errors import BadInput
from cuebook.stores.postgres.schema import MIGRATIONS
from cuebook.wiring.wiring import Wiring
from tests.support.command_line import CommandLine, finished
from tests.support.postgres import server
from tests.support.runtime import GATED

pytestmark = pytest.mark.needs("postgres")

KEY = "0123456789abcdef" * 4
CANARY = "kanarie-4711-secret"
DRIVING = [("worker",), ("serve", "--port", "0"), ("run", "gated.yml")]


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
    assert cli.call("doctor", "--json").object["store"]["schema"] == len(MIGRATIONS)


def test_runs_are_copied_to_a_file_and_back(cli: CommandLine, url: str) -> None:
    cli.call("run", "gated.yml")
    copy = str(cli.work.parent / "copy.db")  # Landlock cannot hide a file in the workspace
    copied = cli.call("store", "copy", url, copy)
    assert (copied.code, copied.out.splitlines()[0]) == (0, "1 run copied, 0 already there, 0 not copied."), copied.err
    assert f"use only {copy}" in copied.out
    again = cli.call("store", "copy", url, copy, "--json").object
    assert [one["result"] for one in again["runs"]] == ["present"]
    (wait,) = cli.call("inbox", "--json", "--store", copy).object
    assert cli.call("decide", wait["wait"], "approve", "--store", copy).code == 0
    earlier = cli.call("store", "copy", copy, url)
    assert (earlier.code, "copy to a new file or an empty database" in earlier.err) == (1, True), earlier.err
    assert cli.call("store", "copy", copy, copy).code == 2
    assert cli.call("store", "copy", "nothing.db", url).code == 2


def test_a_run_whose_folder_has_moved_continues_at_its_new_place(cli: CommandLine, url: str) -> None:
    cli.call("run", "gated.yml")
    (wait,) = cli.call("inbox", "--json").object
    copy = str(cli.work.parent / "copy.db")
    cli.call("store", "copy", url, copy)
    moved = cli.work.parent / "moved"
    cli.work.rename(moved)
    cli.work.mkdir()
    refused = cli.call("decide", wait["wait"], "approve", "--store", copy, "--workspace", str(moved / "nowhere"))
    assert (refused.code, "is not a folder" in refused.err) == (2, True)
    assert cli.call("inbox", "--json", "--store", copy).object[0]["wait"] == wait["wait"]
    done = cli.call("decide", wait["wait"], "approve", "--store", copy, "--workspace", str(moved))
    # The approval was bound to the old folder, so what would happen now is shown and decided once more.
    assert (done.code, "approval" in done.err) == (3, True), done.err
    (again,) = cli.call("inbox", "--json", "--store", copy).object
    done = cli.call("decide", again["wait"], "approve", "--store", copy, "--workspace", str(moved))
    assert done.code == 0, done.err
    assert (moved / "made.txt").exists()
    run = cli.call("runs", "--json", "--store", copy).object[0]["run"]
    assert cli.call("audit", "--verify", run, "--store", copy).code == 0


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


def test_a_password_in_an_argument_of_a_copy_is_refused_by_its_name(cli: CommandLine, url: str) -> None:
    secret = url.replace("postgres@", f"postgres:{CANARY}@")
    for words, name in (((secret, "copy.db"), "FROM"), (("copy.db", secret), "TO")):
        refused = cli.call("store", "copy", *words)
        assert (refused.code, refused.err.startswith(f"cuebook: {name}: the URL of the store")) == (2, True)
        assert CANARY not in refused.err


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


@pytest.mark.parametrize("place", ["url", "variable"])
def test_a_password_that_a_command_prints_is_masked(cli: CommandLine, url: str, place: str) -> None:
    if place == "url":
        cli.environ["CUEBOOK_STORE"] = url.replace("postgres@", f"postgres:{CANARY}@")
    else:
        cli.environ["PGPASSWORD"] = CANARY
    cli.write("note.txt", f"the password is {CANARY}\n")
    cli.write("prints.yml", "name: Prints\nsteps:\n  - {id: a, command: cli cat note.txt, effect: read}\n")
    ran = cli.call("run", "prints.yml", "--json")
    assert ran.code == 0, ran.err
    said = [ran, cli.call("show", ran.object["run"], "--json"), cli.call("events", ran.object["run"])]
    assert all(CANARY not in one.out + one.err for one in said)
    assert "[secret store_password]" in said[1].out


@pytest.mark.parametrize("name", ["STORE_PASSWORD", "SIGNING_KEY", "TEMPORAL_API_KEY"])
def test_a_secret_in_place_of_its_handle_is_never_shown(cli: CommandLine, name: str) -> None:
    cli.environ[f"CUEBOOK_{name}"] = CANARY
    for args in (*DRIVING, ("runs",), ("doctor",), ("doctor", "--json"), ("--debug", "runs")):
        refused = cli.call(*args)
        assert refused.code == 2
        assert f"CUEBOOK_{name}: expected the handle of a secret" in refused.out + refused.err
        assert CANARY not in refused.out + refused.err
    cli.config.write_text(f'[temporal]\napi_key = "{CANARY}"\n')
    found = cli.call("doctor", "--json")
    assert CANARY not in found.out + found.err
    setting = "temporal.api_key" if name.startswith("TEMPORAL") else name.lower()
    assert found.object["settings"][setting] == {"value": None, "origin": f"CUEBOOK_{name}"}
    assert [one.partition(": ")[0] for one in found.object["missing"][:2]] == [f"{cli.config}:2", f"CUEBOOK_{name}"]
    assert found.object["ready"] is False


@pytest.mark.parametrize(
    "store",
    [
        f"postgres://postgres:12/{CANARY}@127.0.0.1:1/x",
        f"host=127.0.0.1 port=1 password={CANARY}",
        f"postgresql://postgres@127.0.0.1:1/x?sslpassword={CANARY}",
    ],
)
def test_a_password_in_an_unusual_place_is_never_shown(cli: CommandLine, store: str) -> None:
    flagged = [("runs",), ("doctor",), ("worker",), ("run", "gated.yml")]
    said = [cli.call(*args, "--store", store) for args in flagged]
    said += [cli.call("mcp", "--store", store, "install", "--client", "cursor")]
    said += [cli.call("store", "copy", store, "other.db"), cli.call("store", "copy", "other.db", store)]
    cli.environ["CUEBOOK_STORE"] = store
    said += [cli.call(*args) for args in (*DRIVING, ("runs",), ("doctor",), ("doctor", "--json"), ("--debug", "runs"))]
    for one in said:
        assert one.code == 2, one.err
        assert CANARY not in one.out + one.err
    for file in (*cli.home.rglob("*"), *cli.work.rglob("*")):
        assert CANARY not in file.name
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
    assert f"'cuebook-{cuebook.__version__}-py3-none-any.whl[postgres]'" in caught.value.fix


# --- stores that cannot be used ---------------------------------------------------------------------------


@pytest.fixture
def locked() -> Iterator[str]:
    """The URL of a database whose user needs a password, without it."""
    rule = "host all locked 127.0.0.1/32 scram-sha-256\n"
    rules = server().data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(rule + before)
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(sql.SQL("CREATE ROLE locked LOGIN SUPERUSER PASSWORD {}").format(CANARY))
    with server().schema() as url:
        yield url.replace("postgres@", "locked@")
    rules.write_text(before)
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute("DROP ROLE locked")
        connection.execute("SELECT pg_reload_conf()")


def assert_refused(cli: CommandLine, args: Sequence[str], *said: str) -> None:
    """One line that contains this, and nothing is created."""
    before = cli.files()
    refused = cli.call(*args)
    assert refused.code == 2, refused.err
    assert len(refused.err.splitlines()) == 1, refused.err
    assert all(words in refused.err for words in said), refused.err
    assert CANARY not in refused.out + refused.err
    assert cli.files() == before


@pytest.mark.parametrize("args", DRIVING)
def test_a_store_that_cannot_be_used_is_one_line(cli: CommandLine, url: str, args: tuple[str, ...]) -> None:
    at = f"postgres:{CANARY}@127.0.0.1:{server().port}"
    for store, said in {
        f"postgresql://postgres:{CANARY}@": "not a valid Postgres URL",
        f"postgresql://postgres:{CANARY}@127.0.0.1:1/x": "cannot be reached",
        f"postgresql://postgres:{CANARY}@nowhere.invalid/x": "cannot be reached",
        f"postgresql://{at}/not-there": "has no such database",
    }.items():
        cli.environ["CUEBOOK_STORE"] = store
        assert_refused(cli, args, said)


@pytest.mark.parametrize("args", DRIVING)
def test_a_store_of_a_newer_version_is_one_line(cli: CommandLine, url: str, args: tuple[str, ...]) -> None:
    cli.call("users", "add", "ann", "--role", "admin")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE cuebook_schema SET version = version + 1")
    assert_refused(cli, args, "schema version", "Upgrade Cuebook")


@pytest.mark.parametrize("args", DRIVING)
def test_a_wrong_password_is_one_line(cli: CommandLine, locked: str, args: tuple[str, ...]) -> None:
    wrong = f"{CANARY}-wrong"
    cli.environ["CUEBOOK_STORE"] = locked.replace("locked@", f"locked:{wrong}@")
    assert_refused(cli, args, "refused the user name or password", "store_password")
    cli.environ["CUEBOOK_STORE"] = locked
    assert_refused(cli, args, "refused the user name or password", "store_password")


@pytest.mark.parametrize("args", DRIVING)
def test_a_missing_driver_is_one_line(cli: CommandLine, args: tuple[str, ...]) -> None:
    missing = cli.work.parent / "missing" / "sitecustomize.py"
    missing.parent.mkdir()
    missing.write_text("import sys\nsys.modules['psycopg'] = None\n")
    path = f"{missing.parent}{os.pathsep}{cli.environ['PYTHONPATH']}"
    cli.environ |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    cli.call = cli.start  # type: ignore[method-assign]
    assert_refused(cli, args, "needs the Postgres driver", ".whl[postgres]")


def test_a_worker_never_shows_its_password(cli: CommandLine, locked: str) -> None:
    """Not in its arguments or messages, nor to its commands or in what they leave."""
    cli.environ |= {"CUEBOOK_STORE": locked, "CUEBOOK_STORE_PASSWORD": "env:TEAM_PASSWORD", "TEAM_PASSWORD": CANARY}
    cli.write("env.yml", "name: E\nsteps:\n  - {id: a, command: cli sh -c 'env > seen', approval: required}\n")
    assert cli.call("run", "env.yml").code == 3
    (wait,) = cli.call("inbox", "--json").object
    worker = cli.begin("worker")
    try:
        assert worker.stderr is not None
        said = [worker.stderr.readline()]
        assert "offers workspace:" in said[0]
        shown = cli.call("decide", wait["wait"], "approve")
        assert shown.code == 0, shown.err
        arguments = Path(f"/proc/{worker.pid}/cmdline")
        assert not arguments.exists() or CANARY.encode() not in arguments.read_bytes()
    finally:
        worker.terminate()
        ran = finished(worker)
    assert ran.code == 0
    assert (cli.work / "seen").exists()
    assert CANARY not in "".join(said) + ran.out + ran.err + shown.out + shown.err
    for file in cli.home.parent.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file


def test_a_detached_run_waits_for_a_worker_and_is_not_interrupted(cli: CommandLine) -> None:
    run = cli.call("run", "gated.yml", "--detach").out.strip()
    assert cli.call("runs", "--json").object[0]["interrupted"] is False
    shown = cli.call("show", run).out
    assert "pending" in shown
    assert f"a worker that offers workspace:{cli.work.resolve()}" in " ".join(shown.split())
    assert "resume" not in shown
    assert cli.call("inbox", "--json").object == []


def test_a_run_that_never_began_is_cancelled_at_once_from_any_folder(cli: CommandLine) -> None:
    run = cli.call("run", "gated.yml", "--detach").out.strip()
    cli.environ["CUEBOOK_WORKSPACE"] = str(cli.work.parent)
    cancelled = cli.call("cancel", run)
    assert cancelled.code == 5, cancelled.err
    assert cli.call("show", run, "--json").object["status"] == "cancelled"
    assert cli.call("audit", "--verify", run).code == 0
    assert not (cli.work / "made.txt").exists()
