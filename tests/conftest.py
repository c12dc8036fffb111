from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuebook.kernel.ports import Store
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.support.requirements import require, skip_reason
from tests.support.shared_stores import SharedStore, open_shared, shared_place

if TYPE_CHECKING:
    from tests.support.command_line import CommandLine
    from tests.support.model_server import ModelServer
    from tests.support.runtime import RuntimeHarness


def pytest_collection_finish() -> None:
    """Keeps the garbage collector away from modules and thousands of tests, which all live as long as the process."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests that need a program that this machine lacks."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints one line for each reason why tests were skipped, with advice."""
    skipped = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("skipped tests, and why")
    for reason, count in sorted(skipped.items()):
        terminalreporter.line(f"{count:>5}  {reason}")


POSTGRES = pytest.param("postgres", marks=pytest.mark.needs("postgres"))


@pytest.fixture(params=["sqlite", "memory", POSTGRES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Runs every test that takes a store with the SQLite, the in-memory and the Postgres store."""
    if request.param == "postgres":
        from cuebook.stores.postgres import PostgresStore
        from tests.support.postgres import server

        with server().schema() as url:
            shared = PostgresStore(url)
            yield shared
            await shared.close()
        return
    made: Store = SqliteStore(tmp_path / "store.db") if request.param == "sqlite" else MemoryStore()
    yield made
    await made.close()


@pytest.fixture(params=["sqlite", POSTGRES])
async def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SharedStore]:
    """A store that other processes of the test open with `open_shared(tmp_path)`."""
    with shared_place(request.param, tmp_path):
        made = open_shared(tmp_path)
        yield made
        await made.close()


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store.db")
    yield made
    await made.close()


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeHarness]:
    """A runtime with real parts, whose policy allows commands without approval."""
    from tests.support.runtime import RuntimeHarness

    made = RuntimeHarness(tmp_path, monkeypatch).open()
    yield made
    await made.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    from tests.support.model_server import ModelServer

    made = ModelServer()
    yield made
    made.close()


@pytest.fixture
def cli(tmp_path: Path, server: ModelServer) -> CommandLine:
    """The command line, with the local server as its model."""
    from tests.support.command_line import CommandLine

    return CommandLine(tmp_path, server.url)


@pytest.fixture
def bare_cli(tmp_path: Path) -> CommandLine:
    """The command line with nothing configured."""
    from tests.support.command_line import CommandLine

    return CommandLine(tmp_path)


@pytest.fixture
def bare_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes to a working folder in a home without any configuration."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home / name))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CUEBOOK_STORE", str(home / "runs.db"))
    monkeypatch.setenv("CUEBOOK_SYNCHRONOUS", "NORMAL")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(folder)
    return folder
