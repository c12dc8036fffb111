"""The git worktrees of parallel branches: created when the branches begin, merged one after the other when they have ended.

All of them begin with what is in the worktree of the run at that time. A conflict is never resolved by the run: someone does
that in the worktree of the branch, and approves the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from cuebook.dialects.graph.run.state import Walk
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskApproval, CallTool, Program
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import BRANCH_MERGE_STEP
from cuebook.kernel.tool_names import WORKTREE_BRANCH, WORKTREE_COMMIT, WORKTREE_DIFF, WORKTREE_JOIN

_PLAIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_LONGEST = 40
_SHOWN = 5
"""How many files a message lists."""


def name_of(run: str, node: str) -> str:
    """The name of the worktree of the branch that begins with a node."""
    if _PLAIN.fullmatch(node) and len(node) <= _LONGEST:
        return f"{run}-{node}"
    words = "-".join(re.findall(r"[a-z0-9]+", node.lower(), re.ASCII))[:_LONGEST].strip("-")
    return f"{run}-{words}-{sha256(node.encode()).hexdigest()[:8]}".replace("--", "-")


def opened(walk: Walk, branches: Iterable[str]) -> Program[dict[str, str]]:
    """Creates the worktrees of branches, given by their first nodes. Returns the names of those that have one."""
    names: dict[str, str] = {}
    for node in branches:
        extras = walk.workflow.extras.nodes.get(node)
        if walk.worktree and extras is not None and extras.workspace == "worktree":
            names[node] = name_of(walk.worktree, node)
            yield CallTool(WORKTREE_BRANCH, {"branch": names[node]}, internal=True, idempotent=True)
    return names


def merged(names: Mapping[str, str]) -> Program[None]:
    """Merges the worktrees of branches into the one that they came from, in this order, and removes them."""
    for node, name in names.items():
        yield from _merged(node, name)


def _merged(node: str, name: str) -> Program[None]:
    label = f"{BRANCH_MERGE_STEP}{node}"
    branch = {"branch": name}
    yield StepStarted(label, f"Merge the worktree of {node}")
    change = (yield CallTool(WORKTREE_COMMIT, branch, internal=True, idempotent=True)).value
    said = "Nothing was changed."
    if change["commit"] != change["base"]:
        given = {"commit": change["commit"], **branch}
        said = (yield CallTool(WORKTREE_DIFF, given, internal=True, reads_only=True, witnessed=True)).value
    joined = (yield CallTool(WORKTREE_JOIN, branch, internal=True, idempotent=True)).value
    while joined["conflicts"]:
        yield from _ask(node, joined)
        given = {"resolved": joined["onto"], **branch}
        joined = (yield CallTool(WORKTREE_JOIN, given, internal=True, idempotent=True)).value
    yield StepFinished(label, output=Text(said))


def _ask(node: str, joined: Mapping[str, Any]) -> Program[None]:
    """Waits until someone has resolved a conflict. If they deny it, the run fails and the worktree stays."""
    files, folder, own = joined["conflicts"], joined["folder"], joined["own"]
    named = ", ".join([*files[:_SHOWN], *(["…"] if len(files) > _SHOWN else [])])
    still = f" These still contain conflict marks: {', '.join(joined['marked'][:20])}." if joined["marked"] else ""
    question = (
        f"'{node}' conflicts with what was merged before it, in {named}. Merge the files as they are in its worktree?"
    )
    preview = {
        "files": "\n".join(files[:200]),
        "folder": folder,
        "how": f"Resolve the conflicts in that folder first. In each file, the part above ======= was merged before, and the part below is from '{node}'. A file that git"
        f" cannot mark, such as a binary or deleted file, is as it was merged before; `git show {own}:FILE` prints the"
        f" branch's own version.{still}",
    }
    try:
        yield AskApproval(approval=question, preview=preview)
    except EffectFailed as error:
        if error.failed.code not in ("denied", "expired"):
            raise
        failed = msgspec.structs.replace(
            error.failed,
            message=f"The branch '{node}' was not merged, because it conflicts in {named}:"
            f" {error.failed.message.rstrip('.')}. Its changes are in {folder}, and on the git branch {own}.",
            fix="A retry asks again.",
            details={**error.failed.details, "files": files[:200]},
        )
        raise EffectFailed(failed, error.seq) from None
