"""The checks of a workflow and its graph: each code is reported where it applies, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.findings import Finding
from cuebook.dialects.graph.check import CODES, check, sarif
from cuebook.dialects.graph.model import Edge
from cuebook.dialects.graph.parse import parse, structure
from cuebook.surfaces.python.api import Playbook
from tests.dialects.graph.samples import (
    FULL,
    MINIMAL,
    PUBLISHED,
    beside,
    chain,
    codes,
    edited,
    line_of,
    loaded,
    refusal,
)
from tests.support.sampling import many

LONG = many(20_000, 100_000)
"""The number of nodes, far above Python's recursion limit."""


def graph(*edges: str, nodes: str = "abc", **extra: Any) -> str:
    """A workflow of nodes with one letter; an edge is `a>b`, `a>b?` with a condition, `a>b3` with a bound."""
    return json.dumps(
        {
            "id": "g",
            "name": "G",
            "entry": nodes[0],
            "nodes": {id: {"name": id.upper(), "instruction": id} for id in nodes},
            "edges": [
                {"from": edge[0], "to": edge[2]}
                | ({"when": "so"} if "?" in edge else {})
                | ({"max_iterations": int(edge[-1])} if edge[-1].isdigit() else {})
                for edge in edges
            ],
            **extra,
        },
        indent=1,
    )


def found(text: str, name: str = "g.json", around: Surroundings | None = None) -> list[Finding]:
    return check(text, name, around)


class TwoSkills(Surroundings):
    def skills(self) -> frozenset[str]:
        return frozenset(("github", "slack"))


def said(text: str, name: str = "g.json") -> list[str]:
    return [one.code for one in refusal(text, name)]


# --- the graph ----------------------------------------------------------------------------------------------


def test_an_entry_must_be_a_node() -> None:
    (problem,) = refusal(graph("a>b", "b>c", entry="d"), "g.json")
    assert (problem.code, problem.fix) == ("MISSING_ENTRY", "Use one of: a, b, c.")


def test_an_edge_leaves_a_node() -> None:
    assert said(graph("a>b", "b>c", "x>c?")) == ["UNKNOWN_EDGE_SOURCE"]


def test_an_edge_goes_to_a_node() -> None:
    text = graph("a>b", "b>c", "c>x")
    (problem,) = refusal(text, "g.json")
    assert problem.code == "UNKNOWN_EDGE_TARGET"
    assert problem.line == line_of(text, '"from": "c"') - 1


def test_a_similar_name_is_suggested() -> None:
    values = edited(MINIMAL, ("edges.0", {"from": "brew", "to": "bre"}))
    assert refusal(json.dumps(values), "a.json")[0].fix == "Did you mean 'brew'?"


def test_every_node_is_reached() -> None:
    text = graph("a>b")
    (problem,) = refusal(text, "g.json")
    assert (problem.code, problem.message) == ("UNREACHABLE_NODE", "The node 'c' cannot be reached from 'a'.")
    assert problem.line == line_of(text, '"c": {')


def test_conditions_and_bounds_do_not_affect_reachability() -> None:
    assert parse(graph("a>b?", "b>c1"), "g.json").out_edges["b"][0].max_iterations == 1


@pytest.mark.parametrize(("edge", "wanted"), [("b>b?", ["SELF_LOOP"]), ("b>b?2", [])])
def test_a_node_goes_to_itself_only_with_a_bound(edge: str, wanted: list[str]) -> None:
    text = graph("a>b", edge, "b>c")
    assert (said(text) if wanted else found_codes(text, "error")) == wanted


@pytest.mark.parametrize(
    ("edges", "circles"),
    [
        (["a>b", "b>c", "c>a"], 1),
        (["a>b", "b>c", "c>a2"], 0),
        (["a>b", "b>c?", "b>a?1"], 0),
        (["a>b", "b>c?", "b>a?", "c>a?"], 2),
        (["a>b?", "a>c?", "b>c"], 0),
        (["a>b?", "b>a?", "a>b?", "b>c"], 1),
    ],
)
def test_a_cycle_needs_a_bound_somewhere(edges: list[str], circles: int) -> None:
    text = graph(*edges)
    assert (said(text) if circles else found_codes(text, "error")) == ["UNBOUNDED_CYCLE"] * circles


def test_a_cycle_is_shown() -> None:
    (problem,) = refusal(graph("a>b", "b>c", "c>d", "d>b?", nodes="abcd"), "g.json")
    assert problem.message == "Unbounded cycle: b -> c -> d -> b."
    assert problem.fix == "Add max_iterations to one of its edges."


def test_reachability_is_checked_only_if_every_edge_is_valid() -> None:
    assert said(graph("a>b", "b>a", "b>x?")) == ["UNKNOWN_EDGE_TARGET"]


def test_the_input_is_not_hidden() -> None:
    node = {"name": "Input", "instruction": "x"}
    assert codes(("nodes.input", node), ("edges.0", {"from": "brew", "to": "input"})) == ["RESERVED_NODE_ID"]
    assert codes(("nodes.(end)", node), ("edges.0", {"from": "brew", "to": "(end)"})) == ["RESERVED_NODE_ID"]


def test_a_long_chain_is_checked() -> None:
    """A recursive or superlinear check would not finish."""
    assert len(parse(json.dumps(chain(LONG)), "chain.json").nodes) == LONG


def test_a_long_cycle_is_found() -> None:
    nodes = {f"n{number}": 1 for number in range(LONG)}
    edges = [Edge(f"n{number}", f"n{(number + 1) % LONG}", index=number) for number in range(LONG)]
    (problem,) = structure.problems("n0", 1, nodes, edges)
    assert problem.message == "Unbounded cycle: n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> … -> n0."


