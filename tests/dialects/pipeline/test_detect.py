"""Which texts are recognised as pipelines, including broken ones, and which are left to other dialects."""

from __future__ import annotations

import json

import pytest

from cuebook.dialects import registry
from cuebook.kernel.errors import BadInput
from tests.dialects.graph import samples as graphs
from tests.dialects.pipeline.samples import FULL, MINIMAL


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MINIMAL, "hello.yml"),
        (MINIMAL, "HELLO.YAML"),
        (MINIMAL, "stdin"),
        (FULL, "release.yml"),
        (f"# about it\n---\n{MINIMAL}", "hello.yml"),
        (MINIMAL.replace("\n", "\r\n"), "hello.yml"),
        (json.dumps({"name": "A", "steps": [{"id": "a", "command": "cli x"}]}), "a.json"),
        (json.dumps({"name": "A", "steps": [{"id": "a", "command": "cli x"}]}), "inline"),
        ('{"steps": [{"command": "cli x"}]}', "a.json"),
        ("{name: A, steps: [{id: a, command: cli x}]}", "a.yml"),
        ("name: A\nsteps: [broken\n", "a.yml"),
        ("name: A\nsteps:\n", "a.yml"),
        ("steps:\n  - command: cli x\n", "a.yml"),
        ("steps:\n  - id: a\n    command: echo hi\nstep: 1\n", "a.yml"),
        ("name: A\nargs: {a: 1}\n", "a.yml"),
        ("name: A\nstep:\n  - {id: a, command: cli x}\n", "a.yml"),
        ("name: A\nSteps:\n", "a.yml"),
        ("name: A\nSTEPS: []\nversion: '1'\n", "a.yml"),
        ("name: A\nstpes:\n  - id: a\n    command: cli x\nargz: {}\n", "a.yml"),
        ('{"name": "A", "setps": [{"id": "a", "command": "cli x"}]}', "a.json"),
        ("id: a\nname: A\nversion: '1'\nsteps: []\n", "a.yml"),
    ],
)
def test_a_pipeline_is_recognised_by_its_top_level_names(text: str, name: str) -> None:
    assert registry.detect(text, name).name == "pipeline"


@pytest.mark.parametrize(
    "text",
    [
        graphs.MINIMAL,
        graphs.FULL,
        "id: a\nname: b\n",
        "nodes: {}\nedges: []\nsteps:\n  - command: cli x\n",
        "id: a\nentry: b\nsteps:\n  - command: cli x\n",
    ],
)
def test_a_workflow_stays_a_workflow(text: str) -> None:
    assert registry.detect(text, "a.yml").name == "graph"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: CI\non: push\njobs:\n  a:\n    steps:\n      - run: x\n", "ci.yml"),
        ("name: x\nstages:\n  - stage: build\n", "azure.yml"),
        ("name: x\nsteps_done: 3\njobs: 1\n", "state.yml"),
        ("steps:\n  - script: make\n", "azure.yml"),
        ("name: Line 1\nstops:\n  - {id: a, city: Ulm}\n", "line.yml"),
        ('{"name": "x", "step": 3}', "state.json"),
        ("name: A\nsteps:\n  - uses: x\ntrigger: y\n", "ci.yml"),
        (MINIMAL, "hello.txt"),
        ("", "a.yml"),
    ],
)
def test_other_texts_are_left_alone(text: str, name: str) -> None:
    with pytest.raises(BadInput, match="this is not a playbook") as caught:
        registry.detect(text, name)
    assert "a pipeline ends in .yml, .yaml or .json and has a name and a list of steps" in caught.value.fix


@pytest.mark.parametrize("text", ["name: x\nversion: 1.0\n", "name: x\n", '{"name": "x", "description": "y"}'])
def test_a_document_with_a_name_but_no_steps_is_reported_as_such(text: str) -> None:
    with pytest.raises(BadInput, match="it has a name, but neither steps nor nodes") as caught:
        registry.detect(text, "a.yml")
    assert "Markdown" not in caught.value.fix


def test_a_page_that_contains_a_pipeline_is_markdown() -> None:
    text = f"# A\n\n## STEP 1: Do\n\nDo this:\n\n```yaml\n{MINIMAL}```\n"
    assert registry.detect(text, "a.md").name == "markdown"


def test_the_dialect_is_found_by_its_name() -> None:
    assert registry.named("pipeline").interpreter == 1
