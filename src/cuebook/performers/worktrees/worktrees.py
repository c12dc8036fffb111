"""The worktrees of one repository: one for each run that asks for it, and one for each of its parallel branches that does.
Each is on a git branch of its own.

Everything can be repeated: a worktree is found again by its name, an unchanged commit is made once, and a commit that is
already part of the branch is not merged again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.performers.worktrees.git import Git, GitError, error_of

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}", re.ASCII)
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
    merged: bool = False
    """For a parallel branch: whether its changes are in the worktree that it came from."""
    conflicts: tuple[str, ...] = ()
    """For a parallel branch: the files with conflicts that someone has to resolve in its worktree."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has changed in its worktree, as one commit on top of its base."""

    commit: str
    """The base itself if nothing changed."""
    base: str
    into: str
    branch: str
    files: tuple[str, ...] = ()


class Joined(msgspec.Struct, frozen=True):
    """What came of merging the worktree of a parallel branch."""

    files: tuple[str, ...] = ()
    """The files that the branch changed, if it was merged."""
    conflicts: tuple[str, ...] = ()
    """The files with conflicts; then nothing was merged."""
    marked: tuple[str, ...] = ()
    """Those of them that still contain the marks of a conflict."""
    onto: str = ""
    """The commit with which they conflict."""


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
        git = self._git()
        with git.alone(self._lock):
            origin = self._origin(name)
            if origin is None:
                origin = Origin(
                    str(self.workspace), git.said("symbolic-ref", "--short", "HEAD"), git.said("rev-parse", "HEAD")
                )
                _write(self._record(name), msgspec.json.encode(origin))
            self._create(git, name, origin.base)
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
            commit = self._committed(git, name, origin)
        return commit if isinstance(commit, Failed) else self._described(git, name, origin, commit)

    def branch(self, name: str, parent: str) -> Origin | Failed:
        """Creates the worktree of a parallel branch, or finds it. It begins with what is in the worktree `parent`."""
        git = self._git()
        with git.alone(self._lock):
            origin = self._origin(name)
            if origin is None or origin.merged:
                missing, above = self.opened(parent), self._origin(parent)
                if isinstance(missing, Failed) or above is None:
                    return missing if isinstance(missing, Failed) else _no_record(parent)
                base = self._committed(git, parent, above)
                if isinstance(base, Failed):
                    return base
                origin = Origin(str(self.workspace), branch_of(parent), base)
                _write(self._record(name), msgspec.json.encode(origin))
            self._create(git, name, origin.base)
        return origin

    def join(self, name: str, parent: str, resolved: str = "") -> Joined | Failed:
        """Merges what is in the worktree of a parallel branch into the worktree `parent`, and removes it.

        If both changed the same lines, nothing is merged: the worktree of the branch receives the files with the marks of
        the conflict, and its own version stays on a git branch. It is merged when someone has resolved the conflict with the
        commit `resolved`.
        """
        git = self._git()
        with git.alone(self._lock):
            origin, above = self._origin(name), self._origin(parent)
            if origin is None or above is None:
                return _no_record(name if origin is None else parent)
            if origin.merged:
                self._remove(git, name)
                return Joined()
            for one in (name, parent):
                if isinstance(missing := self.opened(one), Failed):
                    return missing
            commit = self._committed(git, name, origin)
            if isinstance(commit, Failed):
                return commit
            marked = self._marked(git, origin, commit)
            if origin.conflicts and (marked or resolved != origin.base):
                return Joined((), origin.conflicts, marked, origin.base)
            files: tuple[str, ...] = ()
            if commit != origin.base:
                conflict = self._joined(git, name, origin, commit, parent, above)
                if conflict is not None:
                    return conflict
                files = self._described(git, name, origin, commit).files
            _write(self._record(name), msgspec.json.encode(msgspec.structs.replace(origin, merged=True)))
            self._remove(git, name)
        return Joined(files)

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

    def _create(self, git: Git, name: str, base: str) -> None:
        """Creates the folder and the branch, unless they exist."""
        folder, marker = self.folder(name), self.store / "worktrees" / name
        if not (marker / "locked").exists() and folder.is_dir():
            return  # otherwise git was interrupted while it created the worktree
        git.tried("worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        git.said("worktree", "prune")
        branch = branch_of(name)
        known = git.holds("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
        git.said("worktree", "add", *((str(folder), branch) if known else ("-b", branch, str(folder), base)))

    @contextmanager
    def _contents(self, git: Git, name: str, base: str) -> Iterator[_Contents]:
        """The files in a worktree."""
        # The index and the `.git` file in the worktree are not used: whatever ran there may have changed them.
        folder, index = self.folder(name), self._home / f"{name}.index"
        index.unlink(missing_ok=True)
        env = {"GIT_DIR": str(self.store), "GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
        contents = _Contents(git.within(folder), env)
        try:
            contents.said("read-tree", base)
            contents.said("add", "--all")
            yield contents
        finally:
            index.unlink(missing_ok=True)

    def _committed(self, git: Git, name: str, origin: Origin) -> str | Failed:
        """Commits what is in a worktree to its branch. Returns the base if nothing was changed."""
        with self._contents(git, name, origin.base) as contents:
            nested = contents.nested()
            if nested:
                return Failed(
                    "nested_repository",
                    f"The worktree contains another git repository, which cannot be merged: {', '.join(nested[:10])}.",
                    fix=f"Remove it from {self.folder(name)}, {_RETRY}.",
                )
            return self._commit(git, name, origin, contents.said("write-tree"))

    def _marked(self, git: Git, origin: Origin, commit: str) -> tuple[str, ...]:
        """The files with conflicts that still contain marks."""
        if not origin.conflicts:
            return ()
        files = (f":(literal){one}" for one in origin.conflicts)
        found = git.tried("grep", "-l", "-z", "-E", "^(<<<<<<<|>>>>>>>) ", commit, "--", *files)
        names = found.stdout.decode("utf-8", "replace").split("\0")
        return tuple(one.removeprefix(f"{commit}:") for one in names if one)

    def _joined(self, git: Git, name: str, origin: Origin, commit: str, parent: str, above: Origin) -> Joined | None:
        """Merges a commit into the worktree `parent`. Returns the conflict, if there is one."""
        with self._contents(git, parent, above.base) as contents:
            tree = contents.said("write-tree")
            onto = origin.base
            if git.said("rev-parse", f"{onto}^{{tree}}") != tree:  # so that the base is what both have in common
                onto = git.said("commit-tree", tree, "-p", onto, "-m", f"What run {parent} has changed so far")
            tried = git.tried("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", onto, commit)
            if tried.returncode not in (0, 1):
                raise GitError(f"`git merge-tree` failed: {error_of(tried)}")
            merged, *files = tried.stdout.decode("utf-8", "replace").split("\0")
            if not tried.returncode:
                contents.become(tree, merged.strip())
                return None
        # Its own version is on a branch before the files change, and the record changes after them: if it is interrupted in
        # between, the same conflict is found again.
        git.said("update-ref", f"refs/heads/{own_version_of(name)}", commit)
        with self._contents(git, name, origin.base) as contents:
            contents.become(contents.said("write-tree"), merged.strip())
        conflicts = tuple(dict.fromkeys(one for one in files if one))
        now = msgspec.structs.replace(origin, base=onto, conflicts=conflicts)
        _write(self._record(name), msgspec.json.encode(now))
        git.said("update-ref", f"refs/heads/{branch_of(name)}", onto)
        return Joined((), conflicts, conflicts, onto)

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
        git.tried("branch", "-D", own_version_of(name))


class _Contents:
    """The files in a worktree, in an index of its own."""

    def __init__(self, git: Git, env: Mapping[str, str]) -> None:
        self._git, self._env = git, env

    def said(self, *args: str) -> str:
        return self._git.said(*args, env=self._env)

    def nested(self) -> list[str]:
        """The folders that are git repositories themselves."""
        lines = self.said("ls-files", "--stage").splitlines()
        return [line.partition("\t")[2] for line in lines if line.startswith(_SUBMODULE)]

    def become(self, old: str, new: str) -> None:
        """Changes the files from one tree to another. Fails if a file that differs was changed in the meantime."""
        self.said("read-tree", "-m", "-u", old, new)


def branch_of(name: str) -> str:
    return f"cuebook/{name}"


def own_version_of(name: str) -> str:
    """The git branch with the version of a parallel branch from before a conflict."""
    return f"cuebook/{name}.own"


def _no_record(name: str) -> Failed:
    return Failed(
        "no_worktree", f"There is no record of the worktree of run {name} here.", fix="Start the playbook again."
    )


def _write(file: Path, data: bytes) -> None:
    made = file.with_suffix(".new")
    made.write_bytes(data)
    made.replace(file)
