"""The worktrees of one repository: one for each run that asks for it, on a branch of its own.

Everything can be repeated: a worktree is found again by its name, an unchanged commit is made once, and a commit that is
already part of the branch is not merged again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.performers.worktrees.git import Git, GitError, error_of

_NAME = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
_OLDEST = (2, 38)
"""The first version of git that can merge without touching a working folder."""
_SHOWN = 200_000
"""How many bytes of a diff are kept."""
_EDGE = 16_384
"""How much more is read, so that a secret at the end of what is kept is recognised."""
_SUBMODULE = "160000 "
_COMPARED = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_RETRY = "then retry the run"


class Origin(msgspec.Struct, frozen=True):
    """Where a worktree comes from, and where its changes go."""

    repository: str
    into: str
    """The branch that was checked out."""
    base: str
    """The commit that it started from."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has changed in its worktree, as one commit on top of its base."""

    commit: str
    """The base itself if nothing changed."""
    base: str
    into: str
    branch: str
    files: tuple[str, ...] = ()


class Leftover(msgspec.Struct, frozen=True):
    """A worktree that still exists."""

    name: str
    folder: str
    repository: str


class Worktrees:
    """Creates, compares and merges the worktrees of the repository in one workspace. Its methods block."""

    def __init__(
        self,
        workspace: Path,
        home: Path,
        environ: Mapping[str, str],
        masked: Callable[[str], str] = str,
    ) -> None:
        """`home` is the folder for worktrees. `masked` masks the secrets in a text."""
        self.workspace = Path(os.path.realpath(workspace))
        self._home = home
        self._masked = masked
        self._environ = environ

    def folder(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise BadInput(f"A worktree cannot be named '{name[:60]}'.")
        return Path(os.path.realpath(self._home)) / name

    def opened(self, name: str) -> Path | Failed:
        """The folder of a worktree that exists here."""
        folder = self.folder(name)
        if folder.is_dir():
            return folder
        return Failed(
            "no_worktree",
            f"The worktree {folder} is gone: it was merged or removed, or it is on another machine.",
            fix="Start the playbook again.",
        )

    @property
    def store(self) -> Path:
        """The folder with the repository's objects, which commands in a worktree may read."""
        return Path(os.path.realpath(self.workspace / self._git().said("rev-parse", "--git-common-dir")))

    def problem(self) -> Failed | None:
        """Why runs cannot have worktrees here."""
        git = self._git()
        if not git.is_installed:
            return Failed("no_git", "A worktree needs git, which is not installed.", fix="Install git 2.38 or newer.")
        version = re.search(r"(\d+)\.(\d+)", git.found("version"))
        if version is None or (int(version[1]), int(version[2])) < _OLDEST:
            return Failed("no_git", "A worktree needs git 2.38 or newer.", fix="Upgrade git.")
        top = git.found("rev-parse", "--show-toplevel")
        without = "or run without a worktree"
        if not top:
            return self._unfit("is not a git repository", f"Run `git init` there and commit, {without}.")
        if os.path.realpath(top) != str(self.workspace):
            return self._unfit(f"is a folder of the git repository {top}", f"Set `workspace` to {top}, {without}.")
        if not git.found("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
            return self._unfit("is a git repository without a commit", f"Commit something, {without}.")
        if not git.found("symbolic-ref", "--quiet", "HEAD"):
            return self._unfit("has no branch checked out", f"Run `git switch BRANCH` there, {without}.")
        if any(line.startswith(_SUBMODULE) for line in git.said("ls-tree", "-r", "HEAD").splitlines()):
            return self._unfit("has submodules, which worktrees do not support", f"Remove them, {without}.")
        return None

    def open(self, name: str) -> tuple[Origin, bool]:
        """Creates the worktree, or finds it. Returns whether files in the workspace have uncommitted changes."""
        folder, git = self.folder(name), self._git()
        with git.alone(self._lock):
            origin = self._origin(name)
            if origin is None:
                origin = Origin(
                    str(self.workspace), git.said("symbolic-ref", "--short", "HEAD"), git.said("rev-parse", "HEAD")
                )
                _write(self._record(name), msgspec.json.encode(origin))
            marker = self.store / "worktrees" / name
            if (marker / "locked").exists() or not folder.is_dir():  # git was interrupted while it created the worktree
                git.tried("worktree", "remove", "--force", "--force", str(folder))
                shutil.rmtree(folder, ignore_errors=True)
                git.said("worktree", "prune")
                branch = branch_of(name)
                known = git.holds("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
                at = (str(folder), branch) if known else ("-b", branch, str(folder), origin.base)
                git.said("worktree", "add", *at)
            changed = git.said("status", "--porcelain", "--untracked-files=no")
        return origin, bool(changed)

    def change(self, name: str) -> Change | Failed:
        """Commits what is in the worktree to its branch."""
        folder = self.opened(name)
        origin = self._origin(name)
        if isinstance(folder, Failed) or origin is None:
            return folder if isinstance(folder, Failed) else _no_record(name)
        git = self._git()
        with git.alone(self._lock):
            # The index and the `.git` file in the worktree are not used: whatever ran there may have changed them.
            index = self._home / f"{name}.index"
            index.unlink(missing_ok=True)
            env = {"GIT_DIR": str(self.store), "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
            inside = Git(folder, self._environ)
            try:
                inside.said("read-tree", origin.base, env=env)
                inside.said("add", "--all", env=env)
                nested = [
                    line.partition("\t")[2]
                    for line in inside.said("ls-files", "--stage", env=env).splitlines()
                    if line.startswith(_SUBMODULE)
                ]
                tree = inside.said("write-tree", env=env)
            finally:
                index.unlink(missing_ok=True)
            if nested:
                return Failed(
                    "nested_repository",
                    f"The worktree contains another git repository, which cannot be merged: {', '.join(nested[:10])}.",
                    fix=f"Remove it from {folder}, {_RETRY}.",
                )
            commit = self._commit(git, name, origin, tree)
        return self._described(git, name, origin, commit)

    def merge(self, name: str, commit: str) -> str | Failed:
        """Merges the commit into the branch that was checked out, and removes the worktree. Returns what happened."""
        origin = self._origin(name)
        git = self._git()
        with git.alone(self._lock):
            if origin is None:
                return _no_record(name)
            into = f"refs/heads/{origin.into}"
            if git.holds("merge-base", "--is-ancestor", commit, into):
                self._remove(git, name)
                return f"Merged into {origin.into}."
            failed = self._merged(git, name, origin, commit)
            if failed is not None:
                return failed
            self._remove(git, name)
        return f"Merged into {origin.into}."

    def discard(self, name: str) -> Failed | None:
        """Removes a worktree without changes, and its branch."""
        change = self.change(name) if self.folder(name).is_dir() else None
        if isinstance(change, Failed):
            return change
        if change is not None and change.commit != change.base:
            return Failed("changed", f"The worktree {self.folder(name)} has changes, so it was not removed.")
        git = self._git()
        with git.alone(self._lock):
            self._remove(git, name)
        return None

    def committed(self, name: str, commit: str) -> Change | Failed:
        """A change that was committed before."""
        origin = self._origin(name)
        if origin is None:
            return _no_record(name)
        git = self._git()
        if commit != origin.base and git.found("rev-list", "--parents", "-1", commit) != f"{commit} {origin.base}":
            return Failed("bad_arguments", f"{commit} is not a commit of the worktree of run {name}.")
        return self._described(git, name, origin, commit)

    def diff(self, change: Change, limit: int = _SHOWN) -> str:
        """A summary by file and then the differences, with secrets masked; if it is longer, the beginning and its true size."""
        git = self._git()
        stat, _ = git.beginning(limit, *_COMPARED, "--stat=120", change.base, change.commit)
        patch, size = git.beginning(limit + _EDGE, *_COMPARED, change.base, change.commit)
        text = self._masked(f"{stat.decode('utf-8', 'replace')}\n{patch.decode('utf-8', 'replace')}")
        size += len(stat) + 1
        data = text.encode("utf-8", "replace")
        if len(data) <= limit:
            return text
        return f"{data[:limit].decode('utf-8', 'ignore')}\n[cut: the first {limit:,} of {size:,} bytes are shown]\n"

    def leftovers(self) -> Iterator[Leftover]:
        """The worktrees of all repositories that still exist."""
        for record in sorted(self._home.glob("*.json")):
            name = record.stem
            origin = self._origin(name) if _NAME.fullmatch(name) else None
            if origin is not None and self.folder(name).is_dir():
                yield Leftover(name, str(self.folder(name)), origin.repository)

    # --- inside ---

    def _git(self) -> Git:
        return Git(self.workspace, self._environ)

    @property
    def _lock(self) -> Path:
        return self._home / f"{sha256(str(self.workspace).encode()).hexdigest()[:16]}.lock"

    def _record(self, name: str) -> Path:
        return self._home / f"{name}.json"

    def _origin(self, name: str) -> Origin | None:
        try:
            return msgspec.json.decode(self._record(name).read_bytes(), type=Origin)
        except (OSError, msgspec.DecodeError):
            return None

    def _unfit(self, what: str, fix: str) -> Failed:
        return Failed("no_repository", f"A run cannot have a worktree here: {self.workspace} {what}.", fix=fix)

    def _commit(self, git: Git, name: str, origin: Origin, tree: str) -> str:
        if git.said("rev-parse", f"{origin.base}^{{tree}}") == tree:
            return origin.base
        branch = f"refs/heads/{branch_of(name)}"
        tip = git.found("rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}")
        same = bool(tip) and git.said("rev-parse", f"{tip}^{{tree}}") == tree
        if same and git.found("rev-parse", "--verify", "--quiet", f"{tip}^") == origin.base:
            return tip
        commit = git.said("commit-tree", tree, "-p", origin.base, "-m", f"Changes of run {name}")
        git.said("update-ref", branch, commit)
        return commit

    def _described(self, git: Git, name: str, origin: Origin, commit: str) -> Change:
        known: dict[str, Any] = {"base": origin.base, "into": origin.into, "branch": branch_of(name)}
        if commit == origin.base:
            return Change(commit=commit, **known)
        names = git.said(*_COMPARED, "--name-only", "-z", origin.base, commit).encode("utf-8", "surrogateescape")
        files = tuple(one.decode("utf-8", "replace") for one in names.split(b"\0") if one)
        return Change(commit=commit, files=files, **known)

    def _merged(self, git: Git, name: str, origin: Origin, commit: str) -> Failed | None:
        again = _RETRY
        head = git.found("symbolic-ref", "--short", "--quiet", "HEAD")
        if head != origin.into:
            return Failed(
                "other_branch",
                f"{self.workspace} is on {head or 'no branch'}, but the changes belong to {origin.into}.",
                fix=f"Run `git switch {origin.into}` there, {again}.",
            )
        here = git.said("rev-parse", "HEAD")
        target = commit
        if not git.holds("merge-base", "--is-ancestor", here, commit):
            tried = git.tried("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", here, commit)
            tree, *files = tried.stdout.decode("utf-8", "replace").split("\0")
            if tried.returncode == 1:
                named = [one for one in files if one]
                return Failed(
                    "merge_conflict",
                    f"The changes conflict with {origin.into} in {', '.join(named[:20])}. Nothing was merged.",
                    fix=f"Run `git merge {branch_of(name)}` in {self.workspace}, resolve the conflicts and commit, {again}.",
                    details={"files": named[:200]},
                )
            if tried.returncode:
                raise GitError(f"`git merge-tree` failed: {error_of(tried)}")
            words = f"Merge the changes of run {name}"
            target = git.said("commit-tree", tree.strip(), "-p", here, "-p", commit, "-m", words)
        # From here on, git does all or nothing, unless the machine stops.
        ended = git.tried("merge", "--ff-only", "--quiet", target)
        if not ended.returncode:
            return None
        words = error_of(ended)
        if "would be overwritten" in words:
            files = [line.strip() for line in words.splitlines() if line.startswith("\t")]
            return Failed(
                "dirty_workspace",
                f"Files in {self.workspace} have uncommitted changes that the merge would overwrite: {', '.join(files[:20])}.",
                fix=f"Commit, stash or remove them, {again}.",
                details={"files": files[:200]},
            )
        return Failed("merge_failed", f"The changes could not be merged: {words}", fix=f"Correct that, {again}.")

    def _remove(self, git: Git, name: str) -> None:
        folder = self.folder(name)
        git.tried("worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        git.tried("worktree", "prune")
        git.tried("branch", "-D", branch_of(name))


def branch_of(name: str) -> str:
    return f"cuebook/{name}"


def _no_record(name: str) -> Failed:
    return Failed(
        "no_worktree", f"There is no record of the worktree of run {name} here.", fix="Start the playbook again."
    )


def _write(file: Path, data: bytes) -> None:
    made = file.with_suffix(".new")
    made.write_bytes(data)
    made.replace(file)
