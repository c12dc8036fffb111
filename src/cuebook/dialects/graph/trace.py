"""What a run leaves behind: the steps it went, the edges between them and the result of each node. Pure.

Branches stand where they began, in the order they are written: not in the order they were run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuebook.dialects.graph.changing import with_change
from cuebook.dialects.graph.paths import node_in
from cuebook.dialects.graph.visits import Told
from cuebook.kernel.journal import ROOT, parent_key


class Trace:
    def __init__(self) -> None:
        self._lines: dict[str, list[Told]] = {}
        """What happened on each line, in order: steps, edges, and the branches that began from it."""

    def went(self, path: str, steps: Sequence[Told], result: Told) -> None:
        """A visit of a node, with a step for each attempt and the result of the last."""
        *before, last = steps
        self._line_of(path).extend([*({"step": step} for step in before), {"step": last, "result": result}])

    def followed(self, path: str, edge: Told) -> None:
        self._line_of(path).append({"edge": edge})

    def change(self, values: Mapping[str, Any]) -> None:
        """Results that a person changed count as changed from there on; their step names the fields, or `*` for all."""
        for name, value in values.items():
            latest = {one["step"]["node"]: one for one in self._in_order(ROOT) if "result" in one}
            node, field = node_in(name, latest)
            if node:
                result, step = latest[node]["result"], latest[node]["step"]
                latest[node]["result"] = {**result, "data": with_change(result["data"], field, value)}
                latest[node]["step"] = {**step, "changed": [*step.get("changed", ()), field or "*"]}

    @property
    def results(self) -> dict[str, Told]:
        """`NodeResult` of each node; of one that ran again, the last."""
        return {one["step"]["node"]: one["result"] for one in self._in_order(ROOT) if "result" in one}

    def told(self, sources: Mapping[str, Told]) -> Told:
        """`ExecutionTrace`."""
        line = list(self._in_order(ROOT))
        steps = [dict(one["step"]) for one in line if "step" in one]
        edges = [one["edge"] for one in line if "edge" in one]
        times: dict[str, int] = {}
        for step in steps:
            if not step.get("retryAttempt"):  # the first attempt of a visit
                times[step["node"]] = times.get(step["node"], 0) + 1
            step["iteration"] = times[step["node"]]
        asked = [edge for edge in edges if edge.get("asked")]
        saved = [edge for edge in edges if edge.get("saved")]
        return {
            "steps": steps,
            "edges": edges,
            "sources": sources,
            "routing": {"asked": len(asked), "saved": len(saved)},
        }

    # --- lines and branches ---

    def _in_order(self, path: str) -> Iterator[Told]:
        for one in self._lines.get(path, []):
            if "branches" not in one:
                yield one
            for branch in one.get("branches", ()):
                yield from self._in_order(branch)

    def _line_of(self, path: str) -> list[Told]:
        if path not in self._lines:
            self._lines[path] = []
            if path != ROOT:
                self._begun_from(path)
        return self._lines[path]

    def _begun_from(self, path: str) -> None:
        parent, step, visit, index = parent_key(path)
        line = self._line_of(parent)
        at = (step, visit, index)
        for one in reversed(line):
            if one.get("at") == at:
                one["branches"] = sorted([*one["branches"], path], key=_branch_number)
                return
        line.append({"at": at, "branches": [path]})


def _branch_number(path: str) -> int:
    return int(path[:-1].rpartition("[")[2].rstrip("]"))
