"""`cuebook new --from`: a model drafts a playbook from a description. It is checked before anything is saved, and what is
wrong with it goes back to the model, twice at most.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from cuebook.dialects.findings import Finding
from cuebook.gate.policy import decide_all
from cuebook.kernel.context import EMPTY, Context
from cuebook.kernel.effects import AskModel, Failed
from cuebook.kernel.errors import BadInput, CuebookError, told
from cuebook.kernel.ports import Action, Call
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli.plain import complain
from cuebook.surfaces.cli.texts import strictest_policy
from cuebook.surfaces.wiring import Wiring
from cuebook.surfaces.wording import counted

REPAIRS = 2

_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)

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

Check = Callable[[str], Sequence[Finding]]


def draft(description: str, system: str, check: Check, wiring: Wiring) -> str:
    """A valid playbook; `CuebookError` with what is still wrong where the model comes to none."""
    if not description.strip():
        raise BadInput("--from says nothing.", fix="Describe what the playbook is to do.")
    wiring.providers.check(wiring.model)
    _permitted(wiring)
    return asyncio.run(_drafted(description, system, check, wiring))


async def _drafted(description: str, system: str, check: Check, wiring: Wiring) -> str:
    context = EMPTY.add("system", system)
    prompt = f"Write one that does this:\n\n{description.strip()}"
    listed = ""
    for repair in range(REPAIRS + 1):
        reply = await _asked(prompt, context, wiring)
        text = _document(reply)
        wrong = [finding for finding in check(text) if finding.severity == "error"]
        if not wrong:
            return text
        listed = "\n".join(f"line {one.line or 1}: {told(one.message, one.fix)} [{one.code}]" for one in wrong[:20])
        if repair < REPAIRS:
            complain(
                f"The draft has {counted(len(wrong), 'mistake')}; {wiring.model} is asked to mend {'it' if len(wrong) == 1 else 'them'}."
            )
        context = context.add("user", prompt).add("assistant", reply)
        prompt = f"This cannot be run:\n\n{listed}\n\nAnswer with the whole corrected document alone."
    raise CuebookError(
        f"{wiring.model} wrote nothing that can be run, asked {REPAIRS + 1} times; nothing was saved. What is still wrong:"
        f"\n{listed}",
        fix="Describe it more simply, or use a larger model.",
    )


async def _asked(prompt: str, context: Context, wiring: Wiring) -> str:
    settings = Settings(model=wiring.model, max_tokens=wiring.max_tokens)

    def nothing(*said: Any) -> None:
        return None

    call = Call("", "", 1, settings, lambda text: True, nothing, nothing)
    outcome = await wiring.performer().perform(AskModel(prompt, context), call)
    if isinstance(outcome, Failed):
        raise CuebookError(outcome.message, fix=outcome.fix)
    return outcome.text


def _document(reply: str) -> str:
    """What stands in the first code fence, or all of it."""
    found = _FENCED.search(reply)
    return (found[2] if found else reply).strip("\n") + "\n"


def _permitted(wiring: Wiring) -> None:
    ruling = decide_all((Action("model", wiring.model, True),), [strictest_policy(wiring)])
    if ruling.decision != "allow":
        raise BadInput(
            f"The policy does not let {wiring.model} be asked without asking.", fix="Choose another --model."
        )
