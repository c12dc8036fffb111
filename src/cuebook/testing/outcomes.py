"""The outcome of a run, from its journal, in the form that the expectations of a case need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cuebook.dialects.dialect import Dialect
from cuebook.dialects.presentation.projection import ProgramRun
from cuebook.kernel.effects import Browse, CallNode, CallTool, RunCommand, SendHttp
from cuebook.kernel.events import ModelAsked, Performed, Performing, RunStarted, StepStarted, WaitOpened, Warned
from cuebook.kernel.journal import Entry, Key, without_void
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.run import RunRow
from cuebook.service.runs.views import RunView
from cuebook.service.service import Principal, Service
from cuebook.testing.expectations import Outcome
from cuebook.testing.scripts import Done, command_words, request_words
from cuebook.testing.stage import Asked, ToolRequest

_KINDS = {
    "RunCommand": "commands",
    "CallNode": "commands",
    "SendHttp": "requests",
    "Browse": "requests",
    "CallTool": "calls",
    "RunPython": "calls",
}
"""What an outcome lists the effects of each kind under."""


async def outcome_of(
    service: Service,
    row: RunRow,
    who: Principal = Principal(),
    *,
    unattended: bool = False,
    with_system: bool = False,
    view: RunView | None = None,
) -> Outcome:
    """The outcome of a run. The system messages are loaded only with `with_system`."""
    view = view or await service.view(row.id, who)
    outcome = Outcome(
        status=row.status,
        error="" if row.error is None else str(row.error),
        step=row.step,
        skipped=tuple(step.label for step in view.steps if step.status == "skipped"),
        outputs={label: str(text) for label, text in view.outputs.items()},
    )
    gathered: dict[str, Any] = {
        "ran": {},
        "path": [],
        "variables": {},
        "warnings": [],
        "questions": [],
        "approvals": [],
    }
    entries = without_void([entry async for entry in service.entries(row.id)])
    playbook = await service.playbook_of(row)
    assert playbook is not None
    projection = playbook.observed()
    names = [str(one["type"]) for entry in entries for one in projection.see(entry).published]
    for entry in entries:
        match entry.event:
            case RunStarted(inputs=inputs):
                gathered["variables"].update(inputs)
            case StepStarted(label=label):
                gathered["ran"][label] = None
                gathered["path"].append(label)
            case Warned(message=message):
                gathered["warnings"].append(message)
            case WaitOpened(kind="question", prompt=prompt):
                gathered["questions"].append((entry.place.step, prompt))
            case WaitOpened(kind="approval", prompt=prompt):
                gathered["approvals"].append((entry.place.step, prompt))
            case Performed(outcome=Answer()) if unattended:
                gathered["questions"].append((entry.place.step, ""))
    artifact = view.artifact
    if projection.conversation is not None:
        outcome = _with_conversation(outcome, projection.conversation.program_run(), gathered["variables"])
    return msgspec.structs.replace(
        outcome,
        ran=tuple(label for label in gathered["ran"] if label not in outcome.skipped),
        path=tuple(gathered["path"]),
        results=projection.values() or {},
        events=tuple(names),
        variables={**gathered["variables"], **view.values},
        warnings=tuple(gathered["warnings"]),
        questions=tuple(gathered["questions"]),
        approvals=tuple(gathered["approvals"]),
        artifact=None if artifact is None else str(artifact.content),
        artifact_type="" if artifact is None else artifact.type,
        asked=tuple(await _asked(service, row, entries, playbook.dialect, who, with_system)),
        **_acts(entries, view),
    )


def _with_conversation(outcome: Outcome, run: ProgramRun, variables: dict[str, Any]) -> Outcome:
    """Adds the results of a conversation. An agent's variables are also available with its name as a prefix, as in
    `Desk.size`."""
    for agent, known in run.variables.items():
        variables.update(known)
        variables.update({f"{agent}.{name}": value for name, value in known.items()})
    return msgspec.structs.replace(
        outcome,
        messages=run.messages,
        result=run.value,
        refusals=run.refusals,
        triggers=run.triggers,
    )


async def _asked(
    service: Service, row: RunRow, entries: Sequence[Entry], dialect: Dialect, who: Principal, with_system: bool
) -> list[Asked]:
    """The requests to models, in order."""
    found: list[Asked] = []
    for entry in entries:
        if not isinstance(entry.event, ModelAsked):
            continue
        sent = await service.sent(row.id, entry.seq, who) if with_system else []
        system = "\n\n".join(one.text for one in sent if one.role == "system")
        step = entry.place.step
        found.append(Asked(step, dialect.step_group(step), system, str(entry.event.prompt)))
    return found


def _acts(entries: Iterable[Entry], view: RunView) -> dict[str, Any]:
    """The commands, requests and tool calls of a run, as far as its journal contains them."""
    commands: list[Done] = []
    requests: list[Done] = []
    calls = [ToolRequest(one.step, one.tool, one.arguments) for one in view.calls]
    answered = {one.answered for one in view.calls}
    begun: set[Key] = set()
    unrecorded: set[str] = set()
    for entry in entries:
        place, event = entry.place, entry.event
        if isinstance(event, Performing):
            begun.add(place.key)
            match event.effect:
                case RunCommand() | CallNode() as effect:
                    commands.append(Done(place.step, command_words(effect)))
                case SendHttp() | Browse() as effect:
                    requests.append(Done(place.step, request_words(effect)))
                case CallTool(tool=tool, arguments=arguments):
                    calls.append(ToolRequest(place.step, tool, arguments))
        elif isinstance(event, Performed) and place.key not in begun and entry.seq not in answered:
            kind = _KINDS.get(event.fingerprint.partition(" ")[0])
            if kind is not None:
                unrecorded.add(kind)
    return {
        "commands": tuple(commands),
        "requests": tuple(requests),
        "calls": tuple(calls),
        "unrecorded": frozenset(unrecorded),
    }
