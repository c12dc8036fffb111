"""The tables of coding agents in `cuebook.toml`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuebook.config import load
from cuebook.kernel.errors import BadInput
from cuebook.wiring.wiring import Wiring


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file."""
    for name in [name for name in os.environ if name.startswith("CUEBOOK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "cuebook" / "cuebook.toml"
    path.parent.mkdir(parents=True)
    return path


def test_a_table_changes_a_built_in_agent_or_adds_one(own: Path, tmp_path: Path) -> None:
    own.write_text(
        '[agents.opencode]\nhosts = ["api.example.com"]\n[agents.mine]\ncommand = ["mine", "--acp"]\nmemory = "2G"\n'
    )
    catalogue = Wiring(load(folder=tmp_path)).factory.catalogue
    built_in, mine = catalogue.agent("acp/opencode"), catalogue.agent("acp/mine")
    assert (built_in.command, built_in.hosts) == (("opencode", "acp"), ("api.example.com",))
    assert (mine.command, mine.memory, mine.seconds) == (("mine", "--acp"), 2 << 30, 1_800.0)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('command = "mine --acp"', "must be a list of strings"),
        ('hosts = ["*.example.com"]', "is not a host"),
        ('secret_env = { KEY = "the key itself" }', "where the secret is stored"),
        ('secret_files = { "../x" = "file:/x" }', "a path in the agent's home folder"),
        ("seconds = 0", "a number of seconds"),
        ("speed = 1", "no setting 'agents.mine.speed'"),
    ],
)
def test_a_mistake_in_a_table_is_reported_with_its_line(own: Path, tmp_path: Path, table: str, says: str) -> None:
    own.write_text(f"[agents.mine]\n{table}\n")
    with pytest.raises(BadInput, match=r"cuebook\.toml") as refused:
        load(folder=tmp_path)
    assert says in refused.value.message


def test_a_new_agent_needs_a_command(own: Path, tmp_path: Path) -> None:
    own.write_text("[agents.mine]\nseconds = 5\n")
    with pytest.raises(BadInput, match="has no command"):
        Wiring(load(folder=tmp_path)).service()


def test_a_projects_file_cannot_define_an_agent(own: Path, tmp_path: Path) -> None:
    (tmp_path / "cuebook.toml").write_text('[agents.mine]\ncommand = ["mine"]\n')
    with pytest.raises(BadInput, match="may not define a coding agent"):
        load(folder=tmp_path)
