"""A git repository as the workspace of the command line, and a git that kills Cuebook at a chosen moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any

from tests.support.command_line import CommandLine

CHANGES = """\
name: Changes
steps:
  - {id: one, command: cli bash -c "echo two >> a.txt; printf '\\\\0\\\\1' > b.bin; git log --oneline; ls"}
"""
RULES = '[commands]\nallow = ["*"]\n'


class Repository:
    def __init__(self, cli: CommandLine) -> None:
        self.cli, self.folder = cli, cli.work
        self.worktrees = cli.home / "data" / "cuebook" / "worktrees"
        cli.config.parent.mkdir(parents=True, exist_ok=True)
        (cli.config.parent / "policy.toml").write_text(RULES)
        self.book = cli.home.parent / "books" / "change.yml"
        self.book.parent.mkdir()
        self.book.write_text(CHANGES)
        cli.tea.unlink()
        self.git("init", "-q", "-b", "main")
        self.write("a.txt", "one\n")
        self.commit("first")

    def git(self, *args: str) -> str:
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
        ran = subprocess.run(
            ("git", *who, *args), cwd=self.folder, env=self.cli.environ, check=True, capture_output=True, text=True
        )
        return ran.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def commit(self, words: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", words)

    @property
    def branches(self) -> list[str]:
        return self.git("branch", "--format=%(refname:short)").splitlines()

    def start(self, book: str = CHANGES, *args: str) -> dict[str, Any]:
        self.book.write_text(book)
        ran = self.cli.call("run", str(self.book), "--worktree", "--json", *args)
        return dict(ran.object)

    def shown(self, run: str) -> dict[str, Any]:
        return dict(self.cli.call("show", run, "--json").object)


KILLER = """\
#!/bin/sh
# Runs git, and kills Cuebook before or after the first call of this subcommand.
case " $* " in *" $KILL_AT "*) ;; *) exec "$REAL_GIT" "$@" ;; esac
if [ $KILL_WHEN = before ]; then kill -9 $PPID; exit 1; fi
"$REAL_GIT" "$@"
kill -9 $PPID
"""


def kill(repository: Repository, when: str, at: str, *args: str) -> None:
    """Runs `cuebook` and kills it before or after it calls a subcommand of git."""
    cli = repository.cli
    folder = cli.home.parent / "killer"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(KILLER)
    (folder / "git").chmod(0o755)
    path, git = cli.environ["PATH"], shutil.which("git")
    assert git is not None
    cli.environ.update({"KILL_AT": at, "KILL_WHEN": when, "REAL_GIT": git, "PATH": f"{folder}{os.pathsep}{path}"})
    try:
        process = cli.begin(*args)
        process.communicate()
    finally:
        cli.environ["PATH"] = path
    assert process.returncode == -signal.SIGKILL