def test_many_edges_to_unknown_nodes_are_checked_quickly() -> None:
    values = chain(3_000)
    for edge in values["edges"]:
        edge["to"] += "x"
    found = refusal(json.dumps(values), "chain.json")
    assert {one.code for one in found} == {"UNKNOWN_EDGE_TARGET"}
    assert all(one.fix for one in found)


# --- warnings and notes --------------------------------------------------------------------------------------------


def found_codes(text: str, severity: str, name: str = "g.json", **known: Any) -> list[str]:
    return [one.code for one in check(text, name, **known) if one.severity == severity]


def test_errors_and_warnings_are_findings_too() -> None:
    text = MINIMAL.replace("entry: brew", "entry: boil").replace("name: Tea", "name: [Tea]")
    assert [(one.code, one.severity, one.line) for one in found(text, "a.yml")] == [
        ("SCHEMA", "error", 2),
        ("MISSING_ENTRY", "error", 3),
    ]


def test_a_skill_is_unknown_only_if_the_installed_skills_are_known() -> None:
    text = json.dumps(
        edited(MINIMAL, ("nodes.brew.skills", ["githup", "own"]), ("skills", {"own": {"instruction": "x"}}))
    )
    assert found_codes(text, "warning") == []
    (one,) = [one for one in found(text, around=TwoSkills()) if one.severity == "warning"]
    assert (one.code, one.fix) == ("UNKNOWN_SKILL", "Did you mean 'github'?")


def test_a_misspelt_built_in_tool_is_reported_and_any_other_name_is_not() -> None:
    text = (
        "id: a\nname: A\nentry: a\nnodes:\n  a:\n    name: A\n    instruction: Do.\n"
        "    disallowed_tools: [Golb, NotebookEdit, Task, mcp__github__search, Bash]\nedges: []\n"
    )
    (one,) = [one for one in found(text, "g.yml") if one.severity == "warning"]
    assert (one.code, one.line, one.fix) == ("MISSPELT_TOOL", 5, "Did you mean 'Glob'?")


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("nodes.brew.requires", {"output_required": ["a b"]})], "MALFORMED_PATH"),
        ([("nodes.brew.requires", {"output_matches": [{"path": "each:a", "equals": 1}]})], "MALFORMED_PATH"),
        ([("inputs", {"a": {"type": "number", "default": 3, "enum": [1, 2]}})], "DEFAULT_NOT_IN_ENUM"),
        ([("judge_budget", 0), ("nodes.brew.eval", [{"name": "j", "kind": "judge", "rubric": "x"}])], "JUDGE_BUDGET"),
        ([("nodes.brew.eval", [{"name": "j", "kind": "judge", "rubric": "x"}] * 2)], "DUPLICATE_EVALUATOR"),
        ([("nodes.brew.eval", [{"name": f"j{n}", "kind": "judge", "rubric": "x"} for n in range(51)])], "JUDGE_BUDGET"),
    ],
)
def test_likely_mistakes_give_warnings_and_still_load(edits: list[tuple[str, Any]], code: str) -> None:
    assert [one.code for one in loaded(*edits).warnings] == [code]


def test_a_valid_workflow_gives_no_warnings() -> None:
    judges = [{"name": f"j{n}", "kind": "judge", "rubric": "x"} for n in range(50)]
    paths = ["a", "all:a[*].b", "any:a_1.b[*]", "look-up.found", "input.x"]
    assert loaded(("nodes.brew.eval", judges), ("nodes.brew.requires", {"output_required": paths})).warnings == ()
    enum = {"type": "number", "default": 1.0, "enum": [1, 2]}
    assert loaded(("inputs", {"a": enum})).warnings == ()


def test_a_node_of_a_kebab_is_named_in_a_path_only_where_nodes_are() -> None:
    rule = {"name": "v", "kind": "value", "rule": {"output_required": ["look-up.found"]}}
    assert [one.code for one in loaded(("nodes.brew.eval", [rule])).warnings] == ["MALFORMED_PATH"]


def test_surprising_behaviour_is_noted() -> None:
    text = json.dumps(
        edited(
            MINIMAL,
            ("nodes.pour", {"name": "Pour", "instruction": "Pour."}),
            ("nodes.brew.retry", {"max": 1}),
            ("edges.0", {"from": "brew", "to": "pour", "when": "it is ready"}),
            ("skills", {"s": {"instruction": "x"}}),
            ("rule", []),
        )
    )
    assert set(found_codes(text, "note")) == {
        "UNKNOWN_KEY",
        "NO_DEFAULT_EDGE",
        "OPEN_ROUTE",
        "IDLE_RETRY",
        "UNUSED_SKILL",
    }


def test_a_required_output_is_a_reason_to_try_again() -> None:
    output = {"type": "object", "required": ["a"], "properties": {"a": {}}}
    text = json.dumps(edited(MINIMAL, ("nodes.brew.retry", {"max": 1}), ("nodes.brew.output", output)))
    assert found(text) == []


@beside
def test_published_workflows_have_notes_at_most() -> None:
    for path in PUBLISHED:
        assert {one.severity for one in found(path.read_text(encoding="utf-8"), path.name)} <= {"note"}


def test_every_code_says_what_it_means() -> None:
    assert all(text.endswith(".") for _, text in CODES.values())


def test_findings_are_sarif_too() -> None:
    log = sarif(found("id: a\nname: 5\n", "a.yml"), "a.yml")
    driver = log["runs"][0]["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == ["SCHEMA"]
    assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}


def test_python_checks_a_workflow_as_any_playbook() -> None:
    playbook = Playbook.from_text(FULL, "full.yml")
    assert (playbook.title, playbook.labels[:2]) == ("Everything", ("look", "judge-it"))
    assert [one.code for one in playbook.check()] == ["OPEN_ROUTE"]
