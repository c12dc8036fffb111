"""Edges without conditions that leave one node: where their branches join, and why they cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.dialects.findings import Finding, InvalidPlaybook
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.graph.check import check
from cuebook.dialects.graph.model import FanOut, fan_words
from cuebook.dialects.graph.parse import forks, parse
from tests.dialects.graph.harness import flow, way

PARALLEL = {"parallel": True}


def fork(*edges: str, nodes: str = "abcdez", **changes: Any) -> str:
    """A workflow of nodes with one letter, each edge on a line of its own, as JSON."""
    used = [node for node in nodes if any(node in edge.split()[:2] for edge in edges)]
    text = json.loads(flow(*used, edges=way(*edges), **changes))
    lines = ",\n".join(json.dumps(edge) for edge in text.pop("edges"))
    return f'{json.dumps(text)[:-1]}, "edges": [\n{lines}\n]}}'


def forked(*edges: str, **changes: Any) -> FanOut:
    (found,) = parse(fork(*edges, x_cuebook=PARALLEL, **changes), "f.json").forks
    return found


def finding(*edges: str, parallel: bool = True, **extras: Any) -> Finding:
    (found,) = [one for one in findings(*edges, parallel=parallel, **extras) if one.severity == "error"]
    return found


def findings(*edges: str, parallel: bool = True, **extras: Any) -> list[Finding]:
    return check(fork(*edges, x_cuebook={"parallel": parallel, **extras}), "f.json")


@pytest.mark.parametrize(
    ("edges", "join"),
    [
        (["a b", "a c", "b z", "c z"], "z"),
        (["a b", "a c", "b d", "d z", "c z", "z e"], "z"),
        (["a b", "a c", "b c"], "c"),
        (["a b", "a c", "b d when so", "b z when not", "d z", "c z"], "z"),
        (["a b", "a c", "b b when again x2", "b z", "c z"], "z"),
        (["a b", "a c", "b d when hopeless", "b z when fine", "c z"], "z"),
        (["a b", "a c", "b z", "c z", "z a when again x1", "z e"], "z"),
        (["e a", "a b", "a c", "b z", "c z", "z e when again x1", "z d"], "z"),
    ],
    ids=["plain", "long", "straight", "decides", "loops", "ends early", "repeated", "repeated from before"],
)
def test_branches_join_at_the_first_node_that_all_of_them_reach(edges: list[str], join: str) -> None:
    entry = "e" if edges[0] == "e a" else "a"
    found = forked(*edges, entry=entry)
    assert (found.node, found.join, found.groups) == ("a", join, ())
    assert len(found.edges) == len(found.to) == 2


def test_branches_that_meet_earlier_form_a_group() -> None:
    found = forked("a b", "a c", "a d", "b e", "c e", "e z", "d z")
    (group,) = found.groups
    assert (found.to, found.join) == (("b", "c", "d"), "z")
    assert (group.to, group.edges, group.join) == (("b", "c"), (0, 1), "e")
    assert fan_words(found) == "at once b, c, d; b and c join at e; then z"


def test_forks_nest() -> None:
    text = fork("a b", "a c", "b d", "b e", "d z", "e z", "c z", x_cuebook=PARALLEL)
    assert [(one.node, one.join) for one in parse(text, "f.json").forks] == [("a", "z"), ("b", "z")]


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        (["a b", "a c"], "The branches 'b', 'c' of 'a' never meet"),
        (["a b", "a c", "a d", "b z", "c z"], "'z' does not follow 'd'"),
        (["a b", "a c", "b d when x", "b e when y", "c d when x", "c e when y"], "meet at 'd' and at 'e'"),
        (["a b", "a c", "b a when again x1", "b z", "c z"], "'b' leads back to 'a' from within one of the branches"),
    ],
)
def test_branches_that_do_not_join_are_a_finding(edges: list[str], says: str) -> None:
    found = finding(*edges)
    assert (found.code, found.line) == ("NO_JOIN", 3)
    assert says in found.message
    assert found.fix
    offered = finding(*edges, parallel=False)
    assert (offered.code, offered.line) == ("AMBIGUOUS_EDGES", 3)
    assert "They cannot be taken at once: " in offered.fix
    assert says in offered.fix


@pytest.mark.parametrize(
    ("edges", "line", "says"),
    [
        (["a b", "a c", "a z when so", "b z", "c z"], 3, "Edges with and without a condition leave 'a'"),
        (["a b", "a b", "b z"], 3, "Two edges without a condition lead from 'a' to 'b'."),
        (["a b", "a a x2", "b z"], 3, "An edge without a condition leads from 'a' to itself, beside others"),
    ],
)
def test_some_edges_stay_ambiguous_even_at_once(edges: list[str], line: int, says: str) -> None:
    for parallel in (True, False):
        found = finding(*edges, parallel=parallel)
        assert (found.code, found.line) == ("AMBIGUOUS_EDGES", line)
        assert says in found.message


def test_a_mix_of_edges_says_what_to_write_and_that_is_accepted() -> None:
    found = finding("a b", "a c", "a z when so", "b z", "c z")
    assert "so there can be only one" in found.message
    for words in ("add a 'when'", "'b' and 'c' at once if no condition holds", "(lines 2, 3)", "(line 4)"):
        assert words in found.fix
    only_one = findings("a b", "a c when x", "a z when so", "b z", "c z")
    otherwise = findings("a z when so", "a e", "e b", "e c", "b z", "c z")
    in_any_case = findings("a b", "a c", "b e", "c e", "e z when so", "e d")
    for accepted in (only_one, otherwise, in_any_case):
        assert not [one for one in accepted if one.severity == "error"]
    assert "After 'e': at once b, c; then z." in [one.message for one in otherwise]
    assert "After 'a': at once b, c; then e." in [one.message for one in in_any_case]


def test_the_message_says_how_to_take_edges_at_once() -> None:
    found = finding("a b", "a c", "b z", "c z", parallel=False)
    assert (found.code, found.line) == ("AMBIGUOUS_EDGES", 3)
    assert found.message == "Two edges without a condition leave 'a' (lines 2, 3), so the next node is ambiguous."
    for words in ("`parallel: true` below x_cuebook", "--parallel", "join at 'z'", "x_cuebook.fan_out", "'when'"):
        assert words in found.fix


def test_a_check_says_which_edges_are_taken_at_once() -> None:
    (found,) = findings("a b", "a c", "b z", "c z")
    assert (found.code, found.severity, found.line) == ("PARALLEL_EDGES", "note", 3)
    assert found.message == "After 'a': at once b, c; then z."


def test_a_node_may_differ_from_the_workflow() -> None:
    edges = ("a b", "a c", "b z", "c z")
    assert [one.code for one in findings(*edges, parallel=False, nodes={"a": {"parallel": True}})] == ["PARALLEL_EDGES"]
    found = finding(*edges, nodes={"a": {"parallel": False}})
    assert "remove `parallel: false` from x_cuebook.nodes.a" in found.fix


def test_a_listed_fan_out_decides_for_its_node() -> None:
    fan = {"node": "a", "to": ["b", "c"], "join": "z"}
    document = parse(fork("a b", "a c", "b z", "c z", x_cuebook={"fan_out": [fan]}), "f.json")
    assert document.forks == ()
    assert GRAPH.unfit(document, {}) == ()
    (problem,) = GRAPH.unfit(document, {"strict_spec": True})
    assert problem.code == "AMBIGUOUS_EDGES"


def test_an_option_takes_edges_at_once() -> None:
    document = parse(fork("a b", "a c", "b z", "c z"), "f.json")
    assert [one.code for one in GRAPH.unfit(document, {})] == ["AMBIGUOUS_EDGES"]
    assert GRAPH.unfit(document, {"parallel": True}) == ()
    assert [one.code for one in GRAPH.unfit(document, {"parallel": True, "strict_spec": True})] == ["AMBIGUOUS_EDGES"]


def test_yaml_and_json_are_the_same() -> None:
    text = """\
id: w
name: W
entry: a
nodes:
  a: {name: A, instruction: Do a.}
  b: {name: B, instruction: Do b.}
  c: {name: C, instruction: Do c.}
  z: {name: Z, instruction: Do z.}
edges:
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: z}
  - {from: c, to: z}
x_cuebook:
  parallel: true
"""
    (found,) = parse(text, "w.yml").forks
    assert (found.to, found.join, found.line) == (("b", "c"), "z", 11)


def test_parallel_must_be_true_or_false() -> None:
    with pytest.raises(InvalidPlaybook, match=r"x_cuebook.parallel must be true or false"):
        parse(fork("a b", x_cuebook={"parallel": "yes"}), "f.json")


def test_the_work_of_a_check_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_WORK", 20)
    edges = ["a b", "a c", "b d", "c d", "d e", "d f", "e z", "f z"]
    with pytest.raises(InvalidPlaybook, match="In a workflow of this size, fewer nodes may have several") as refused:
        parse(fork(*edges, nodes="abcdefz", x_cuebook=PARALLEL), "f.json")
    assert [(problem.code, problem.line) for problem in refused.value.problems] == [("AMBIGUOUS_EDGES", 7)]
