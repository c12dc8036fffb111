"""The example that runs a command on a second machine after two of three people approved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_the_command_runs_there_only_after_two_votes(tmp_path: Path, decision: str) -> None:
    cuebook = Path(sys.executable).with_name("cuebook")
    env = {**os.environ, "CUEBOOK": str(cuebook), "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", str(ROOT / "examples/second-machine/demo.sh"), decision],
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said, _, laptop = done.stdout.partition("==> What the second machine says")
    before, _, after = said.partition("--as bob")
    assert "written on the laptop" not in before
    assert ("written on the laptop" in after) == (decision == "approve")
    assert ("report.txt" in laptop) == (decision == "approve")
    assert ("finished command run for step 'report'" in laptop) == (decision == "approve")
