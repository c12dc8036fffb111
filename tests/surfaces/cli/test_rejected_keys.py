"""A run whose provider rejects its key waits, and goes on when the key was changed: with real processes and a real server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.commands.test_keys import KEYRING
from tests.surfaces.web.test_serve import Serving

OLD, NEW = "sk-old-0123456789", "sk-new-9876543210"


@pytest.fixture
def cli(cli: CommandLine, server: ModelServer) -> CommandLine:
    """With a provider that has a key, whose price is known, and who accepts only the new key."""
    prices = cli.write("prices.toml", '[models."mine/x"]\ninput = 1.0\noutput = 1.0\n')
    cli.config.write_text(
        f'model = "mine/x"\nprices = "{prices}"\n[providers.mine]\nbase_url = "{server.url}"\nkey_env = "MINE_KEY"\n'
    )
    (cli.home / "ring").mkdir()
    (cli.home / "ring" / "test_ring.py").write_text(KEYRING)
    server.accepted = NEW
    return cli


@pytest.fixture
def ringed(cli: CommandLine) -> CommandLine:
    """With a keyring."""
    cli.environ["PYTHONPATH"] += f":{cli.home / 'ring'}"
    cli.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"
    return cli


@pytest.fixture
def servings() -> Iterator[list[Serving]]:
    started: list[Serving] = []
    yield started
    for one in started:
        one.end(signal.SIGKILL)


def used(cli: CommandLine) -> dict[str, Any]:
    total: dict[str, Any] = cli.call("usage", "--json").object["total"]
    return {name: total[name] for name in ("calls", "unknown_costs", "held")}


def test_a_run_waits_and_is_resumed_with_another_key(cli: CommandLine, server: ModelServer) -> None:
    cli.environ["MINE_KEY"] = OLD
    assert cli.call("budget", "set", "--month", "1").code == 0
    ran = cli.call("run", "tea.md", "--json")
    assert (ran.code, ran.object["status"], ran.object["next"]) == (3, "paused", f"cuebook resume {ran.object['run']}")
    run = ran.object["run"]
    shown = cli.call("show", run).out
    assert "mine refused the request: refused by the test" in shown
    assert "The key is MINE_KEY in the environment: change it there, and restart the server or the worker" in shown
    assert used(cli) == {"calls": 0, "unknown_costs": 0, "held": 0}  # a rejected call costs nothing

    again = cli.call("resume", run)
    assert (again.code, len(server.requests)) == (3, 2)
    cli.environ["MINE_KEY"] = NEW
    assert cli.call("resume", run).code == 0
    assert server.keys == [f"Bearer {key}" for key in (OLD, OLD, NEW, NEW, NEW)]
    assert used(cli) == {"calls": 3, "unknown_costs": 0, "held": 0}
    assert cli.call("audit", run, "--verify").code == 0
    assert cli.call("replay", run).code == 0
    stored = cli.store.read_bytes() + b"".join(path.read_bytes() for path in cli.store.parent.glob("cuebook.db-wal"))
    assert OLD.encode() not in stored
    assert NEW.encode() not in stored


def test_a_waiting_run_goes_on_by_itself_when_its_server_was_killed_and_has_another_key(
    cli: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    cli.environ["MINE_KEY"] = OLD
    servings.append(Serving(cli))
    runs = [cli.call("run", "tea.md", "--detach").out.strip() for _ in range(2)]
    for run in runs:
        assert servings[0].until(run, "paused")["reason"] == "secret"
    servings[0].end(signal.SIGKILL)
    cli.environ["MINE_KEY"] = NEW
    servings.append(Serving(cli))
    for run in runs:
        assert servings[1].until(run, "completed", "failed")["status"] == "completed"
    assert used(cli) == {"calls": 6, "unknown_costs": 0, "held": 0}


@pytest.mark.parametrize("kind", ["ModelAsked", "Noted", "WaitOpened"])
def test_a_kill_while_the_key_is_rejected_loses_nothing(cli: CommandLine, server: ModelServer, kind: str) -> None:
    cli.environ["MINE_KEY"] = OLD
    seen: list[str] = []

    def at(event: dict[str, Any]) -> bool:
        seen.append(str(event.get("event", event)))
        return kind in seen[-1]

    assert cli.until("run", "tea.md", kill_at=at), seen
    run = cli.call("runs", "--json").object[0]["run"]
    cli.environ["MINE_KEY"] = NEW
    assert cli.call("resume", run).code == 0
    assert cli.call("show", run, "--json").object["status"] == "completed"
    assert cli.call("audit", run, "--verify").code == 0
    assert used(cli)["calls"] == 3


def test_setting_the_key_again_continues_the_runs_of_a_server_that_is_up(
    ringed: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    cli = ringed
    cli.call("keys", "set", "mine", stdin=f"{OLD}\n")
    servings.append(Serving(cli))
    run = cli.call("run", "tea.md", "--detach").out.strip()
    assert servings[0].until(run, "paused")["reason"] == "secret"
    assert "Set the key again with `cuebook keys set mine`" in cli.call("show", run).out
    said = cli.call("keys", "set", "mine", stdin=f"{NEW}\n")
    assert f"Runs that waited for it can continue: {run}." in said.out
    assert servings[0].until(run, "completed", "failed")["status"] == "completed"


def test_a_key_that_is_missing_for_a_while_fails_no_run(ringed: CommandLine, server: ModelServer) -> None:
    cli = ringed
    cli.call("keys", "set", "mine", stdin=f"{OLD}\n")
    run = cli.call("run", "tea.md", "--json").object["run"]
    cli.call("keys", "remove", "mine")
    missing = cli.call("resume", run)
    assert (missing.code, "MINE_KEY is not set" in missing.err) == (2, True)
    assert cli.call("show", run, "--json").object["status"] == "paused"
    cli.call("keys", "set", "mine", stdin=f"{NEW}\n")
    assert cli.call("resume", run).code == 0


def test_a_run_that_waits_for_a_key_can_use_another_model_or_be_cancelled(
    cli: CommandLine, server: ModelServer
) -> None:
    cli.config.write_text(f'{cli.config.read_text()}\n[providers.open]\nbase_url = "{server.url}"\n')
    cli.environ["MINE_KEY"] = OLD
    first, second = (cli.call("run", "tea.md", "--json").object["run"] for _ in range(2))
    server.accepted = None
    assert cli.call("resume", first, "--model", "open/y").code == 0
    assert server.keys[-1] is None
    assert cli.call("cancel", second).code == 5


def test_a_provider_without_a_key_that_wants_one_fails_the_run(cli: CommandLine, server: ModelServer) -> None:
    cli.config.write_text(f'{cli.config.read_text()}\n[providers.open]\nbase_url = "{server.url}"\n')
    ran = cli.call("run", "tea.md", "--model", "open/y", "--json")
    assert (ran.code, ran.object["status"]) == (1, "failed")
