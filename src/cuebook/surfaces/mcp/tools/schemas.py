"""The arguments of each tool. A call with other arguments is rejected before anything happens."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from cuebook.dialects import registry
from cuebook.kernel.events import RunStatus


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


Name = Annotated[str, Meta(max_length=200, description="File name of the text; its suffix may show its dialect.")]


Sensitive = Annotated[
    list[str],
    Meta(
        description="The names of inputs that are personal or confidential, in addition to those that the playbook marks: "
        "everything that is stored or shown has a mark in place of their values."
    ),
]


class Text(Arguments, frozen=True):
    """A playbook: its text, or its location."""

    content: Annotated[str, Meta(description="The playbook's text.")] = ""
    playbook_id: Annotated[str, Meta(description="Instead of content: the id from list_playbooks.")] = ""
    path: Annotated[str, Meta(description="Instead of content: a file in one of the playbook folders.")] = ""
    name: Name = ""


class Explain(Text, frozen=True):
    input_values: Annotated[
        dict[str, Any], Meta(description="The playbook's inputs, by name; those left out count as unknown.")
    ] = {}
    sensitive: Sensitive = []


# --- running ---

SHORTEST = 6
"""Characters of an execution's id that identify it and are too many to guess."""
Id = Annotated[
    str,
    Meta(
        min_length=SHORTEST,
        max_length=200,
        description=f"The execution's id, or at least its first {SHORTEST} characters.",
    ),
]
Key = Annotated[str, Meta(max_length=200, description="Two calls with the same key start one execution.")]
Model = Annotated[
    str,
    Meta(
        max_length=200,
        description="provider/model, instead of the configured model; `host` if you do the steps yourself with next_step.",
    ),
]
Why = Annotated[str, Meta(max_length=10_000, description="The reason, kept in the journal.")]
Values = dict[str, Any]
Offset = Annotated[int, Meta(ge=0, le=10**9, description="Where to continue: `next_offset` of the previous answer.")]
Part = Literal["steps", "outputs", "variables", "notes", "calls"]
PARTS: tuple[Part, ...] = get_args(Part)
"""The parts that a report of a run may include in addition to its state."""
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Patience = Annotated[
    Seconds | None,
    Meta(
        description="Return after this many seconds at the latest. By default, return when the execution has ended or is waiting."
    ),
]


class Amounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A budget. Limits that are left out default to the configured ones."""

    money: Annotated[float, Meta(ge=0, le=1_000_000, description="US dollars.")] | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**12, description="Input and output together.")] | None = None
    seconds: Annotated[float, Meta(ge=0, le=10**9, description="Working time, without waiting.")] | None = None
    steps: Annotated[int, Meta(ge=1, le=10**9, description="Completed steps.")] | None = None


class Execute(Text, frozen=True):
    input_values: Annotated[Values, Meta(description="The playbook's inputs, by name.")] = {}
    sensitive: Sensitive = []
    model_id: Model = ""
    breakpoints: Annotated[list[str | int], Meta(description="Pause after these steps.")] = []
    elicit: Annotated[dict[str, str], Meta(description="Answers to questions, by step, given in advance.")] = {}
    unattended: Annotated[bool, Meta(description="Answer questions with their defaults and skip breakpoints.")] = False
    options: Annotated[Values, Meta(description="Options of the dialect.")] = {}
    budget: Annotated[
        Amounts | None, Meta(description="The most it may use before it pauses, up to the configured budget.")
    ] = None
    client_key: Key = ""
    wait_seconds: Patience = None


class RunText(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, description="The playbook's text.")]
    inputs: Annotated[Values, Meta(description="Its inputs, by name.")] = {}
    sensitive: Sensitive = []
    name: Name = ""
    model_id: Model = ""
    client_key: Key = ""
    wait_seconds: Patience = None


class Resume(Arguments, frozen=True):
    execution_id: Id
    variables: Annotated[Values, Meta(description="Values to change before it continues.")] = {}
    budget: Annotated[
        Amounts | None, Meta(description="A new total budget, if the execution paused because of its budget.")
    ] = None
    model_id: Annotated[str, Meta(max_length=200, description="The model to continue with.")] = ""
    wait_seconds: Patience = None


class Respond(Arguments, frozen=True):
    execution_id: Id
    response: Annotated[
        str, Meta(max_length=100_000, description="The person's answer; for a form, JSON that follows its schema.")
    ]
    wait_id: Annotated[str, Meta(description="Which question, if there are several.")] = ""
    wait_seconds: Patience = None


class Get(Arguments, frozen=True):
    execution_id: Id
    include: Annotated[tuple[Part, ...], Meta(description="What to report in addition to its state.")] = PARTS
    wait_seconds: Annotated[
        Seconds,
        Meta(description="Wait up to this many seconds for it to end, or to need a person since your last call."),
    ] = 0.0


class ListRuns(Arguments, frozen=True):
    playbook_id: Annotated[str, Meta(description="Only executions of this playbook (an id from list_playbooks).")] = ""
    path: Annotated[str, Meta(description="Instead of playbook_id: only executions of the playbook in this file.")] = ""
    status: Annotated[
        list[Literal[RunStatus, "interrupted"]], Meta(description="Only executions in one of these states.")
    ] = []
    owner: Annotated[str, Meta(description="Only executions that this person started.")] = ""
    trigger: Annotated[
        str, Meta(description="Only executions that this started, such as schedule:nightly, schedule or person.")
    ] = ""
    since: Annotated[
        str, Meta(description="Only executions started since then: how long ago, as in 7d, or a date as in 2026-11-01.")
    ] = ""
    until: Annotated[str, Meta(description="Only executions started before then.")] = ""
    search: Annotated[
        str, Meta(description="Only executions with these words in the playbook's name, the owner or the trigger.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=100, description="At most this many.")] = 20
    cursor: Annotated[str, Meta(description="The next_cursor of the page before, to continue there.")] = ""


Claim = Annotated[str, Meta(max_length=100, description="The claim_id of the step.")]


class NextStep(Arguments, frozen=True):
    execution_id: Id
    claim_id: Annotated[
        str,
        Meta(max_length=100, description="The claim_id of a step that you already have, to see it again and keep it."),
    ] = ""
    offset: Offset = 0
    wait_seconds: Patience = None


class CompleteStep(Arguments, frozen=True):
    execution_id: Id
    claim_id: Claim
    result: Annotated[Any, Meta(description="The result: text, or a JSON value if the step has a schema.")]
    wait_seconds: Patience = None


class CallStepTool(Arguments, frozen=True):
    execution_id: Id
    claim_id: Claim
    tool: Annotated[str, Meta(max_length=200, description="The name of one of the step's tools.")]
    arguments: Annotated[Values, Meta(description="The tool's arguments, by name.")] = {}
    wait_seconds: Patience = None


class Restart(Arguments, frozen=True):
    execution_id: Id
    step: Annotated[str, Meta(min_length=1, description="The first step to run again.")]
    variables: Annotated[Values, Meta(description="Values to change from that step on.")] = {}
    model_id: Model = ""
    wait_seconds: Patience = None


class Edit(Arguments, frozen=True):
    execution_id: Id
    content: Annotated[str, Meta(min_length=1, description="The changed text of the playbook.")]
    plan: Annotated[str, Meta(max_length=64, description="The plan that was shown to a person; empty to get it.")] = ""
    wait_seconds: Patience = None


class Cancel(Arguments, frozen=True):
    execution_id: Id
    reason: Why = ""


class ListBooks(Arguments, frozen=True):
    query: Annotated[str, Meta(max_length=200, description="Only playbooks with this in their id, title or text.")] = ""
    offset: Offset = 0


class Decide(Arguments, frozen=True):
    approval_id: Annotated[str, Meta(min_length=5, max_length=200, description="The approval's id, full or short.")]
    decision: Annotated[
        Literal["approve", "deny", "changes", "repeat", "stop"],
        Meta(
            description="approve or deny; changes, with the reason as feedback, where the approval allows it; for an action in"
            " doubt, repeat or stop."
        ),
    ]
    reason: Why = ""
    to: Annotated[str, Meta(max_length=200, description="With changes: the step to go back to.")] = ""


# --- reading and writing ---


class Read(Text, frozen=True):
    mode: Annotated[Literal["structured", "summary", "text"], Meta(description="What to show of it.")] = "structured"
    offset: Offset = 0


class Constraints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requirements for a playbook to be written."""

    steps: Annotated[int, Meta(ge=1, le=100, description="Number of steps.")] | None = None
    branching: Annotated[bool | None, Meta(description="Whether it has branches.")] = None
    inputs: Annotated[list[str], Meta(description="Names of its inputs.")] = []
    artifact_type: Annotated[str, Meta(description="Type of its artifact, such as markdown or json.")] = ""


class Write(Arguments, frozen=True):
    description: Annotated[str, Meta(min_length=1, max_length=20_000, description="What the playbook should do.")]
    constraints: Annotated[Constraints, Meta(description="Requirements for it.")] = Constraints()
    dialect: Annotated[str, Meta(description="The dialect to write it in.")] = registry.DEFAULT


class Convert(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, description="A playbook, as text or as JSON.")]
    to: Annotated[Literal["playbook", "json"], Meta(description="The target format.")]
    from_: Annotated[Literal["playbook", "json", ""], Meta(description="The source format; detected if left out.")] = (
        msgspec.field(name="from", default="")
    )
