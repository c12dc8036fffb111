"""The state of a workflow run: sources, results, followed edges, and the caller's options.

Checkpoints save it from time to time, so that resuming a long run stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Node, NodeExtras, Workflow
from cuebook.dialects.graph.parse.structure import reachable
from cuebook.dialects.graph.run.people import Requests
from cuebook.dialects.graph.run.results import Result
from cuebook.dialects.graph.run.scope import Kept, Scope
from cuebook.dialects.graph.run.sources import Material
from cuebook.dialects.people import Feedback
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Checkpoint
from cuebook.kernel.fold.replay import PLAYBOOKS
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.run import WORKTREE

MAX_STEPS = 200
"""The default limit for node visits."""

FIRST_CHECKPOINT = 64
"""The number of visits before the first checkpoint. It doubles with each checkpoint, so that the cost per visit is
constant and a replay covers at most the second half of a run.
"""

CURRENT = 3
"""The current version of the interpreter."""

_NOTHING = NodeExtras()


def fewest_visits(workflow: Workflow) -> int:
    """The number of nodes on the shortest path from the entry to an end."""
    fans = {fan.node: (*fan.to, fan.join) for fan in workflow.fans.values()}
    coming, depth = [workflow.entry], {workflow.entry: 1}
    for node in coming:
        edges = workflow.out_edges.get(node, ())
        if node not in fans and all(edge.max_iterations is not None for edge in edges):
            return depth[node]
        for to in (*fans.get(node, ()), *(edge.to for edge in edges)):
            if to not in depth:
                depth[to] = depth[node] + 1
                coming.append(to)
    return 1  # without an end, only the limit stops the run


class Broken(msgspec.Struct, frozen=True):
    """The failure of a node, and where a retry continues."""

    visit: int
    failed: Failed
    seq: int | None = None


class Walk:
    """The state of a run, or of one of its branches."""

    def __init__(
        self, workflow: Workflow, inputs: Mapping[str, Any], options: Mapping[str, Any], version: int = CURRENT
    ) -> None:
        self.workflow = workflow
        self.version = version
        """The version of the interpreter that the run started with."""
        self.inputs = inputs
        extras = workflow.extras
        self.strict = bool(options.get("strict_spec"))
        self.until_decision = bool(options.get("until_decision")) or inputs.get("dryRun") is True
        self.halts = options.get("on_failure", extras.on_failure) == "halt"
        self.max_steps: int = options.get("max_steps") or extras.max_steps or MAX_STEPS
        self.offline = bool(options.get("offline"))
        self.worktree = str(options.get(WORKTREE) or "")
        """The name of the run's own worktree."""
        self.playbooks: Mapping[str, Any] = options.get(PLAYBOOKS, {})
        """What is known about the playbooks that the run may start."""
        self.fans = {} if self.strict else workflow.fans
        self.guards = {} if self.strict else {guard.edge: guard for guard in extras.guards}
        self.material = Material(workflow, inputs)
        self.scope = Scope(workflow, inputs)
        self.followed: dict[int, int] = {}
        """How often each bounded edge was followed, by index."""
        self.visits: dict[str, int] = {}
        self.steps = 0
        self.broken: dict[str, Broken] = {}
        """Nodes whose last result is a failure."""
        self.toolless: set[str] = set()
        """Models that do not support tools."""
        self.stopped = False
        """Whether it stopped at the first decision."""
        self.last: tuple[str, str] | None = None
        """The node that ran last, and its data as JSON."""
        self.stops: frozenset[str] = frozenset()
        """In a branch: the nodes at which it ends."""
        self.join_at = ""
        """In a branch: the node at which all branches join."""
        self.shares = False
        """Whether it is a branch with a share of the remaining visits, which it must not exceed."""
        self.following = ""
        """In a branch that has used up its share: the next node."""
        self.checkpoint_at = FIRST_CHECKPOINT
        self.requests = Requests()
        """The changes that approvers requested."""

    def extras(self, node: Node) -> NodeExtras:
        found = self.workflow.extras.nodes.get(node.id, _NOTHING)
        return msgspec.structs.replace(found, context=None) if self.strict and found.context is not None else found

    def too_long(self) -> Failed | None:
        """The failure of a run that cannot end within the limit; None otherwise. Known before any model is called."""
        fewest = fewest_visits(self.workflow)
        if self.until_decision or fewest <= self.max_steps:
            return None
        return Failed(
            "MAX_STEPS",
            f"Every path to an end visits at least {fewest:,} nodes, but the limit is {self.max_steps:,}.",
            "Raise the option max_steps, or make the workflow shorter.",
        )

    def too_far(self, following: str, visited: int | None = None) -> Failed:
        visited = self.steps if visited is None else visited
        words = f"The run has visited {visited} nodes, which is the limit"
        fix = "Raise the option max_steps, or check why the workflow does not end."
        if self.shares:
            words = "The parallel branches share the remaining visits, and one of them has used up its share"
            fix = "Raise the option max_steps, or run the branches one after the other (max_concurrency: 1)."
        last = self.last[0] if self.last is not None else ""
        done = (
            {"step": last, "visit": self.visits[last], "finished": True, "routed": True} if last in self.visits else {}
        )
        return Failed("MAX_STEPS", f"{words}; node {following} would be next.", fix, details=done)

    def enter(self, node: Node) -> int:
        """Counts a visit and returns its number."""
        self.steps += 1
        visit = self.visits[node.id] = self.visits.get(node.id, 0) + 1
        return visit

    def keep(self, node: Node, visit: int, result: Result, data: Text) -> None:
        """Stores the result of a visit; `data` is its data as JSON."""
        view = result.view
        self.scope.keep(node.id, result.status, view, data if view is result.data else None)
        self.last = (node.id, str(data))
        if result.status == "failed" and result.failed is not None:
            self.broken[node.id] = Broken(visit, result.failed, result.seq)
        else:
            self.broken.pop(node.id, None)

    def go_back(self, node: Node, feedback: Feedback) -> None:
        """Continues at the node to which an approver sent the run back. Loops and failures between that node and the approval
        no longer count.
        """
        self.requests.take(node.id, feedback, self.visits)
        between = reachable([feedback.to], self.workflow.out_edges, frozenset((node.id,)))
        edges = self.workflow.edges
        self.followed = {index: n for index, n in self.followed.items() if edges[index].from_ not in between}
        self.broken = {id: one for id, one in self.broken.items() if id not in between}

    # --- branches ---

    def branched(self, stops: frozenset[str], join: str) -> Walk:
        """The state of a branch that begins here."""
        child = Walk.__new__(Walk)
        child.__dict__.update(self.__dict__)
        child.scope = Scope(self.workflow, self.inputs, self.scope)
        child.followed, child.visits = dict(self.followed), {}
        child.broken = {}
        child.toolless = set(self.toolless)
        child.requests = self.requests.copied()
        child.stops, child.join_at = self.stops | stops, join
        return child

    def left(self, begun: Walk) -> dict[str, Any]:
        """Everything that this branch has added since it began from `begun`, as plain values."""
        counts = {str(edge): count - begun.followed.get(edge, 0) for edge, count in self.followed.items()}
        return {
            "kept": [[kept.node, kept.status, str(kept.text), kept.warned] for kept in self.scope.own.values()],
            "changes": self.scope.changes,
            "followed": {edge: count for edge, count in counts.items() if count},
            "steps": self.steps - begun.steps,
            "broken": msgspec.to_builtins(self.broken),
            "stopped": self.stopped,
            "following": self.following,
            **({"requested": self.requests.made} if self.requests.made else {}),
        }

    def join(self, left: Mapping[str, Any]) -> None:
        """Merges the result of a branch."""
        kept = [Kept(node, status, Text(text), warned) for node, status, text, warned in left["kept"]]
        self.scope.join(kept, left["changes"])
        for edge, count in left["followed"].items():
            self.followed[int(edge)] = self.followed.get(int(edge), 0) + count
        self.steps += left["steps"]
        self.stopped = self.stopped or left["stopped"]
        self.requests.made.update(left.get("requested", {}))
        for one in kept:
            self.broken.pop(one.node, None)
        self.broken.update(msgspec.convert(left["broken"], dict[str, Broken]))

    # --- checkpoints ---

    def checkpoint(self, following: str) -> Checkpoint:
        """A checkpoint from which a run can continue at the node `following`. Long strings are stored by reference."""
        self.checkpoint_at = 2 * self.steps
        read = self.material.texts
        kept = self.scope.own.values()
        state = {
            "following": following,
            "steps": self.steps,
            "visits": self.visits,
            "followed": {str(edge): count for edge, count in self.followed.items()},
            "broken": msgspec.to_builtins(self.broken),
            "toolless": sorted(self.toolless),
            "changes": self.scope.changes,
            "read": list(read),
            "kept": [(one.node, one.status, one.warned) for one in kept],
        }
        if self.requests.plain():
            state["requests"] = self.requests.plain()
        return Checkpoint(state, (*read.values(), *(one.text for one in kept)))

    def restore(self, state: Mapping[str, Any], texts: tuple[Text, ...]) -> str:
        """Restores a checkpoint and returns the next node."""
        self.steps, self.visits = state["steps"], dict(state["visits"])
        self.checkpoint_at = 2 * self.steps
        self.followed = {int(edge): count for edge, count in state["followed"].items()}
        self.broken = msgspec.convert(state["broken"], dict[str, Broken])
        self.toolless = set(state["toolless"])
        self.requests.restore(state.get("requests", {}))
        read = state["read"]
        self.material = Material(self.workflow, self.inputs, dict(zip(read, texts, strict=False)))
        self.scope = Scope(self.workflow, self.inputs)
        rest = texts[len(read) :]
        kept = [
            Kept(node, status, text, warned) for (node, status, warned), text in zip(state["kept"], rest, strict=True)
        ]
        self.scope.join(kept, state["changes"])
        following: str = state["following"]
        return following
