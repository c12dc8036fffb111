"""The performers of a process: its workspace, protected paths, and tools that cannot be loaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cuebook
from cuebook.config import config_folder, load
from cuebook.kernel.effects import CallTool, Program, RunCommand
from cuebook.kernel.errors import BadInput, Elsewhere
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import Settings
from cuebook.performers.commands import CommandPerformer
from cuebook.stores.memory import MemoryStore
from cuebook.wiring.performers import LazyPerformers
from cuebook.wiring.tools import Tools
from cuebook.wiring.wiring import Wiring
from tests.support.command_line import CommandLine


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in [name for name in os.environ if name.startswith(("CUEBOOK_", "XDG_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return {"HOME": str(tmp_path / "home")}


def wired(environ: dict[str, str], folder: Path) -> Wiring:
    folder.mkdir(parents=True, exist_ok=True)
    return Wiring(load(environ=environ, folder=folder))


def test_a_workspace_must_not_contain_the_users_configuration(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "etc")
    monkeypatch.setenv("XDG_CONFIG_HOME", environ["XDG_CONFIG_HOME"])
    own = config_folder(environ)
    own.mkdir(parents=True)
    for folder in (own, own.parent):
        refused = wired(environ, folder).factory.workspace.unfit(folder)
        assert refused is not None
        assert (refused.code, "your Cuebook configuration" in refused.message) == ("no_workspace", True)
    assert wired(environ, tmp_path / "work").factory.workspace.unfit(tmp_path / "work") is None


async def test_a_run_and_the_gate_know_the_real_path_of_the_workspace(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    wiring = wired(environ | {"CUEBOOK_MODEL": "ollama/x"}, tmp_path / "link")
    assert wiring.settings().workspace == str((tmp_path / "real").resolve())

    def program(state: object) -> Program[Any]:
        return (yield RunCommand(("ls",), reads_only=True)).exit_code

    service = wiring.service(MemoryStore(), lambda row, text, inputs, options: program)
    try:
        elsewhere = msgspec.structs.replace(wiring.settings(), workspace="/elsewhere")
        row = await service.start_program("any text", "mine", {}, elsewhere)
        with pytest.raises(Elsewhere, match="belongs to /elsewhere"):
            await service.drive(row.id)
    finally:
        await service.close()


async def test_a_service_drives_the_programs_it_is_given(environ: dict[str, str], tmp_path: Path) -> None:
    def program(state: object) -> Program[Any]:
        return "done"
        yield

    service = wired(environ, tmp_path / "work").service(MemoryStore(), lambda row, text, inputs, options: program)
    try:
        row = await service.start_program("any text", "mine", {}, Settings(model="test/none"))
        assert (await service.drive(row.id)).status == "completed"
    finally:
        await service.close()


async def test_commands_cannot_change_cuebooks_own_files(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, list[Path]] = {}
    made = CommandPerformer.__init__

    def noted(self: CommandPerformer, *args: object, **more: object) -> None:
        kept["fixed"] = list(more["fixed"])  # type: ignore[call-overload]
        made(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(CommandPerformer, "__init__", noted)
    wiring = wired(environ, tmp_path / "work")
    _ = wiring.factory.performers(wiring.performer())[RunCommand]
    assert kept["fixed"] == [Path(sys.prefix), Path(str(cuebook.__file__)).parent, config_folder(environ)]


def test_a_tool_that_cannot_be_loaded_does_not_affect_other_work(cli: CommandLine) -> None:
    (cli.home / "mods").mkdir()
    (cli.home / "mods" / "broken_tools.py").write_text("raise SystemExit('not today')\n")
    cli.environ["PYTHONPATH"] += f":{cli.home / 'mods'}"
    cli.config.write_text(
        cli.config.read_text()
        + '[tools]\ngone = "no_such:tool"\nbroken = "broken_tools:x"\nodd = "os:path"\nmin = "builtins:min"\n'
    )
    assert cli.call("run", "tea.md").code == 0
    for words in (["runs"], ["inbox"], ["policy", "test", "tool", "Read"]):
        ran = cli.call(*words)
        assert (words, ran.code, ran.err) == (words, 0, "")


async def test_a_tool_that_cannot_be_loaded_says_so_when_it_is_called(environ: dict[str, str], tmp_path: Path) -> None:
    own = config_folder(environ)
    own.mkdir(parents=True)
    (own / "cuebook.toml").write_text('[tools]\ngone = "no_such_module:tool"\nhere = "os.path:basename"\n')
    wiring = wired(environ, tmp_path / "work")
    wiring.factory.performers(wiring.performer())
    described = await wiring.factory.tools.describe(CallTool("gone", {"any": 1}), Settings())
    assert isinstance(described, Failed)
    assert described.code == "tool_unavailable"
    assert "No module named 'no_such_module'" in described.message
    assert "correct [tools]" in described.fix


def test_a_mistake_in_the_configured_tools_is_reported_before_a_run(environ: dict[str, str], tmp_path: Path) -> None:
    own = config_folder(environ)
    own.mkdir(parents=True)
    (own / "cuebook.toml").write_text('[tools]\nRead = "os.path:basename"\n')
    with pytest.raises(BadInput, match="There are two tools named 'Read'"):
        wired(environ, tmp_path / "work").service(MemoryStore())


async def test_a_service_closes_its_own_tools_after_a_preview(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Tools] = []

    async def close(self: Tools) -> None:
        closed.append(self)

    monkeypatch.setattr(Tools, "close", close)
    wiring = wired(environ, tmp_path / "work")
    service = wiring.service(MemoryStore())
    own = wiring.factory.tools
    assert wiring.preview_performers[CallTool] is not own
    await service.close()
    assert closed == [own]


async def test_a_service_whose_tools_were_not_used_has_none_to_close(environ: dict[str, str], tmp_path: Path) -> None:
    wiring = wired(environ, tmp_path / "work")
    made: list[str] = []
    performers = LazyPerformers({CallTool: lambda: made.append("tools")})
    assert list(performers) == [CallTool]
    await performers.close()
    await wiring.service(MemoryStore()).close()
    assert made == []
