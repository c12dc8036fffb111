"""The text that a model sees: the reply contract, the program, the playbook it executes, and its position.

The contract and the program come first and never change, so providers can cache them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.machine.frames import Error, QueuedCall, Saved, is_private
from cuebook.dialects.program.model import Agent, ListingLine, Playbook, ProgramText
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import NotComputable, evaluate
from cuebook.dialects.program.values.expressions import CallOf
from cuebook.dialects.program.values.placeholders import Placeholder, filled, placeholders

_SHORT = 100
_LONGEST = 400
"""The maximum length of a value in the state, in characters. The full value is an artifact, or in the history."""

LONG_RESULT = 2_000
"""The maximum length of a result that a model sees, in characters. A longer result becomes an artifact."""
MOST_LOADED = 20_000
"""The maximum length of an argument or a loaded artifact, in characters."""
PRIVATE = "(private)"

CONTRACT = """\
You execute natural-language programs, line by line, exactly as their listings say. A runtime reads your reply, verifies \
its control flow, and does what you queued.

A line is `number:CODE text`. EXE: do it yourself. TNK: think first. QUE: queue a call. CND: a condition or a loop, with \
its body below it. JMP: go to that line. CHK: apply that note. RET: return. YLD: give control back.

Write your reply in this format and in no other:
recap – one sentence: where things stand
plan – one sentence: what you do now
`Step["Playbook:01:CODE"]` then what that line does:
  `Var[$name, value]` sets a variable (a Python or JSON value)
  `$name = Playbook(argument=$x)` or `Playbook($x)` queues a call; its result is there after `yld call`
  `Say("user", "...")` queues a message
  `Artifact[$name, "summary", "content"]` keeps a long text
trig? no
... the next step, and so on, until a line yields ...
`Step["Playbook:09:RET"]` `Return[value]` `Var[$__, "one to five lines: what was done"]`
yld user | call | return | exit

