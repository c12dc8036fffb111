"""Workflows as Mermaid flowcharts: stable, with the state of a run, and safe from anything in a name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.graph.drawing import State, drawing, state_of
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.presentation.drawing import mermaid
from cuebook.kernel.ports import Store
from tests.dialects.graph.harness import GraphHarness, flow, way
from tests.dialects.graph.samples import FULL, PUBLISHED, beside, loaded
from tests.dialects.presentation.test_drawing import HOSTILE

LOOP = parse(
    """\
id: loop
name: Write and judge
entry: write
nodes:
  write: {name: Write, instruction: Write.}
  judge: {name: Judge, instruction: Judge.}
  done: {name: Done, instruction: Say so.}
edges:
  - {from: write, to: judge}
  - {from: judge, to: write, when: it is "weak", max_iterations: 2}
  - {from: judge, to: done}
x_cuebook:
  nodes: {done: {approval: Say it?}}
""",
    "loop.yml",
)
LABEL = r'"(?:[^"<>`\\%{}\[\]|;&#]|#\d+;|<br/>)*"'
LINE = re.compile(
    rf"    (?:n\d+(?:\(\[{LABEL}\]\)|\[{LABEL}\])|n\d+ [-=]=?(?:->|=>)(?:\|{LABEL}\|)? n\d+"
    r"|classDef \w+ [\w:#,\- ]+|class [n\d,]+ \w+|linkStyle [\d,]+ [\w:#,\- ]+)"
)


def lines_of(drawn: str) -> list[str]:
    return drawn.rstrip("\n").split("\n")


def entered(node: str) -> dict[str, Any]:
    return {"type": "node:enter", "node": node, "instruction": "x"}


def left(node: str, status: str = "success") -> dict[str, Any]:
    return {"type": "node:exit", "node": node, "result": {"status": status, "data": {}, "toolCalls": []}}


def routed(source: str, target: str, reason: str, **more: Any) -> dict[str, Any]:
    return {"type": "route", "from": source, "to": target, "reason": reason, **more}


def test_a_workflow_before_it_has_run() -> None:
    assert mermaid(drawing(LOOP)) == (
        "flowchart TD\n"
        '    n1(["Write ▸"])\n'
        '    n2["Judge"]\n'
        '    n3["Done<br/>asks first"]\n'
        "    n1 --> n2\n"
        '    n2 -->|"it is #34;weak#34; · at most 2×"| n1\n'
        "    n2 --> n3\n"
    )


def test_a_run_in_progress_is_shown() -> None:
    events = [
        entered("write"), left("write"), routed("write", "judge", "only path", edge=0),
        entered("judge"), left("judge"), routed("judge", "write", 'it is "weak"', edge=1),
        entered("write"), left("write"), routed("write", "judge", "only path", edge=0),
        entered("judge"), left("judge", "failed"), routed("judge", "done", "default", edge=2),
        entered("done"),
    ]  # fmt: skip
    assert lines_of(mermaid(drawing(LOOP, state_of(LOOP, events)), titled=True)) == [
        "---",
        'title: "Write and judge"',
        "---",
        "flowchart TD",
        '    n1(["Write ▸ ×2"])',
        '    n2["Judge ×2"]',
        '    n3["Done<br/>asks first"]',
        '    n1 -->|"taken 2x"| n2',
        '    n2 -->|"it is #34;weak#34; · at most 2×"| n1',
        "    n2 --> n3",
        "    classDef current fill:#dbeafe,stroke:#2563eb,stroke-width:3px,color:#111",
        "    class n3 current",
        "    classDef success fill:#dcfce7,stroke:#16a34a,color:#111",
        "    class n1 success",
        "    classDef failed fill:#fee2e2,stroke:#dc2626,color:#111",
        "    class n2 failed",
        "    linkStyle 0,1,2 stroke:#16a34a,stroke-width:2px",
    ]


def test_edges_that_were_not_taken_are_grey() -> None:
    drawn = mermaid(drawing(LOOP, State({"write": "skipped"}, {"write": 1}, {0: 1})))
    assert "    linkStyle 1,2 stroke:#9ca3af,stroke-dasharray:4 3\n" in drawn
    assert "    class n1 skipped\n" in drawn


FAN = loaded(
    ("nodes", {id: {"name": id.upper(), "instruction": id} for id in "sabe"}),
    ("edges", [{"from": one, "to": other} for one, other in ("sa", "ab", "be")]),
    ("entry", "s"),
    ("x_cuebook", {"fan_out": [{"node": "s", "to": ["a", "b"], "join": "e"}]}),
)


def test_parallel_nodes_have_thick_lines() -> None:
    assert lines_of(mermaid(drawing(FAN)))[5:] == [
        "    n3 ==> n4",
        '    n1 ==>|"at once"| n2',
        '    n1 ==>|"at once"| n3',
        '    n2 ==>|"join"| n4',
    ]


async def test_a_run_with_parallel_nodes_shows_the_edges_it_followed(store: Store) -> None:
    """The edge from one branch to the next is not shown, because it is not followed."""
    harness = GraphHarness(store)
    row = await harness.run(flow(*"sabe", x_cuebook={"fan_out": [{"node": "s", "to": ["a", "b"], "join": "e"}]}))
    drawn = lines_of(mermaid(drawing(harness.workflow, state_of(harness.workflow, await harness.events(row.id)))))
    assert drawn[5:9] == [
        "    n3 ==> n4",
        '    n1 ==>|"at once"| n2',
        '    n1 ==>|"at once"| n3',
        '    n2 ==>|"join"| n4',
    ]
    assert drawn[-1] == "    linkStyle 0,1,2,3 stroke:#16a34a,stroke-width:2px"


async def test_without_branches_the_thick_lines_stay_grey(store: Store) -> None:
    harness = GraphHarness(store)
    text = flow(*"sabe", x_cuebook={"fan_out": [{"node": "s", "to": ["a", "b"], "join": "e"}]})
    row = await harness.run(text, strict_spec=True)
    state = state_of(harness.workflow, await harness.events(row.id))
    assert (state.taken, state.branched, state.joined) == ({0: 1, 1: 1, 2: 1}, {}, {})
    assert "    linkStyle 3,4,5 stroke:#9ca3af,stroke-dasharray:4 3" in lines_of(
        mermaid(drawing(harness.workflow, state))
    )


@pytest.mark.parametrize(
    ("edges", "arrows"),
    [
        (("a b", "a c", "b z", "c z"), ["a=b", "a=c", "b>z", "c>z"]),
        (("a b", "a c", "b d", "d z", "c z"), ["a=b", "a=c", "b-d", "d>z", "c>z"]),
        (("a b", "a c", "b d when so", "b z when not", "c z"), ["a=b", "a=c", "b-d", "b>z", "c>z", "d>z"]),
        (("a b", "a c", "a d", "b e", "c e", "e z", "d z"), ["a=b", "a=c", "a=d", "b>e", "c>e", "e>z", "d>z"]),
        (("a b", "a c", "b z", "c z", "z a when again x1", "z e"), ["a=b", "a=c", "b>z", "c>z", "z-a", "z-e"]),
    ],
    ids=["plain", "long", "ends early", "meets early", "repeats"],
)
def test_edges_taken_at_once_begin_and_join_branches(edges: tuple[str, ...], arrows: list[str]) -> None:
    names = dict.fromkeys(name for edge in edges for name in edge.split()[:2])
    made = drawing(parse(flow(*names, edges=way(*edges), x_cuebook={"parallel": True}), "f.yml"))
    step = {box.id: box.step for box in made.boxes}
    marks = {"fan": "=", "join": ">", "way": "-"}
    assert [f"{step[one.from_]}{marks[one.kind]}{step[one.to]}" for one in made.arrows] == arrows


async def test_a_run_shows_several_edges_taken_at_once(store: Store) -> None:
    harness = GraphHarness(store)
    row = await harness.run(flow(*"abcz", edges=way("a b", "a c", "b z", "c z")), parallel=True)
    made = drawing(harness.workflow, state_of(harness.workflow, await harness.events(row.id)))
    assert [one.times for one in made.arrows] == [1, 1, 1, 1]
    assert [box.status for box in made.boxes] == ["completed"] * 4


def test_an_edge_that_was_taken_again_shows_the_count() -> None:
    events = [routed("s", "a", "fan out"), routed("a", "e", "join"), routed("b", "(end)", "dry run")]
    drawn = lines_of(mermaid(drawing(FAN, state_of(FAN, [*events, *events]))))
    assert '    n1 ==>|"at once · taken 2x"| n2' in drawn
    assert '    n2 ==>|"join · taken 2x"| n4' in drawn


@beside
def test_published_workflows_are_drawn_line_by_line() -> None:
    for path in PUBLISHED:
        text = path.read_text(encoding="utf-8")
        assert_drawn(parse(text, path.name))
    assert_drawn(parse(FULL, "full.yml"))


def assert_drawn(workflow: Workflow) -> None:
    state = State(dict.fromkeys(workflow.nodes, "completed"), {}, {0: 3})
    for drawn in (mermaid(drawing(workflow)), mermaid(drawing(workflow, state))):
        head, *lines = lines_of(drawn)
        assert head == "flowchart TD"
        assert [line for line in lines if not LINE.fullmatch(line)] == []


def saying(words: str) -> Workflow:
    node = {"name": words, "instruction": "x"}
    edges = [{"from": words, "to": "b", "when": words, "max_iterations": 1}]
    text = {"id": "a", "name": words, "entry": words, "nodes": {words: node, "b": node}, "edges": edges}
    return parse(json.dumps(text), "a.json")


@pytest.mark.parametrize("words", HOSTILE)
def test_no_words_break_out_of_their_box(words: str) -> None:
    assert_drawn(saying(words))
    title = lines_of(mermaid(drawing(saying(words)), titled=True))[1]
    assert json.loads(title.removeprefix("title: ")).isprintable()


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=150).filter(
        lambda words: words not in ("b", "input")
    )
)
def test_no_text_at_all_does(words: str) -> None:
    assert_drawn(saying(words))
