"""Recognition of workflows, including broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects import registry
from cuebook.dialects.graph.detect import recognises
from cuebook.kernel.errors import BadInput
from tests.dialects.graph.samples import MINIMAL


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MINIMAL, "tea.yml"),
        (MINIMAL, "TEA.YAML"),
        (MINIMAL, "stdin"),
        (f"# about it\n---\n{MINIMAL}", "tea.yml"),
        (f"%YAML 1.2\n---\n{MINIMAL}", "tea.yml"),
        (MINIMAL.replace("\n", "\r\n"), "tea.yml"),
        ("id: a\nentry: [broken\n", "tea.yml"),
        ("nodes:\nedges:\n", "tea.yml"),
        ("\"nodes\": {}\n'edges': []\n", "tea.yml"),
        ('\ufeff{"a": {"x": ["}"]}, "nodes": {}, "edges": []}', "tea.json"),
        ("{id: a, entry: b}", "tea.yml"),
        ("id: a\nname: b\n", "tea.yml"),
        ("\ufeffid: a\nname: b\n", "tea.yml"),
    ],
)
def test_a_workflow_is_known_by_the_names_at_its_top(text: str, name: str) -> None:
    assert registry.detect(text, name).name == "graph"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("id: a\nname: b\nitems: []\n", "other.yml"),
        ("a:\n  nodes: 1\n  edges: 2\n", "other.yml"),
        ('{"a": {"nodes": 1, "edges": 2}}', "other.json"),
        ('{"a": "nodes", "b": "edges"}', "other.json"),
        ("text\n", "notes"),
        (MINIMAL, "tea.py"),
        ("", "empty.yml"),
    ],
)
def test_other_texts_are_left_to_others(text: str, name: str) -> None:
    with pytest.raises(BadInput, match=r"\.yml, \.yaml or \.json"):
        registry.detect(text, name)


def test_a_markdown_playbook_stays_one() -> None:
    text = "# Tea\n\n## STEP 1: Brew\n\nnodes:\n\nedges:\n"
    assert registry.detect(text, "tea.md").name == "markdown"


@given(
    st.lists(st.sampled_from(["{", "}", "[", '"', "'", "\\", "id", ":", "entry", "\n", " ", ",", "nodes", "#"])).map(
        "".join
    )
)
def test_any_text_is_recognised_or_not(text: str) -> None:
    assert recognises(text, "a.yml") in (True, False)
