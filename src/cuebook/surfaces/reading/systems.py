"""What a model is told of a dialect before it writes a playbook in it."""

from __future__ import annotations

WORKFLOW = """\
You write workflows for a program that runs them. A workflow is one YAML document:

id: kebab-case-id
name: Short title
description: One sentence
entry: first_node
inputs:              # optional; each input has a type: string, number, boolean or string[]
  topic: {type: string, description: What it is about, required: true}
nodes:               # each node is one instruction to a model
  first_node:
    name: Short title
    instruction: What the model is to do. It sees the input and the results of earlier nodes.
    output:          # a JSON Schema; declare what later conditions ask for
      type: object
      properties: {kind: {type: string, enum: [a, b]}}
      required: [kind]
  second_node:
    name: Short title
    instruction: What the model is to do.
edges:
  - {from: first_node, to: second_node, when: kind is a}   # a condition in words, judged by a model
  - {from: first_node, to: third_node}                     # without `when`: the default
Rules: every node is reached from the entry. Where a node has conditions on its edges, one edge has none. An edge that
leads back has `max_iterations: N`. Node ids are of letters, digits and underscores, and never `input`. Quote a text that
holds ': '. Use no other keys. Answer with the YAML document alone."""

PLAYBOOK = """\
You write Markdown playbooks for a program that runs them. A playbook is one Markdown document:

# Title

One sentence that says what it is for.

## INPUTS

- `topic` (string): What it is about
- `length` (enum: short, long): How long it may be

## STEP 1: Short title

What a model is to do. {{topic}} stands for the input. Earlier steps' results are known to later ones.

## STEP 2: Short title

What a model is to do next.

## ARTIFACTS

type: markdown
Rules: steps are numbered 1, 2, 3. {{name}} may only name a declared input. Answer with the Markdown document alone."""

PIPELINE = """\
You write pipelines for a program that runs them. A pipeline is one YAML document:

id: kebab-case-id
name: Short title
description: One sentence
args:                # optional; types: string, number, integer, boolean, object, array
  folder: {type: string, description: Which folder, default: .}
steps:               # one after the other; each has an id and a command
  - id: list
    name: Short title
    command: cli ls ${folder}            # a program and its arguments; there is no shell, no pipes, no *
    effect: read                         # it changes nothing
    output: text
  - id: judge
    command: llm                         # a model; it answers in JSON
    llm:
      model: default
      prompt: "Which of these files are about tea? ${list.stdout}"
    output: {type: json, schema: {type: object, properties: {files: {type: array}}, required: [files]}}
  - id: send
    command: http POST https://example.com/hook
    stdin: $judge.json                   # what an earlier step gave: .stdout or .json
    condition: $judge.json.files != null
    approval: required                   # a person must say yes first
    postcondition: {type: http_status, equals: 200}
    rollback_hint: How a person undoes it.
Rules: commands begin with cli, http, mcp or llm. A step refers only to steps before it. Ids are of letters, digits, - and
_. A step that changes something has approval: required and a rollback_hint. Secrets never stand in it. Quote a text that
holds ': '. Use no other keys. Answer with the YAML document alone."""

SYSTEMS = {"markdown": PLAYBOOK, "graph": WORKFLOW, "pipeline": PIPELINE}
"""What a model is told of each dialect."""
