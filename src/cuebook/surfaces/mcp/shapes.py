"""What each tool takes. A call that is not of its tool's shape does nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from cuebook.kernel.events import RunStatus


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool takes."""


Name = Annotated[str, Meta(max_length=200, description="What the text is called; its suffix may tell its dialect.")]


class Text(Arguments, frozen=True):
    """A playbook: its text, or where it is."""

    content: Annotated[str, Meta(description="The playbook's text.")] = ""
    playbook_id: Annotated[str, Meta(description="Instead: as list_playbooks gives it.")] = ""
    path: Annotated[str, Meta(description="Instead: a file in one of the playbook folders.")] = ""
    name: Name = ""


# --- running ---

SHORTEST = 6
"""Characters of an execution's id that may stand for it: whoever guesses does not hit one."""
Id = Annotated[
    str,
    Meta(
        min_length=SHORTEST,
        max_length=200,
        description=f"The execution's id, or {SHORTEST} or more of its first characters.",
    ),
]
Key = Annotated[str, Meta(max_length=200, description="Whoever comes twice with one key starts one execution.")]
Model = Annotated[str, Meta(max_length=200, description="provider/model, instead of the configured one.")]
Why = Annotated[str, Meta(max_length=10_000, description="Why; it is kept in the journal.")]
Values = dict[str, Any]
Offset = Annotated[int, Meta(ge=0, le=10**9, description="Where to go on: `next_offset` of the answer before.")]
Part = Literal["steps", "outputs", "variables", "notes"]
PARTS: tuple[Part, ...] = get_args(Part)
"""What may be told of a run besides how it stands."""
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Patience = Annotated[
    Seconds | None,
    Meta(description="Come back after so many seconds at the latest; without it, when it has ended or waits."),
]


class Amounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What may be used; for what is left out, what is configured holds."""

    money: Annotated[float, Meta(ge=0, le=1_000_000, description="US dollars.")] | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**12, description="Input and output together.")] | None = None
    seconds: Annotated[float, Meta(ge=0, le=10**9, description="Time at work; waiting is free.")] | None = None
    steps: Annotated[int, Meta(ge=1, le=10**9, description="Steps done.")] | None = None


class Execute(Text, frozen=True):
    input_values: Annotated[Values, Meta(description="The playbook's inputs, by name.")] = {}
    model_id: Model = ""
    breakpoints: Annotated[list[str | int], Meta(description="Pause after these steps.")] = []
    elicit: Annotated[dict[str, str], Meta(description="Answers to questions, by step, given beforehand.")] = {}
    unattended: Annotated[bool, Meta(description="Answer questions by their defaults, and pass breakpoints.")] = False
    options: Annotated[Values, Meta(description="What the dialect lets a caller choose.")] = {}
    budget: Annotated[
        Amounts | None, Meta(description="What it may use before it pauses: less than what is configured, never more.")
    ] = None
    client_key: Key = ""
    wait_seconds: Patience = None


class RunText(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, description="The playbook's text.")]
    inputs: Annotated[Values, Meta(description="Its inputs, by name.")] = {}
    name: Name = ""
    model_id: Model = ""
    client_key: Key = ""
    wait_seconds: Patience = None


class Resume(Arguments, frozen=True):
    execution_id: Id
    variables: Annotated[Values, Meta(description="Values to change before it goes on.")] = {}
    budget: Annotated[Amounts | None, Meta(description="What it may use in all, where a budget paused it.")] = None
    model_id: Annotated[str, Meta(max_length=200, description="The model to go on with.")] = ""
    wait_seconds: Patience = None


class Respond(Arguments, frozen=True):
    execution_id: Id
    response: Annotated[str, Meta(max_length=100_000, description="What the person said.")]
    wait_id: Annotated[str, Meta(description="Which question, where there are several.")] = ""
    wait_seconds: Patience = None


class Get(Arguments, frozen=True):
    execution_id: Id
    include: Annotated[tuple[Part, ...], Meta(description="What to tell besides how it stands.")] = PARTS
    wait_seconds: Annotated[
        Seconds, Meta(description="Wait so long for it to end or to need somebody, since you were last told.")
    ] = 0.0


class ListRuns(Arguments, frozen=True):
    playbook_id: Annotated[str, Meta(description="Only executions of this playbook, as list_playbooks gives it.")] = ""
    path: Annotated[str, Meta(description="Instead: of the one in this file of the playbook folders.")] = ""
    status: Annotated[
        list[Literal[RunStatus, "interrupted"]], Meta(description="Only those in one of these states.")
    ] = []
    limit: Annotated[int, Meta(ge=1, le=100, description="How many at the most.")] = 20


class Restart(Arguments, frozen=True):
    execution_id: Id
    step: Annotated[str, Meta(min_length=1, description="The first step that is done again.")]
    variables: Annotated[Values, Meta(description="Values to change from there on.")] = {}
    model_id: Model = ""
    wait_seconds: Patience = None


class Cancel(Arguments, frozen=True):
    execution_id: Id
    reason: Why = ""


class ListBooks(Arguments, frozen=True):
    query: Annotated[str, Meta(max_length=200, description="Only those that have this in their id, title or text.")] = (
        ""
    )
    offset: Offset = 0


class Decide(Arguments, frozen=True):
    approval_id: Annotated[str, Meta(min_length=5, max_length=200, description="The approval's id, long or short.")]
    decision: Annotated[
        Literal["approve", "deny", "repeat", "stop"],
        Meta(description="approve or deny; of what may or may not have happened, repeat or stop."),
    ]
    reason: Why = ""


# --- reading and writing ---

Dialect = Literal["markdown", "graph", "pipeline", "program"]


class Read(Text, frozen=True):
    mode: Annotated[Literal["structured", "summary", "text"], Meta(description="What is told of it.")] = "structured"
    offset: Offset = 0


class Constraints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a playbook is to have."""

    steps: Annotated[int, Meta(ge=1, le=100, description="How many.")] | None = None
    branching: Annotated[bool | None, Meta(description="Whether it goes one way or another.")] = None
    inputs: Annotated[list[str], Meta(description="Names of its inputs.")] = []
    artifact_type: Annotated[str, Meta(description="What it leaves behind, as in markdown or json.")] = ""


class Write(Arguments, frozen=True):
    description: Annotated[str, Meta(min_length=1, max_length=20_000, description="What the playbook is to do.")]
    constraints: Annotated[Constraints, Meta(description="What it is to have.")] = Constraints()
    dialect: Annotated[Dialect, Meta(description="How it is written.")] = "markdown"


class Convert(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, description="A Markdown playbook, or one as JSON.")]
    to: Annotated[Literal["playbook", "json"], Meta(description="What it is to become.")]
    from_: Annotated[Literal["playbook", "json", ""], Meta(description="What it is; left out, it is found out.")] = (
        msgspec.field(name="from", default="")
    )
