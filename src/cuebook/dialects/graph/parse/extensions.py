"""Reads the extensions below `x_cuebook`: guards, parallel branches, approvals, budgets, projection.

Other implementations of the format ignore this key, so the same document runs there too. Here an unknown name below it is
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.graph.model import Approval, Declared, Edge, Extras, FanOut, Guard, NodeExtras, Workflow
from cuebook.dialects.graph.parse import people
from cuebook.dialects.graph.parse.nodes import RESERVED, value_rules
from cuebook.dialects.graph.parse.structure import following, reachable
from cuebook.dialects.graph.paths import node_in
from cuebook.formats.shape import Shape
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Value
from cuebook.kernel.effects import Effort

CODE = "INVALID_EXTENSION"
_RULES = ("output_required", "output_matches")


def with_extras(shape: Shape, value: Value, workflow: Workflow) -> Workflow:
    """The workflow with its extensions."""
    reading = _Extras({id: one.line for id, one in workflow.nodes.items()}, workflow.edges, workflow.declared)
    found = msgspec.structs.replace(workflow, extras=reading.read(value))
    found = people.with_defaults(reading.shape, found, reading.defaults)
    # The published schema does not cover this key, so its problems have a separate code.
    shape.problems += [_coded(one) for one in (*reading.shape.problems, *reading.shape.warnings)]
    return found


def _coded(problem: Problem) -> Problem:
    code = CODE if problem.code == "SCHEMA" else problem.code
    return Problem(problem.message, problem.line, problem.fix, code)


class _Extras:
    def __init__(
        self, nodes: Mapping[str, int], edges: Sequence[Edge], declared: Sequence[Declared] | None = None
    ) -> None:
        self._declared = declared
        self.shape = Shape()
        self._nodes = nodes
        self._edges = edges
        self._leaving = following(edges)
        self.defaults: dict[str, Value] = {}
        """The default answers of the nodes that ask, which their outputs check."""

    def read(self, value: Value) -> Extras:
        shape = self.shape
        readers: dict[str, Callable[[Value, str], Any]] = {
            "on_failure": lambda one, at: shape.choice(one, at, ("continue", "halt")),
            "max_steps": lambda one, at: shape.whole(one, at, 1),
            "router_model": shape.text,
            "effort": self._effort,
            "workspace": self._worktree,
            "guards": self._guards,
            "parallel": shape.flag,
            "fan_out": self._fan_outs,
            "nodes": self._node_extras,
            "sensitive": self._sensitive,
        }
        fields = shape.closed(value, "x_cuebook", tuple(readers))
        read = {name: readers[name](one, f"x_cuebook.{name}") for name, one in fields.items() if name in readers}
        return Extras(**read)

    def _sensitive(self, value: Value, at: str) -> tuple[str, ...]:
        names = []
        for number, one in enumerate(self.shape.items(value, at)):
            name = self.shape.text(one, f"{at}[{number}]")
            declared = self._declared
            if declared is not None and name not in [known.name for known in declared]:
                self.shape.wrong(one.line, f"{at}[{number}]: the workflow declares no input '{name}'.", "Correct it.")
            elif declared is not None and next(known for known in declared if known.name == name).type != "string":
                self.shape.wrong(one.line, f"{at}[{number}]: '{name}' must be a string.", "Only texts can be hidden.")
            names.append(name)
        return tuple(names)

    # --- guards ---

    def _guards(self, value: Value, at: str) -> tuple[Guard, ...]:
        items = self.shape.items(value, at)
        found = [self._guard(one, f"{at}[{number}]") for number, one in enumerate(items)]
        guards = [guard for guard in found if guard is not None]
        first: dict[int, Guard] = {}
        for guard in guards:
            other = first.setdefault(guard.edge, guard)
            if other is not guard:
                fix = f"The other guard is on line {other.line}: combine them."
                self.shape.wrong(guard.line, f"{at}: an edge has two guards.", fix)
        return tuple(guards)

    def _guard(self, value: Value, at: str) -> Guard | None:
        fields = self.shape.closed(value, at, ("edge", "from", "to", *_RULES))
        if value.kind != "map":
            return None
        if not fields.keys() & set(_RULES):
            self.shape.wrong(value.line, f"{at} has neither output_matches nor output_required.", "Add one.")
        edge = self._edge_of(value, fields, at)
        rules = value_rules(self.shape, fields, at, of_nodes=True)
        return Guard(edge, line=value.line, **rules) if edge is not None else None

    def _edge_of(self, value: Value, fields: Mapping[str, Value], at: str) -> int | None:
        """The index of an edge that is given by its index or by its ends. Ends that several edges share are an error."""
        if "edge" in fields:
            number = self.shape.whole(fields["edge"], f"{at}.edge", 0)
            if number is not None and number >= len(self._edges):
                self.shape.wrong(
                    value.line, f"{at}: there is no edge {number}.", f"Edges are numbered 0 to {len(self._edges) - 1}."
                )
                return None
            if "from" in fields or "to" in fields:
                self.shape.wrong(value.line, f"{at} identifies its edge twice.", "Remove 'edge', or 'from' and 'to'.")
            return number
        if "from" not in fields or "to" not in fields:
            self.shape.wrong(
                value.line, f"{at} does not identify an edge.", "Add 'from' and 'to', or 'edge' and its number."
            )
            return None
        ends = [self.shape.text(fields[name], f"{at}.{name}") for name in ("from", "to")]
        numbers = [edge.index for edge in self._leaving.get(ends[0], ()) if edge.to == ends[1]]
        if not numbers:
            fix = f"Name the ends of an existing edge. {meant(ends[0], self._nodes)}"
            self.shape.wrong(value.line, f"{at}: no edge goes from '{ends[0]}' to '{ends[1]}'.", fix.rstrip())
            return None
        if len(numbers) > 1:
            fix = f"Write 'edge:' and one of {', '.join(map(str, numbers))}."
            self.shape.wrong(value.line, f"{at}: {len(numbers)} edges go from '{ends[0]}' to '{ends[1]}'.", fix)
        return numbers[0]

    # --- parallel branches ---

    def _fan_outs(self, value: Value, at: str) -> tuple[FanOut, ...]:
        items = self.shape.items(value, at)
        found = [self._fan_out(one, f"{at}[{number}]") for number, one in enumerate(items)]
        taken: dict[str, FanOut] = {}
        for one in found:
            first = taken.setdefault(one.node, one)
            if first is not one and one.node:
                fix = f"The other fan-out is on line {first.line}: combine them."
                self.shape.wrong(one.line, f"{at}: '{one.node}' fans out twice.", fix)
        sound = [one for one in found if one.node and one.join and one.to and all(one.to)]
        for outer in sound:
            self._check_inner(outer, [one for one in sound if one is not outer], at)
        return tuple(found)

    def _check_inner(self, outer: FanOut, others: Sequence[FanOut], at: str) -> None:
        """Checks that a fan-out within a branch of another fan-out joins in the same branch."""
        ends = frozenset({outer.join, *outer.to})
        branches = [reachable([start], self._leaving, ends) for start in outer.to]
        for inner in others:
            own = next((branch for branch in branches if inner.node in branch), None)
            if own is None:
                continue
            within = reachable(inner.to, self._leaving, frozenset({inner.join}) | ends)
            left = {edge.to for one in within for edge in self._leaving.get(one, ())} - within - {inner.join}
            strays = [*sorted(left), *(one for one in inner.to if one not in own)]
            if inner.join not in own | ends:
                strays.append(inner.join)
            if strays:
                words = (
                    f"{at}: '{inner.node}' fans out within a branch of '{outer.node}', but leads out of that branch to"
                )
                fix = f"Lead all its branches to '{inner.join}' first, within the same branch of '{outer.node}'."
                self.shape.wrong(inner.line, f"{words} '{strays[0]}'.", fix)

    def _fan_out(self, value: Value, at: str) -> FanOut:
        shape = self.shape
        fields = shape.closed(value, at, ("node", "to", "join", "max_concurrency"), ("node", "to", "join"))
        node = self._node(fields["node"], f"{at}.node") if "node" in fields else ""
        join = self._node(fields["join"], f"{at}.join") if "join" in fields else ""
        targets = shape.items(fields["to"], f"{at}.to", at_least=1) if "to" in fields else ()
        to = tuple(self._node(one, f"{at}.to[{number}]") for number, one in enumerate(targets))
        most = (
            shape.whole(fields["max_concurrency"], f"{at}.max_concurrency", 1) if "max_concurrency" in fields else None
        )
        fan_out = FanOut(node, to, join, most or 4, value.line)
        if node and join and to and all(to):
            self._check_branches(fan_out, at)
        return fan_out

    def _check_branches(self, fan_out: FanOut, at: str) -> None:
        """Checks that branches share no nodes and that each reaches the join."""
        wrong = self.shape.wrong
        if len({fan_out.node, fan_out.join, *fan_out.to}) < 2 + len(fan_out.to):
            fix = "'node', 'join' and the entries of 'to' must be different nodes."
            wrong(fan_out.line, f"{at} lists a node twice.", fix)
            return
        ends = frozenset({fan_out.join, *fan_out.to})
        for edge in self._leaving.get(fan_out.node, ()):
            if edge.to not in ends:
                words = f"{at}: the edge from '{fan_out.node}' to '{edge.to}' would never be followed."
                wrong(edge.line, words, "Add its node to 'to', or remove the edge.")
        owner: dict[str, str] = {}
        for start in fan_out.to:
            branch = reachable([start], self._leaving, ends)
            if fan_out.node in branch:
                wrong(fan_out.line, f"{at}: '{start}' leads back to '{fan_out.node}'.", "Remove that edge.")
            if not any(edge.to in ends for one in branch for edge in self._leaving.get(one, ())):
                wrong(fan_out.line, f"{at}: '{start}' does not lead to '{fan_out.join}'.", "Add an edge to it.")
            for one in branch:
                other = owner.setdefault(one, start)
                if other != start:
                    fix = "A node may belong to only one branch."
                    wrong(fan_out.line, f"{at}: '{one}' follows both '{other}' and '{start}'.", fix)

    # --- nodes ---

    def _node_extras(self, value: Value, at: str) -> dict[str, NodeExtras]:
        found: dict[str, NodeExtras] = {}
        for id, one, line in self.shape.named(value, at):
            if id not in self._nodes:
                self.shape.wrong(line, f"{at}: unknown node '{id}'.", meant(id, self._nodes))
            found[id] = self._one_node(id, one, f"{at}.{id}", line)
        return found

    def _one_node(self, id: str, value: Value, at: str, line: int) -> NodeExtras:
        shape = self.shape
        known = ("approval", "budget", "context", "effort", "input", "parallel", "workspace")
        fields = shape.closed(value, at, known)
        asked, answer = people.question(shape, fields["input"], f"{at}.input") if "input" in fields else (None, None)
        if answer is not None:
            self.defaults[id] = answer
        budget = shape.closed(fields["budget"], f"{at}.budget", ("tokens", "money")) if "budget" in fields else {}
        if "budget" in fields and fields["budget"].kind == "map" and not budget:
            shape.wrong(fields["budget"].line, f"{at}.budget must not be empty.", "Add tokens or money.")
        return NodeExtras(
            approval=self._approval(id, fields["approval"], f"{at}.approval") if "approval" in fields else None,
            input=asked,
            budget_tokens=shape.whole(budget["tokens"], f"{at}.budget.tokens", 1) if "tokens" in budget else None,
            budget_money=self._money(budget["money"], f"{at}.budget.money") if "money" in budget else None,
            context=self._projection(fields["context"], f"{at}.context") if "context" in fields else None,
            parallel=shape.flag(fields["parallel"], f"{at}.parallel") if "parallel" in fields else None,
            effort=self._effort(fields["effort"], f"{at}.effort") if "effort" in fields else None,
            line=line,
            workspace=self._worktree(fields["workspace"], f"{at}.workspace") if "workspace" in fields else "",
        )

    def _effort(self, value: Value, at: str) -> Effort | None:
        return cast(Effort, self.shape.choice(value, at, get_args(Effort)))

    def _worktree(self, value: Value, at: str) -> Literal["worktree"]:
        self.shape.choice(value, at, ("worktree",))
        return "worktree"

    def _money(self, value: Value, at: str) -> float | None:
        amount = self.shape.number(value, at, 0)
        if amount == 0:
            self.shape.wrong(value.line, f"{at} must be above 0.", "Raise it.")
        return amount or None

    def _approval(self, id: str, value: Value, at: str) -> Approval | None:
        return people.approval(self.shape, id, value, at, self._nodes, self._leaving)

    def _projection(self, value: Value, at: str) -> tuple[str, ...]:
        paths = self.shape.texts(value, at)
        for one, path in zip(value.items, paths, strict=False):
            node = node_in(path, self._nodes)[0] or path.partition(".")[0]
            if path and node != RESERVED and node not in self._nodes:
                self.shape.wrong(one.line, f"{at}: unknown node '{node}'.", meant(node, [RESERVED, *self._nodes]))
        return paths

    def _node(self, value: Value, at: str) -> str:
        given = self.shape.text(value, at)
        if given and given not in self._nodes:
            self.shape.wrong(value.line, f"{at}: unknown node '{given}'.", meant(given, self._nodes))
            return ""
        return given
