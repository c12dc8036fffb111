"""The messages of `make` for people who do not know its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def made(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    # The tests themselves are run by make, whose variables would affect this one.
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", *args], cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    return tmp_path


@pytest.mark.parametrize("target", ["demos", "-k demos", "run.md"])
def test_a_mistyped_command_lists_the_commands(clone: Path, target: str) -> None:
    ran = made(clone, *target.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f'make: there is no command "{target.split()[-1]}".' in ran.stderr
    assert "make demo Install everything needed" in " ".join(ran.stderr.split())


def test_make_alone_shows_the_list(clone: Path) -> None:
    ran = made(clone)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == made(clone, "help").stdout


def test_an_existing_file_is_not_a_mistyped_command(clone: Path) -> None:
    (clone / "notes.md").touch()
    ran = made(clone, "notes.md")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_folder_tests_does_not_satisfy_the_target_tests(clone: Path) -> None:
    (clone / "tests").mkdir()
    assert made(clone, "-n", "tests").stdout == made(clone, "-n", "test").stdout != ""


def test_the_bare_run_hides_the_optional_programs_and_no_others() -> None:
    look = "command -v git; command -v bwrap; command -v chromium; command -v sh >/dev/null && echo found sh"
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bare.py", "sh", "-c", look], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "found sh\n")
