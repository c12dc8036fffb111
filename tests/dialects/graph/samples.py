"""Sample workflows: one that uses every feature, and the published ones next to the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import Parsed, parse, read

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared/data/graph"
OWN = sorted(path for path in (ROOT / "examples").glob("*.yml") if "\nnodes:" in path.read_text(encoding="utf-8"))
PUBLISHED = sorted([*DATA.glob("workflows/*.yml"), *DATA.glob("examples/*.yml")])

beside = pytest.mark.skipif(not PUBLISHED, reason="the format's own schema and workflows are not beside the project")

MINIMAL = """\
id: tea
name: Tea
entry: brew
nodes:
  brew:
    name: Brew
    instruction: Brew a cup of tea.
edges: []
"""

FULL = """\
id: everything
name: Everything
description: Every field of the format, and every one of ours.
version: 3
tags: [marketplace, metadata]
entry: look
workflow_type: monitor
model: provider/strong
judge_model: provider/judge
judge_budget: 4
rules:
  - Be short.
  - ./rules.md
context:
  - https://example.com/context.md
  - inline: ./not a file
  - file: notes/context.md
  - {url: "https://example.com/more.md", type: fetch}
inputs:
  topic: {type: string, description: What it is about, required: true}
  depth: {type: number, default: 2, enum: [1, 2, 3]}
  loud: {type: boolean, default: false}
  labels: {type: "string[]", default: [a, b], enum: [[a, b], [c]]}
skills:
  house:
    name: House style
    description: How we write
    instruction: Write as we do.
  search:
    mcp:
      type: stdio
      command: search-server
      args: [--fast]
      env: {SEARCH_KEY: A key for the search}
  remote:
    instruction: Ask the remote server.
    mcp: {type: http, url: "https://mcp.example.com", headers: {X-Team: ours}}
nodes:
  look:
    name: Look
    instruction: Look around.
    skills: [house, search, github]
    max_turns: 12
    model: provider/small
    disallowed_tools: [Bash]
    tools: {allow: [search_find], deny: [search_delete]}
    fail_soft: true
    rules: [Look twice.]
    context: {only: true, sources: [Nothing else counts.]}
    output:
      type: object
      required: [found]
      properties:
        found: {type: array, items: {type: string, pattern: "^[a-z]+$"}}
        score: {$ref: "#/$defs/score"}
      $defs: {score: {type: number}}
  judge-it:
    name: Judge
    instruction: {inline: "/not/a/path"}
    skills: [remote]
    judge_model: provider/other-judge
    eval_policy: all_pass
    eval:
      - name: has_found
        kind: value
        rule:
          output_required: ["all:found[*].id"]
          output_matches:
            - {path: found, equals: []}
            - {path: status, in: [ok, 1, null]}
            - {path: text, matches: "^ok (?<n>[0-9]+)$"}
      - name: has_called
        kind: function
        rule: {any_tool_called: [a], all_tools_called: [b], no_tool_called: [c]}
      - {name: sounds_right, kind: judge, rubric: Does it sound right?, pass_when: yes, model: provider/judge}
    requires:
      output_required: [look.found]
      output_matches: [{path: look.score, equals: 1}]
      on_fail: skip
    retry: {max: 2, instruction: {reflect: Why did it fail?}}
  again:
    name: Again
    instruction: ./again.md
    retry: {max: 1, instruction: Try once more.}
    eval: [{name: e, kind: judge, rubric: Good?}]
  tell:
    name: Tell
    instruction: Tell it.
    retry: {max: 1, instruction: {auto: true}}
    eval: [{name: e, kind: judge, rubric: Good?}]
edges:
  - {from: look, to: judge-it}
  - {from: judge-it, to: again, when: it is not good enough, max_iterations: 3}
  - {from: judge-it, to: tell, when: ""}
  - {from: again, to: look, max_iterations: 2}
x_cuebook:
  on_failure: halt
  max_steps: 500
  router_model: provider/small
  guards:
    - {from: judge-it, to: again, output_matches: [{path: judge-it.status, equals: bad}]}
    - {edge: 2, output_required: [look.found]}
  nodes:
    tell:
      approval: Tell everybody?
      budget: {tokens: 20000, money: 0.5}
      context: [input, judge-it.status]
"""


def plain(text: str) -> dict[str, Any]:
    """A YAML text as plain values."""
    from cuebook.formats.yaml import read_yaml

    values: dict[str, Any] = read_yaml(text).plain
    return values


def edited(text: str, *edits: tuple[str, Any]) -> dict[str, Any]:
    """A workflow as plain values, with changes by path, such as `nodes.brew.name`; an ellipsis removes a value."""
    values = plain(text)
    for path, value in edits:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        inside: Any = values
        for part in parents:
            inside = inside[part]
        if value is ...:
            del inside[last]
        elif isinstance(inside, list) and last == len(inside):
            inside.append(value)
        else:
            inside[last] = value
    return values


def read_plain(values: Any) -> Parsed:
    return read(json.dumps(values), "edited.json")


def loaded(*edits: tuple[str, Any], text: str = MINIMAL) -> Workflow:
    return parse(json.dumps(edited(text, *edits)), "edited.json")


def problems(*edits: tuple[str, Any], text: str = MINIMAL) -> tuple[Problem, ...]:
    """The problems of a workflow with these changes."""
    with pytest.raises(InvalidPlaybook) as caught:
        loaded(*edits, text=text)
    return caught.value.problems


def codes(*edits: tuple[str, Any], text: str = MINIMAL) -> list[str]:
    return [problem.code for problem in problems(*edits, text=text)]


def refusal(text: str, name: str = "a.yml") -> tuple[Problem, ...]:
    """The problems of a text."""
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, name)
    return caught.value.problems


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if words in line)


def chain(length: int) -> dict[str, Any]:
    """A linear workflow with this many nodes."""
    return {
        "id": "chain",
        "name": "Chain",
        "entry": "n0",
        "nodes": {f"n{number}": {"name": f"N {number}", "instruction": "Go on."} for number in range(length)},
        "edges": [{"from": f"n{number}", "to": f"n{number + 1}"} for number in range(length - 1)],
    }
