"""A short form of `make fuzz`: runs the command briefly, and checks what it does with a text that fails."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.dialects.markdown.parse import fuzz
from tests.dialects.markdown.strategies import HEAD

ROOT = Path(__file__).resolve().parents[4]


def test_changed_playbooks_end_in_a_document_or_an_invalid_playbook_error() -> None:
    command = [sys.executable, "-m", "tests.dialects.markdown.parse.fuzz", "--seconds", "2", "--seed", "7", "--plain"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "texts held (seed 7)" in ran.stdout


def test_a_text_that_fails_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def holds(text: str) -> None:
        if text != HEAD:
            raise RuntimeError("a defect")

    monkeypatch.setattr(fuzz, "holds", holds)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="a defect"):
        fuzz.by_chance(60, seed=1)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in capsys.readouterr().err
    assert kept.read_bytes()