Rules:
- Go from line to line as the listing does. CND, JMP, CHK and TNK lines may be left out; no other line may be passed over.
- After each step and each variable, look at the triggers: `trig? no`, or `trig? `Trigger["Playbook:T1:CND"]`` followed by \
`Playbook(...)` and `yld call`.
- At a YLD line, yield as it says and stop. End every reply with exactly one yield, or with a return.
- A call's result is not known before it has run: yield for it before you use it.
- Something the listing does not provide for: `what? ...`, then go on with a legal line.
- Use only playbooks, variables and lines that exist. `$_` is the result of the last call; do not set it."""

REACT = """\
This playbook has no listing. Think, act and look at the results until it is done:
01:TNK understand the task and when it is done
02:QUE call what you need, or speak to the user; yield for it
03:EXE look at the results; go back to 02 until it is done
04:RET return the result"""

MESSAGES = "Messages"
"""The name of the frame that decides what a message triggers."""

DISPATCH = """\
A message came in while nothing was being executed. If it is what one of the triggers waits for, fire that trigger: \
`trig? `Trigger["Playbook:T1:EVT"]``, the call of its playbook, `yld call`. Otherwise answer with `Say("user", "...")` if \
that helps. Then return."""


OTHERS = "What other agents wait for:"


def program_text(program: ProgramText, agent: Agent) -> str:
    """The role of the model, and the playbooks it can call."""
    parts = [f"You are the agent {agent.name}."]
    if agent.description.strip():
        parts.append(agent.description.strip())
    if agent.playbooks:
        parts.append("Your playbooks:\n" + "\n".join(f"- {signature(one)}" for one in agent.playbooks.values()))
    triggers = [line for one in agent.playbooks.values() for line in _triggers(one)]
    if triggers:
        parts.append("Your triggers:\n" + "\n".join(triggers))
    for other in program.agents.values():
        public = [f"- {other.name}.{signature(one)}" for one in other.playbooks.values() if one.public]
        if other.name != agent.name and (public or other.remote is not None):
            parts.append("\n".join([f"The agent {other.name}: {_first(other.description)}".rstrip(": "), *public]))
    return "\n\n".join(parts)


def signature(playbook: Playbook) -> str:
    params = ", ".join(f"${param.name}{f':{param.type}' if param.type else ''}" for param in playbook.params)
    returns = f" -> {playbook.returns}" if playbook.returns else ""
    words = _first(playbook.description)
    return f"{playbook.name}({params}){returns}{f': {words}' if words else ''}"


def _triggers(playbook: Playbook) -> list[str]:
    return [
        f'- {one.text}: `Trigger["{playbook.name}:{one.id}:{one.kind}"]`, then call {playbook.name}'
        for one in playbook.triggers
        if one.kind != "BGN"
    ]


def others_text(program: ProgramText, agent: str, known: Iterable[str]) -> str:
    """The triggers of other agents that a message can fire; empty if there are none."""
    lines = []
    for id in known:
        name, _, number = id.rpartition(":")
        owner, _, playbook = name.rpartition(".")
        if owner and owner != agent:
            trigger = next(one for one in program.agents[owner].playbooks[playbook].triggers if one.id == number)
            lines.append(f'- {trigger.text}: `Trigger["{id}:{trigger.kind}"]`, then call {name}')
    return "\n".join([OTHERS, *lines]) if lines else ""


def _first(text: str) -> str:
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def frame_text(playbook: Playbook, description: str, arguments: Mapping[str, Any]) -> str:
    """The playbook to execute, with its arguments."""
    parts = [f"## {signature(playbook)}"]
    if description.strip():
        parts.append(description.strip())
    if playbook.steps:
        parts.append(
            "\n".join(f"{_indent(line)}{line.number}:{line.code} {line.text}".rstrip() for line in playbook.steps)
        )
    else:
        parts.append(REACT)
    if playbook.notes:
        parts.append("Notes:\n" + "\n".join(f"{note.id} {note.text}" for note in playbook.notes))
    given = ", ".join(f"${name}={PRIVATE if is_private(name) else cut(value)}" for name, value in arguments.items())
    parts.append(f"Executing {playbook.name}({given})")
    return "\n\n".join(parts)


def _indent(line: ListingLine) -> str:
    return "  " * line.number.count(".")


def instruction(listing: Listing, position: Position, legal: Iterable[ListingLine], *, again: bool = False) -> str:
    """Tell the model where to continue. `again` means that it was executed in part."""
    name = listing.name
    if not listing.lines:
        return f"Continue {name} with the results so far. Do not repeat what was done." if again else f"Execute {name}."
    following = " or ".join(f"{line.number}:{line.code}" for line in legal)
    if not position.line:
        return f"Execute {name} from {listing.lines[0].number}."
    if position.status == "arrived":
        return f"Execute {name} from {position.line}."
    more = f" Next: {following}." if following else " The listing is over."
    return f"{name}:{position.line} was executed - continue execution.{more}"


def state_text(
    stack: Iterable[str], variables: Mapping[str, Any], artifacts: Mapping[str, Saved], loaded: Iterable[str]
) -> str:
    """The state as JSON. Its size does not grow with the run."""
    seen = set(loaded)
    state: dict[str, Any] = {
        "call_stack": list(stack),
        "variables": {f"${name}": short(value) for name, value in variables.items()},
    }
    if artifacts:
        state["artifacts"] = {
            f"${name}": one.summary if name in seen else f"{one.summary} (not loaded)"
            for name, one in artifacts.items()
            if not is_private(name)
        }
    return _WRITTEN.encode(state)


def short(value: Any) -> Any:
    """The value, or the beginning of a long value."""
    return value if len(shown(value)) <= _LONGEST else cut(value, _LONGEST)


def cut(value: Any, most: int = MOST_LOADED) -> str:
    """The value as JSON text, or the beginning of a long value."""
    text = shown(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def call_text(queued: QueuedCall, outcome: Any, summary: str, artifact: str = "") -> str:
    """The text that the caller's model sees for a finished call. `artifact` is the name under which a long result is kept."""
    call = queued.call
    given = [(str(at), "", one) for at, one in enumerate(call.args)]
    given += [(name, f"{name}=", one) for name, one in call.named]
    args = ", ".join(before + _argument(one, key in queued.private or is_private(key)) for key, before, one in given)
    target = f"${queued.target} = " if queued.target else ""
    if isinstance(outcome, Error):
        return f"{target}{queued.name}({args}) failed: {outcome.message}"
    words = PRIVATE if is_private(queued.target) else cut(outcome, _LONGEST if artifact else LONG_RESULT)
    result = f"{target}{queued.name}({args}) -> {words}"
    if artifact:
        result += f' - kept as ${artifact}: LoadArtifact("{artifact}") shows it'
    return f"{result}\n{summary}" if summary else result


def _argument(value: Any, private: bool) -> str:
    return PRIVATE if private else cut(getattr(value, "value", "..."), _LONGEST)


_WRITTEN = json.JSONEncoder(ensure_ascii=False)
_SHOWN = json.JSONEncoder(ensure_ascii=False, default=str)


def shown(value: Any) -> str:
    return _SHOWN.encode(value)


CHECK = "Look at these triggers and at nothing else."
"""The first words of the question about which triggers apply."""


def check_text(triggers: Iterable[str], state: str) -> str:
    """Ask which triggers apply, after a reply that did not check them."""
    return (
        f"{CHECK} Does one of them apply now?\n"
        + "\n".join(triggers)
        + f"\n\nState: {state}\n\nAnswer `trig? no`, or `trig? ` with the Trigger and the call of its playbook."
    )


# --- descriptions -------------------------------------------------------------------------------------------


def calls_in(description: str, knows: Callable[[str], bool]) -> Iterator[tuple[str, Call]]:
    """The calls that a description needs, each with the name under which its result is kept."""
    if "{" not in description:
        return
    for one in placeholders(description):
        if isinstance(one.value, CallOf) and knows(one.value.name):
            yield slot_of(one), Call(one.value.name, one.value.args, one.value.named)


def slot_of(placeholder: Placeholder) -> str:
    return f"{{{placeholder.source}}}"


def rendered(description: str, variables: Mapping[str, Any], slots: Mapping[str, Any]) -> str:
    """Return the description with placeholders filled in. Placeholders without a value are left as written."""
    if "{" not in description:
        return description

    def value(one: Placeholder) -> str:
        slot = slot_of(one)
        if slot in slots:
            return _filled_text(slots[slot])
        try:
            return _filled_text(evaluate(one.value, variables))
        except NotComputable:
            return slot

    return filled(description, value)


def _filled_text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
