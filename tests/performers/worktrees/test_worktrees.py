"""Worktrees against real git: what is committed, shown and refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.performers.worktrees.worktrees import Change, Worktrees

pytestmark = pytest.mark.needs("git")

SECRET = "a-secret-of-some-length"


def git(folder: Path, *args: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(("git", *who, *args), cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def worktrees(repository: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(repository, tmp_path / "home", os.environ, lambda text: text.replace(SECRET, "***"))


def changed(worktrees: Worktrees, name: str = "run1") -> Change:
    change = worktrees.change(name)
    assert isinstance(change, Change), change
    return change


def test_opening_twice_finds_the_same_worktree(worktrees: Worktrees) -> None:
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("kept")
    worktrees.open("run1")
    assert (worktrees.folder("run1") / "new.txt").read_text() == "kept"


def test_the_same_content_is_committed_once(worktrees: Worktrees) -> None:
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("new")
    assert changed(worktrees) == changed(worktrees)
    assert changed(worktrees).files == ("new.txt",)


def test_a_long_diff_is_cut_with_its_true_size_and_without_secrets(worktrees: Worktrees) -> None:
    worktrees.open("run1")
    lines = f"{SECRET}\n" * 2000
    (worktrees.folder("run1") / "long.txt").write_text(lines)
    whole = worktrees.diff(changed(worktrees), 1_000_000)
    assert SECRET not in whole
    assert whole.count("+***") == 2000
    shown = worktrees.diff(changed(worktrees), 1_000)
    assert shown.startswith(" long.txt |")
    assert SECRET[:8] not in shown
    size = int(shown.rpartition("of ")[2].partition(" bytes")[0].replace(",", ""))
    assert len(lines) < size < len(lines) + 3_000
    assert len(shown) < 1_100


def test_a_git_file_that_was_replaced_is_not_used(worktrees: Worktrees, tmp_path: Path) -> None:
    worktrees.open("run1")
    folder = worktrees.folder("run1")
    (folder / ".git").unlink()
    git(folder, "init", "-q")
    trap = tmp_path / "trapped"
    for key in ("core.fsmonitor", "filter.trap.clean"):
        git(folder, "config", key, f"touch {trap}; cat")
    (folder / ".gitattributes").write_text("* filter=trap\n")
    (folder / "new.txt").write_text("new")
    change = changed(worktrees)
    assert change.files == (".gitattributes", "new.txt")
    assert worktrees.merge("run1", change.commit) == "Merged into main."
    assert (worktrees.workspace / "new.txt").read_text() == "new"
    assert not trap.exists()


def test_another_repository_inside_is_refused(worktrees: Worktrees) -> None:
    worktrees.open("run1")
    nested = worktrees.folder("run1") / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "a").write_text("a")
    git(nested, "add", "-A")
    git(nested, "commit", "-q", "-m", "inside")
    for _ in range(2):
        failed = worktrees.change("run1")
        assert isinstance(failed, Failed)
        assert failed.code == "nested_repository"


def test_hooks_do_not_run(worktrees: Worktrees, tmp_path: Path) -> None:
    hooks = worktrees.workspace / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-merge", "pre-commit", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}\n")
        (hooks / name).chmod(0o755)
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("new")
    assert worktrees.merge("run1", changed(worktrees).commit) == "Merged into main."
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home", "repository"]


def test_a_worktree_with_changes_is_not_discarded(worktrees: Worktrees) -> None:
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("new")
    failed = worktrees.discard("run1")
    assert failed is not None
    assert failed.code == "changed"
    assert [one.name for one in worktrees.leftovers()] == ["run1"]


def test_another_branch_is_never_merged_into(worktrees: Worktrees, repository: Path) -> None:
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("new")
    change = changed(worktrees)
    git(repository, "switch", "-q", "-c", "other")
    failed = worktrees.merge("run1", change.commit)
    assert isinstance(failed, Failed)
    assert (failed.code, not (repository / "new.txt").exists()) == ("other_branch", True)


def test_only_a_commit_of_the_worktree_is_shown_for_approval(worktrees: Worktrees, repository: Path) -> None:
    worktrees.open("run1")
    (worktrees.folder("run1") / "new.txt").write_text("new")
    own = changed(worktrees)
    assert worktrees.committed("run1", own.commit) == own
    git(repository, "switch", "-q", "-c", "other", own.commit)
    git(repository, "commit", "-q", "--allow-empty", "-m", "another")
    refused = worktrees.committed("run1", git(repository, "rev-parse", "HEAD"))
    assert isinstance(refused, Failed)
    assert refused.code == "bad_arguments"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x"])
def test_a_name_cannot_lead_out_of_the_folder(name: str, worktrees: Worktrees) -> None:
    with pytest.raises(BadInput):
        worktrees.folder(name)


def test_what_cannot_have_a_worktree_is_refused(repository: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    assert worktrees.problem() is None
    below = repository / "below"
    below.mkdir()
    inner = Worktrees(below, tmp_path / "home", os.environ).problem()
    assert inner is not None
    assert "is a folder of the git repository" in inner.message
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{git(repository, 'rev-parse', 'HEAD')},sub")
    git(repository, "commit", "-q", "-m", "submodule")
    with_submodule = worktrees.problem()
    assert with_submodule is not None
    assert "submodules" in with_submodule.message
    git(repository, "checkout", "-q", "--detach")
    detached = worktrees.problem()
    assert detached is not None
    assert "no branch checked out" in detached.message
