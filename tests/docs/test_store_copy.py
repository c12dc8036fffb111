"""Copying a store as docs/why.md says, while it is in use."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks


def test_a_copy_of_a_store_in_use_is_complete_and_private(cli: CommandLine, tmp_path: Path) -> None:
    (script,) = [block.text for block in blocks(DOCS / "why.md") if ".backup(" in block.text]
    assert cli.call("run", "tea.md").code == 0
    using = sqlite3.connect(cli.store)  # as long as a connection is open, the newest commits stay in the other file
    using.execute("SELECT 1 FROM runs").fetchall()
    for _ in range(3):
        assert cli.call("run", "tea.md").code == 0
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in {"python3": "", "cuebook": "-m cuebook"}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        program.chmod(0o755)
    environ = {**cli.environ, "PATH": f"{programs}:{cli.environ['PATH']}"}
    ran = subprocess.run(["sh", "-ec", script], cwd=cli.store.parent, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    using.close()
    copy = cli.store.with_name("copy.db")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    copied = cli.call("runs", "--store", copy, "--json").object
    assert copied == cli.call("runs", "--json").object
    assert [run["status"] for run in copied] == ["completed"] * 4
    for run in copied:
        assert cli.call("verify", run["run"], "--store", copy).code == 0
