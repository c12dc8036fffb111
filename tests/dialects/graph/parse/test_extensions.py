"""The extensions of the format below one key: they are read strictly, and nothing in them is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.dialects.graph.model import Approval, Match, NodeExtras
from cuebook.dialects.graph.parse import parse
from cuebook.kernel.votes import Rule
from tests.dialects.graph.harness import flow, way
from tests.dialects.graph.samples import FULL, MINIMAL, line_of, loaded, problems, refusal


def test_extensions_of_the_format() -> None:
    extras = parse(FULL, "full.yml").extras
    assert (extras.on_failure, extras.max_steps, extras.router_model) == ("halt", 500, "provider/small")
    assert [(one.edge, one.output_matches, one.output_required) for one in extras.guards] == [
        (1, (Match("judge-it.status", "equals", "bad"),), ()),
        (2, (), ("look.found",)),
    ]
    assert extras.nodes == {
        "tell": NodeExtras(
            Approval("Tell everybody?", line=extras.nodes["tell"].approval.line),  # type: ignore[union-attr]
            None,
            20_000,
            0.5,
            ("input", "judge-it.status"),
            line_of(FULL, "    tell:"),
        )
    }


@pytest.mark.parametrize(
    ("extras", "says"),
    [
        ([], "x_cuebook must be a table of names and values, not a list."),
        ({"guard": []}, "Unknown key 'guard' in x_cuebook."),
        ({"on_failure": "stop"}, "x_cuebook.on_failure cannot be 'stop'."),
        ({"max_steps": 0}, "x_cuebook.max_steps must be a whole number of at least 1"),
        ({"router_model": ""}, "x_cuebook.router_model must not be empty."),
        ({"effort": "huge"}, "x_cuebook.effort cannot be 'huge'."),
        ({"nodes": {"tell": {"effort": "hihg"}}}, "x_cuebook.nodes.tell.effort cannot be 'hihg'."),
        ({"guards": {}}, "x_cuebook.guards must be a list"),
        ({"guards": ["x"]}, "x_cuebook.guards[0] must be a table"),
        ({"guards": [{"edge": 0}]}, "has neither output_matches nor output_required."),
        ({"guards": [{"edge": 9, "output_required": ["a"]}]}, "there is no edge 9."),
        ({"guards": [{"edge": 0, "from": "look", "output_required": ["a"]}]}, "identifies its edge twice."),
        ({"guards": [{"from": "look", "output_required": ["a"]}]}, "does not identify an edge."),
        ({"guards": [{"from": "look", "to": "tell", "output_required": ["a"]}]}, "no edge goes from 'look' to 'tell'."),
        ({"guards": [{"edge": 0, "output_required": ["a"]}] * 2}, "an edge has two guards."),
        ({"guards": [{"edge": 0, "output_required": ["a..b"]}]}, "'a..b' is not a valid path"),
        ({"guards": [{"edge": 0, "output_matches": [{"path": "a", "matches": "(?=a)"}]}]}, "uses lookahead"),
        ({"nodes": {"nobody": {}}}, "unknown node 'nobody'."),
        ({"nodes": {"tell": {"approve": "x"}}}, "Unknown key 'approve' in x_cuebook.nodes.tell."),
        ({"nodes": {"tell": {"approval": ""}}}, "approval must not be empty."),
        ({"nodes": {"tell": {"budget": {}}}}, "budget must not be empty."),
        ({"nodes": {"tell": {"budget": {"tokens": 1.5}}}}, "budget.tokens must be a whole number"),
        ({"nodes": {"tell": {"budget": {"money": -1}}}}, "budget.money must be a number of at least 0"),
        ({"nodes": {"tell": {"budget": {"money": 0}}}}, "budget.money must be above 0"),
        ({"nodes": {"tell": {"context": ["nobody.a"]}}}, "unknown node 'nobody'."),
        ({"nodes": {"tell": {"context": "look"}}}, "context must be a list"),
        ({"fan_out": [{"node": "look"}]}, "'to' is missing in x_cuebook.fan_out[0]."),
        ({"fan_out": [{"node": "look", "to": [], "join": "tell"}]}, "to must not be empty."),
        ({"fan_out": [{"node": "nobody", "to": ["again"], "join": "tell"}]}, "unknown node 'nobody'."),
        ({"fan_out": [{"node": "look", "to": ["look"], "join": "tell"}]}, "lists a node twice."),
        ({"fan_out": [{"node": "look", "to": ["tell"], "join": "again"}]}, "'tell' does not lead to 'again'."),
        ({"fan_out": [{"node": "look", "to": ["again"], "join": "tell"}]}, "'again' leads back to 'look'."),
    ],
)  # fmt: skip
def test_nothing_in_the_extension_is_ignored(extras: Any, says: str) -> None:
    found = problems(("x_cuebook", extras), text=FULL)
    assert [one for one in found if says in one.message] != []
    assert {one.code for one in found} <= {"INVALID_EXTENSION", "UNSUPPORTED_REGEX", "MALFORMED_PATH"}


def test_a_problem_of_the_extension_has_its_line() -> None:
    text = MINIMAL + "x_cuebook:\n  nodes:\n    brew:\n      budget:\n        tokens: many\n"
    assert [(one.line, one.code) for one in refusal(text)] == [(13, "INVALID_EXTENSION")]


def test_one_of_two_edges_between_the_same_nodes_is_named_by_its_number() -> None:
    more = ("edges.4", {"from": "judge-it", "to": "again", "when": "in doubt", "max_iterations": 1})
    found = problems(more, text=FULL)
    assert "2 edges go from 'judge-it' to 'again'." in found[0].message
    assert found[0].fix == "Write 'edge:' and one of 1, 4."


def test_an_approval_may_be_just_true() -> None:
    book = loaded(("x_cuebook", {"nodes": {"brew": {"approval": True}}}))
    asked = book.extras.nodes["brew"].approval
    assert (asked and asked.text, asked and asked.rule) == ("Run the node 'brew'?", Rule())
    assert loaded(("x_cuebook", {"nodes": {"brew": {"approval": False}}})).extras.nodes["brew"].approval is None


FAN: dict[str, Any] = {
    "id": "fan", "name": "Fan", "entry": "start",
    "nodes": {id: {"name": id, "instruction": id} for id in ("start", "a", "b", "c", "end")},
    "edges": [
        {"from": one, "to": other} for one, other in [("start", "a"), ("a", "b"), ("b", "c"), ("c", "end")]
    ],
    "x_cuebook": {"fan_out": [{"node": "start", "to": ["a", "b"], "join": "end", "max_concurrency": 2}]},
}  # fmt: skip


def test_branches_run_sequentially_elsewhere_and_in_parallel_here() -> None:
    (fan,) = parse(json.dumps(FAN), "fan.json").extras.fan_out
    assert (fan.node, fan.to, fan.join, fan.max_concurrency) == ("start", ("a", "b"), "end", 2)


def test_branches_that_share_a_node_are_refused() -> None:
    edges = [{"from": "a", "to": "c", "when": "x"}, {"from": "start", "to": "b", "when": "y"}]
    values: dict[str, Any] = {**FAN, "edges": [*FAN["edges"], *edges]}
    found = refusal(json.dumps(values), "fan.json")
    assert ["'c' follows both 'a' and 'b'" in one.message for one in found] == [True]


def test_a_node_fans_out_once() -> None:
    values = json.loads(json.dumps(FAN))
    values["x_cuebook"]["fan_out"] *= 2
    assert "'start' fans out twice." in refusal(json.dumps(values), "fan.json")[0].message


def _fans(nodes: str, edges: str, *fans: tuple[str, str, str]) -> str:
    fan_out = [{"node": node, "to": to.split(), "join": join} for node, to, join in fans]
    return flow(*nodes.split(), edges=way(*edges.split(", ")), x_cuebook={"fan_out": fan_out})


def test_an_edge_that_would_never_be_followed_is_refused() -> None:
    text = _fans("a b c d z", "a b, a d when it is late, b c, c z, d z", ("a", "b c", "z"))
    assert any("'a' to 'd' would never be followed" in one.message for one in refusal(text))


def test_a_way_out_of_a_branch_that_fans_out_is_refused() -> None:
    nodes, fans = "a b c d e y z", (("a", "b c", "z"), ("b", "d e", "y"))
    text = _fans(nodes, "a b, b d, d y, d e when more, e z, y z, c z, z c when never x1", *fans)
    assert any("leads out of that branch to 'z'" in one.message for one in refusal(text))
