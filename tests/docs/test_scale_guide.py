"""The guide on several machines: its commands, typed in order, give two workers whose load survives the death of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

pytestmark = pytest.mark.needs("postgres", "temporal")

ROOT = DOCS.parent
SERVERS, WORKER, LOAD, DEATH = [
    block.text
    for block in blocks(DOCS / "guides" / "scale.md")
    if any(words in block.text for words in ("make servers", ".servers/env", "kill -9"))
]


@contextmanager
def started(argv: list[str], cli: CommandLine, cwd: Path, says: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program that runs until it is killed, and the first line of what it says once it is up."""
    process = subprocess.Popen(
        argv, cwd=cwd, env=cli.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=1
    )
    assert process.stdout is not None
    try:
        said = ""
        while says not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def shell(script: str) -> list[str]:
    return ["sh", "-ec", script]


def test_two_workers_share_a_load_that_survives_the_death_of_one(bare_cli: CommandLine, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / "examples").symlink_to(ROOT / "examples")
    program = clone / ".venv" / "bin" / "cuebook"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cuebook "$@"\n')
    program.chmod(0o755)
    (clone / ".venv" / "bin" / "activate").write_text(f'export PATH="{clone}/.venv/bin:$PATH"\n')
    assert SERVERS == "make servers\n"
    servers = [sys.executable, str(ROOT / "scripts" / "servers.py"), ".servers"]
    # Fewer and shorter runs than in the guide keep the test short; `exec` makes the shell the worker.
    worker = WORKER.replace("cuebook worker", "exec cuebook worker")
    load = LOAD.replace("$(seq 20)", "$(seq 6)").replace("--n $n", "--n $n --pause 0.5")
    assert load.count("seq 6") == load.count("--pause 0.5") == 1
    settings = LOAD[: LOAD.index("for n")]
    with (
        started(servers, bare_cli, clone, "Press Ctrl-C"),
        started(shell(worker), bare_cli, clone, "offers") as (first, said),
        started(shell(worker), bare_cli, clone, "offers"),
    ):
        assert f"worker {first.pid} offers" in said
        ran = subprocess.run(shell(load), cwd=clone, env=bare_cli.environ, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        runs = ran.stdout.split()[:6]
        assert "kill -9 PID" in DEATH
        os.kill(first.pid, signal.SIGKILL)
        for run in runs:
            followed = f"{settings}cuebook events {run} --follow > /dev/null; cuebook show {run} --json; cuebook audit --verify {run}"
            done = subprocess.run(shell(followed), cwd=clone, env=bare_cli.environ, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert '"status":"completed"' in done.stdout.replace(" ", ""), done.stdout
