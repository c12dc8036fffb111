"""`cuebook new`: small playbooks to begin with, each of them valid as it stands."""

from __future__ import annotations

import json
import os
import re
import shlex

import click

from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import options
from cuebook.surfaces.cli.authoring import SUFFIX, write_text
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import complain, say
from cuebook.surfaces.reading.findings import checked
from cuebook.surfaces.reading.systems import SYSTEMS

LINEAR = """\
# {title}

What this playbook is for, in a sentence. Only people read this; no model does.

## SYSTEM

You write clearly and briefly.

## INPUTS

- `topic` (string: the sea): What it is about

## STEP 1: Collect

List three facts about {{{{topic}}}}. One short line each.

## STEP 2: Write

Write one paragraph about {{{{topic}}}} that uses the facts of step 1.

## ARTIFACTS

type: markdown
"""

BRANCHING = """\
# {title}

Sorts a message and answers it according to its kind.

## SYSTEM

You answer customers in plain words.

## INPUTS

- `message` (text: The lamp I bought yesterday does not turn on.): What the customer wrote
- `length` (enum: short, long): How long the answer may be

## STEP 1: Sort

Which kind of message is this? Answer with one word: complaint, question or praise.

{{{{message}}}}

@output(kind: enum, "complaint", "question", "praise")

## STEP 2: Answer

Customer's message:

{{{{message}}}}

```if kind == "complaint"```

### STEP 2a: Apologise

Write a {{{{length}}}} answer that apologises and says what happens next.

```elif kind == "question"```

### STEP 2b: Reply

Write a {{{{length}}}} answer to the question.

```else```

### STEP 2c: Thank

Write a {{{{length}}}} thank-you.

```endif```

@output(answer)

## STEP 3: Check

Does this answer promise anything that we may not keep? Say yes or no, and why.

{{{{answer}}}}

## ARTIFACTS

type: markdown
"""

QUESTIONS = """\
# {title}

Asks a person on the way. Unattended, each question is answered by its default.

## INPUTS

- `product` (string: a folding bicycle): What is offered

## STEP 1: Draft

Write three slogans for {{{{product}}}}, one a line.

## STEP 2: Choose

@elicit(select, "Which slogan do you like best?", "first", "second", "third", default:"first")
@output(choice)

## STEP 3: Comment

@elicit(input, "What should be different about it?", default:"Nothing.")
@output(wish)

## STEP 4: Limit

@elicit(confirm, "May it be longer than five words?", default:"yes")
@output(longer)

## STEP 5: Revise

Take the {{{{choice}}}} slogan of step 1 and change it as wished: {{{{wish}}}}

More than five words allowed: {{{{longer}}}}

## ARTIFACTS

type: markdown
"""

TOOLS = """\
# {title}

Calls a tool, then lets a model read what came back. The tool `Glob` comes with Cuebook; `@tool(SERVER, TOOL, ...)`
calls one of an MCP server that cuebook.toml names. What a tool may do is for the policy to say: see `cuebook explain`.

## INPUTS

- `files` (string: *.md): Which files to look at, as a pattern

## STEP 1: Look

@tool(builtin, Glob, {{"pattern": "{{{{files}}}}"}})
@output(found)

## STEP 2: Report

Say in two sentences what these files may be about, judging by their names:

{{{{found}}}}

## ARTIFACTS

type: markdown
"""

WORKFLOW = """\
id: {id}
name: {title}
description: Sorts a message and answers it according to its kind.
entry: sort
inputs:
  message:
    type: string
    description: What the customer wrote
    default: The lamp I bought yesterday does not turn on.
rules:
  - Write in plain words, three sentences at most.
nodes:
  sort:
    name: Sort
    instruction: Say of which kind the message in the input is.
    output:
      type: object
      properties:
        kind: {{type: string, enum: [complaint, question, other]}}
      required: [kind]
  apologise:
    name: Apologise
    instruction: Write an answer that apologises and says what happens next.
  answer:
    name: Answer
    instruction: Write an answer to the message.
edges:
  - from: sort
    to: apologise
    when: kind is complaint
  - from: sort
    to: answer
"""

PIPELINE = """\
id: {id}
name: {title}
description: Counts the files of a folder, and keeps a report once somebody has approved it.
args:
  folder:
    type: string
    description: Which folder to look at
    default: .
steps:
  - id: list
    name: List the files
    command: cli find ${{folder}} -maxdepth 1 -type f
    effect: read
    output: text
  - id: count
    name: Count them
    command: cli wc -l
    stdin: $list.stdout
    effect: read
    output: {{type: json, schema: {{type: integer}}}}
  - id: keep
    name: Keep the report
    command: cli tee report.txt
    stdin: $list.stdout
    condition: $count.json > 0
    approval: required
    rollback_hint: Remove report.txt.
"""

