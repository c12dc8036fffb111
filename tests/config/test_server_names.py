"""Tool servers may have the names that playbooks use for them: with spaces, capitals and dots."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cuebook
from cuebook.config import load as load_config
from cuebook.kernel.errors import BadInput
from cuebook.kernel.tool_names import confused, server_of, table_of

SERVER = Path(__file__).parent.parent / "dialects" / "markdown" / "analytics_server.py"
NAMES = ("My Server", "GitHub", "my.server")
STEPS = """# Names

## STEP 1: Spaces

@tool("My Server", get_metrics, {"metric": "a", "period": "1d"})

## STEP 2: Capitals

@tool(GitHub, get_metrics, {"metric": "b", "period": "1d"})

## STEP 3: Dots

@tool(my.server, get_metrics, {"metric": "c", "period": "1d"})
"""
PIPELINE = """name: names
steps:
  - id: spaces
    command: "mcp 'My Server.get_metrics' metric=a period=1d"
  - id: dots
    command: mcp my.server.get_metrics metric=b period=1d
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration folder with three trusted servers."""
    made, work = tmp_path / "config" / "cuebook", tmp_path / "work"
    made.mkdir(parents=True)
    work.mkdir()
    command = f"[{str(sys.executable)!r}, {str(SERVER)!r}]"
    tables = [f"{table_of(name)}\ncommand = {command}\ntrusted = true\n" for name in NAMES]
    (made / "cuebook.toml").write_text("\n".join(tables))
    allowed = ", ".join(f'"{name}.get_*"' for name in NAMES)
    (made / "policy.toml").write_text(f"version = 1\n\n[tools]\nallow = [{allowed}]\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.parent))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(work)
    return made


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("playbook", "first"), [(STEPS, "1"), (PIPELINE, "spaces")], ids=["markdown", "pipeline"])
def test_a_server_is_found_by_the_name_that_a_playbook_uses(playbook: str, first: str) -> None:
    ran = cuebook.run(playbook, unattended=True)
    while ran.status == "awaiting_approval":  # each server is started by a person's consent, once
        assert ran.waits[0].prompt.startswith("Start the tool server")
        ran = ran.decide("approve")
    assert (ran.status, ran.error) == ("completed", None)
    assert ran.outputs[first] == "a over 1d: 120, 118, 131, 245, 122"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('"Other Server"', 'add [mcp."Other Server"] to your cuebook.toml'),
        ("Other", "add [mcp.Other] to your cuebook.toml"),
        ("an.other", 'add [mcp."an.other"] to your cuebook.toml'),
    ],
)
def test_the_advice_for_a_missing_server_can_be_followed(written: str, said: str, own: Path) -> None:
    playbook = f"# Missing\n\n## STEP 1: Call\n\n@tool({written}, find)\n"
    ran = cuebook.run(playbook, unattended=True)
    assert ran.status == "failed"
    assert said in str(ran.error)
    table = said.removeprefix("add ").partition(" to your")[0]
    (own / "cuebook.toml").write_text(f'{table}\ncommand = ["serve"]\n')
    assert list(load_config({}).reach.servers) == [written.strip('"')]


def test_two_servers_whose_tools_could_be_confused_are_refused(own: Path) -> None:
    (own / "cuebook.toml").write_text('[mcp.my]\ncommand = ["a"]\n\n[mcp."my.server"]\ncommand = ["b"]\n')
    with pytest.raises(BadInput, match=r"cuebook.toml:4: .*'my' and 'my.server' cannot be distinguished"):
        load_config({})


@pytest.mark.parametrize("name", ["", " x", "x ", "x.", ".x", "a/b", 'a"b', "a*", "x" * 65, "mcp.x", "ä"])
def test_an_ambiguous_name_is_refused(name: str, own: Path) -> None:
    (own / "cuebook.toml").write_text(f"[mcp.{name!r}]\ncommand = ['serve']\n")
    with pytest.raises(BadInput, match="is not a valid tool server name"):
        load_config({})


def test_a_tool_belongs_to_the_server_with_the_longest_name_that_it_begins_with() -> None:
    assert server_of("my.server.find.all", ["my.server", "other", "my"]) == "my.server"
    assert server_of("nobody.find", ["my.server"]) == ""
    assert confused(["a", "ab.c"]) is None
