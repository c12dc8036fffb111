"""Runs in a git worktree of their own, with real git and a process for every command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.git_workspace import RULES, Repository, kill
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.needs("git"), pytest.mark.needs("bash")]

NOTHING = "name: Nothing\nsteps:\n  - {id: one, command: cli ls, effect: read}\n"


@pytest.fixture
def repository(cli: CommandLine) -> Repository:
    return Repository(cli)


def test_a_run_changes_only_its_worktree_until_its_diff_is_approved(repository: Repository) -> None:
    cli, ran = repository.cli, repository.start()
    run = ran["run"]
    assert ran["status"] == "awaiting_approval", ran
    assert (repository.read("a.txt"), repository.git("status", "--porcelain")) == ("one\n", "")
    assert (repository.worktrees / run / "a.txt").read_text() == "one\ntwo\n"
    asked = cli.call("inbox", run).out
    assert "Merge the changes in 2 files into main" in asked
    assert "+two" in asked
    assert "Binary files /dev/null and b/b.bin differ" in asked
    assert cli.call("decide", run, "approve").code == 0
    assert repository.read("a.txt") == "one\ntwo\n"
    assert (repository.folder / "b.bin").read_bytes() == b"\0\1"
    assert repository.git("status", "--porcelain") == ""
    assert repository.branches == ["main"]
    assert not (repository.worktrees / run).exists()
    shown = cli.call("show", run).out
    assert "step worktree.changes: Changes in the worktree" in shown
    assert "+two" in shown
    audited = cli.call("audit", run).out
    assert "Merge the changes in 2 files into main" in audited
    assert "did:           call worktree_merge" in audited


def test_denied_changes_stay_on_their_branch_and_a_retry_asks_again(repository: Repository) -> None:
    cli, run = repository.cli, repository.start()["run"]
    denied = cli.call("decide", run, "deny", "--reason", "not yet")
    assert denied.code == 5
    assert f"They are on the branch cuebook/{run}." in denied.out + denied.err
    assert "+two" in repository.git("diff", f"main...cuebook/{run}")
    assert repository.read("a.txt") == "one\n"
    assert f"worktree  {run}" in cli.call("doctor").out
    assert cli.call("retry", run).code == 3
    assert cli.call("decide", run, "approve").code == 0
    assert repository.read("a.txt") == "one\ntwo\n"
    assert f"worktree  {run}" not in cli.call("doctor").out


def test_uncommitted_changes_in_the_same_files_are_never_overwritten(repository: Repository) -> None:
    cli, run = repository.cli, repository.start()["run"]
    repository.write("a.txt", "mine\n")
    failed = cli.call("decide", run, "approve", "--json").object
    assert failed["error"]["code"] == "dirty_workspace"
    assert repository.read("a.txt") == "mine\n"
    repository.git("checkout", "-q", "a.txt")
    repository.write("other.txt", "unrelated\n")
    assert cli.call("retry", run).code == 3
    assert cli.call("decide", run, "approve").code == 0
    assert (repository.read("a.txt"), repository.read("other.txt")) == ("one\ntwo\n", "unrelated\n")


def test_conflicts_merge_nothing_and_a_retry_accepts_how_they_were_resolved(repository: Repository) -> None:
    cli, run = repository.cli, repository.start()["run"]
    repository.write("a.txt", "three\n")
    repository.commit("mine")
    failed = cli.call("decide", run, "approve", "--json").object
    assert failed["error"]["code"] == "merge_conflict"
    assert "a.txt" in failed["error"]["message"]
    assert repository.git("status", "--porcelain") == ""
    repository.git("merge", "-q", "-X", "ours", "--no-edit", f"cuebook/{run}")
    before = repository.git("rev-parse", "HEAD")
    assert cli.call("retry", run).code == 3
    assert cli.call("decide", run, "approve").code == 0
    assert repository.git("rev-parse", "HEAD") == before
    assert repository.branches == ["main"]


def test_changes_are_merged_with_commits_that_were_made_meanwhile(repository: Repository) -> None:
    cli, run = repository.cli, repository.start()["run"]
    repository.write("c.txt", "mine\n")
    repository.commit("mine")
    assert cli.call("decide", run, "approve").code == 0
    assert (repository.read("a.txt"), repository.read("c.txt")) == ("one\ntwo\n", "mine\n")
    assert len(repository.git("log", "-1", "--format=%P").split()) == 2


def test_a_rule_that_denies_writing_a_file_denies_merging_it(repository: Repository) -> None:
    policy = repository.cli.config.parent / "policy.toml"
    policy.write_text(f'{RULES}\n[files]\ndeny = ["write:a.txt"]\n')
    ran = repository.start()
    assert (ran["status"], ran["error"]["code"]) == ("failed", "forbidden")
    assert repository.read("a.txt") == "one\n"


def test_a_run_that_changes_nothing_leaves_nothing_and_asks_nothing(repository: Repository) -> None:
    ran = repository.start(NOTHING)
    assert ran["status"] == "completed"
    assert repository.branches == ["main"]
    assert not (repository.worktrees / ran["run"]).exists()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda one: None, "is not a git repository"),
        (lambda one: subprocess.run(("git", "init", "-q"), cwd=one, check=True), "without a commit"),
    ],
)
def test_a_workspace_without_a_commit_is_refused_before_the_run_starts(
    prepare: Callable[[Path], object], words: str, cli: CommandLine
) -> None:
    prepare(cli.work)
    book = cli.write("book.yml", NOTHING)
    refused = cli.call("run", str(book), "--worktree")
    assert refused.code == 2
    assert words in refused.err
    assert cli.call("runs", "--json").object == []


@pytest.mark.parametrize(
    ("when", "at"),
    [("before", "worktree add"), ("after", "worktree add"), ("after", "write-tree"), ("after", "update-ref")],
)
def test_a_run_killed_while_it_works_finds_its_worktree_again(when: str, at: str, repository: Repository) -> None:
    cli = repository.cli
    kill(repository, when, at, "run", str(repository.book), "--worktree", "--json")
    (row,) = cli.call("runs", "--json").object
    run = row["run"]
    assert cli.call("resume", run).code == 3
    assert repository.branches == [f"cuebook/{run}", "main"]
    assert cli.call("decide", run, "approve").code == 0
    assert repository.read("a.txt") == "one\ntwo\n"
    assert repository.git("log", "--format=%s").splitlines() == [f"Changes of run {run}", "first"]
    assert (repository.branches, len(repository.git("worktree", "list").splitlines())) == (["main"], 1)


@pytest.mark.parametrize(
    ("when", "at"), [("after", "commit-tree"), ("before", "merge"), ("after", "merge"), ("after", "branch")]
)
def test_a_run_killed_during_the_merge_is_merged_once(when: str, at: str, repository: Repository) -> None:
    cli, run = repository.cli, repository.start()["run"]
    repository.write("c.txt", "mine\n")
    repository.commit("mine")
    kill(repository, when, at, "decide", run, "approve")
    assert cli.call("resume", run).code == 0, cli.call("show", run).out
    assert repository.git("log", "--merges", "--format=%s") == f"Merge the changes of run {run}"
    assert repository.read("a.txt") == "one\ntwo\n"
    assert (repository.branches, repository.git("status", "--porcelain")) == (["main"], "")
    assert not (repository.worktrees / run).exists()


GRAPH = """\
id: one
name: One
entry: work
nodes:
  work: {name: Work, instruction: Do it.}
edges: []
x_cuebook:
  workspace: worktree
"""


def test_a_graph_can_ask_for_a_worktree_itself(repository: Repository, server: ModelServer) -> None:
    cli = repository.cli
    cli.config.write_text(f'model = "test/echo-1"\n\n[providers.test]\nbase_url = "{server.url}"\n')
    book = repository.book.with_name("graph.yml")
    book.write_text(GRAPH)
    ran = cli.call("run", str(book), "--json")
    assert ran.code == 0, ran.err
    labels = [step["label"] for step in repository.shown(ran.object["run"])["steps"]]
    assert labels == ["work", "worktree.changes"]