PROGRAM = """\
---
title: {title}
---

# Desk

You help people to count what they have. You are brief and friendly.

```python
@playbook
async def Sum(amounts: list) -> float:
    \"\"\"All amounts together.\"\"\"
    return sum(amounts)
```

## Main() -> float

Asks for amounts until there is none left, and returns their sum.

### Triggers

- T1:BGN At the beginning

### Steps

- 01:EXE $amounts:list = []
- 02:EXE $more:bool = true
- 03:CND While $more
  - 03.01:QUE Say(user, Ask for an $amount:float)
  - 03.02:YLD for user
  - 03.03:EXE $amounts = $amounts + [$amount]
  - 03.04:QUE Say(user, Ask whether there is $more:bool to add)
  - 03.05:YLD for user
  - 03.06:JMP 03
- 04:QUE $sum:float = Sum(amounts=$amounts)
- 05:YLD for call
- 06:QUE Say(user, Tell them that it is $sum in all)
- 07:RET $sum
"""

TEMPLATES = {"linear": LINEAR, "branching": BRANCHING, "questions": QUESTIONS, "tools": TOOLS}

_OTHERS = {"graph": WORKFLOW, "pipeline": PIPELINE, "program": PROGRAM}

_YAML = ((".yml", ".yaml", ".json"), ".yml")
_SUFFIXES = {"markdown": ((".md",), SUFFIX), "graph": _YAML, "pipeline": _YAML, "program": ((".pbasm",), ".pbasm")}
"""By dialect: how a name may end, and what is added to one that ends in another way."""

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@command(
    "new",
    [
        click.Argument(["name"]),
        click.Option(
            ["--template"],
            type=click.Choice(list(TEMPLATES)),
            help="What a Markdown playbook shows; otherwise linear.",
        ),
        click.Option(
            ["--dialect"],
            type=click.Choice(list(_SUFFIXES)),
            help="Otherwise what NAME ends in, or markdown.",
        ),
        click.Option(["--from", "description"], metavar="TEXT", help="Have the model draft it from a description."),
        *options.SETTINGS[:2],
    ],
)
def new_command(given: Given) -> int:
    """Write a small playbook to begin with.

    NAME is its name or path; without a suffix, .playbook.md is added, .yml for a workflow graph or a pipeline, or .pbasm
    for a program. A file that is there already is left alone. With --from, the configured model drafts it: the draft is
    checked, mended at most twice, and saved only if it is valid. TEXT may be @FILE, or - for stdin.

    \b
    linear     inputs and steps, one after the other
    branching  a step that goes the way that an earlier one decides
    questions  a person chooses, comments and confirms
    tools      a tool is called, and a model reads its result
    """
    dialect = given["dialect"] or _dialect_of(given["name"])
    if given["template"] and (dialect != "markdown" or given["description"]):
        raise BadInput("--template is for a Markdown playbook that nobody drafts.", fix="Take it out.")
    path = _path(given["name"], *_SUFFIXES[dialect])
    if given["description"] is not None:
        text = _drafted(given, path, dialect)
    elif dialect in _OTHERS:
        text = _OTHERS[dialect].format(title=_quoted(_title(path)), id=_id(path))
    else:
        text = TEMPLATES[given["template"] or "linear"].format(title=_title(path))
    write_text(path, text, replace=False)
    say(path)
    complain(f"`cuebook run {shlex.quote(path)} --help` shows how to run it.")
    return 0


def _drafted(given: Given, path: str, dialect: str) -> str:
    from cuebook.surfaces.cli import drafting, session

    if os.path.exists(path):  # before a model is asked for nothing
        raise BadInput(f"{path} is there already.", fix="Choose another name, or remove it first.")
    system = SYSTEMS.get(dialect)
    if system is None:
        raise BadInput(f"--from does not draft a {dialect}.", fix=f"Choose one of {', '.join(SYSTEMS)}.")
    description = options.value_of("--from", given["description"])
    return drafting.draft(description, system, lambda text: checked(text, path), session.wiring_of(given))


def _dialect_of(name: str) -> str:
    if name.lower().endswith(".pbasm"):
        return "program"
    return "graph" if name.lower().endswith(_YAML[0]) else "markdown"


def _path(name: str, suffixes: tuple[str, ...], suffix: str) -> str:
    stem = os.path.basename(name)
    if not stem.strip(". ") or not _NAME.fullmatch(name):
        raise BadInput(f"{name[:80]!a} cannot be the name of a file.", fix="Give a name as in `cuebook new report`.")
    return name if stem.endswith(suffixes) else f"{name}{suffix}"


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].removesuffix(".playbook")


def _id(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", _stem(path).lower()).strip("-") or "workflow"


def _quoted(text: str) -> str:
    """As YAML takes any text."""
    return json.dumps(text, ensure_ascii=False)


def _title(path: str) -> str:
    words = re.sub(r"[\s_-]+", " ", _stem(path)).strip()
    return (words[:1].upper() + words[1:]) or "Playbook"
