"""The example that watches a page of a shop in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("bubblewrap")]


def test_it_orders_only_after_an_approval(tmp_path: Path) -> None:
    cuebook = Path(sys.executable).with_name("cuebook")
    env = {**os.environ, "CUEBOOK": str(cuebook), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", str(ROOT / "examples/watch/demo.sh"), "approve"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[input text name = Ada]" in done.stderr
    assert "asks for approval" in done.stderr
    assert done.stdout.rstrip().endswith("a teapot for Ada")
