"""A playbook of another Cuebook server, run there and waited for here, over the tools that such a server has.

`execute_playbook` runs to the end or to a pause, and gives the execution: its `status`, and with that what it needs. A
question is asked of whoever runs this program, and answered there. An approval is decided there, by whoever may: here it
is only waited for, with a link. The server starts an execution once for each key, so that nothing runs twice.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from cuebook.dialects.program.model import Param, Playbook
from cuebook.dialects.program.signatures import name_of
from cuebook.kernel.effects import AskHuman, Program, QuestionType, Wait
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Answer, EffectFailed, Failed

EXECUTE = "execute_playbook"
KEY = "client_key"
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 300.0
"""Between two looks at an execution that goes on by itself: twice as long each time."""
_YES = "yes"
_ENDED = {"failed": "failed", "cancelled": "been cancelled", "expired": "expired"}

Status = Literal[
    "pending", "running", "paused", "awaiting_input", "awaiting_approval", "completed", "failed", "cancelled", "expired"
]


class Server(Protocol):
    @property
    def name(self) -> str: ...

    def tool(self, tool: str, arguments: dict[str, Any], **how: Any) -> Program[Any]:
        """What a tool of the server gives; `EffectFailed` for one that fails."""


class Question(msgspec.Struct, frozen=True):
    prompt: str
    type: QuestionType = "input"
    options: tuple[str, ...] = ()


class Execution(msgspec.Struct, frozen=True):
    """A run of another server, as its tools tell of it. What else they tell is left aside."""

    execution_id: str
    status: Status
    result: Any = None
    error: Any = None
    """A text, or a table with a code and a message."""
    reason: str = ""
    """Why it is paused."""
    elicitation: Question | None = None
    link: str = ""
    """Where a person sees it, and decides."""


class Offered(msgspec.Struct, frozen=True):
    """A playbook that a server lists."""

    playbook_id: str
    name: str = ""
    description: str = ""
    inputs: tuple[OfferedInput, ...] = ()


class OfferedInput(msgspec.Struct, frozen=True):
    name: str
    required: bool = True


def playbooks_of(listed: Any, *, keyed: bool) -> list[Playbook]:
    """What a server lists, as what can be called: each by its name, and of two that have one, the first."""
    rows = listed.get("playbooks", listed.get("result")) if isinstance(listed, dict) else listed
    try:
        offered = msgspec.convert(rows, tuple[Offered, ...])
    except msgspec.ValidationError as error:
        raise EffectFailed(Failed("bad_answer", f"Its list of playbooks cannot be read: {error}.")) from None
    found: dict[str, Playbook] = {}
    for one in offered:
        params = tuple(Param(given.name, has_default=not given.required) for given in one.inputs)
        about = {"public": True, "playbook_id": one.playbook_id, "keyed": keyed}
        name = name_of(one.name or one.playbook_id.rpartition("/")[2].partition(".")[0])
        found.setdefault(name, Playbook(name, "python", params, description=one.description, metadata=about))
    return list(found.values())


def execute(server: Server, playbook: Playbook, given: dict[str, Any]) -> Program[Any]:
    """The result of an execution, once it is over. `EffectFailed` for one that failed."""
    about = playbook.metadata
    wanted = {"playbook_id": about["playbook_id"], "input_values": given}
    # With a key the server starts it once, however often it is asked: there is no doubt to ask a person about.
    how = {"key_at": KEY, "idempotent": True} if about["keyed"] else {}
    now = _execution((yield from server.tool(EXECUTE, wanted, **how)), server)
    told = False
    while now.status != "completed":
        if now.status in _ENDED:
            raise EffectFailed(_failure(now, server, playbook))
        if now.status == "awaiting_input":
            now = yield from _answered(now, server, playbook)
        elif now.status == "paused" and now.reason != "timer":
            now = yield from _resumed(now, server, playbook)
        else:
            if now.status == "awaiting_approval" and not told:
                told = True
                yield Warned("approval", f"{server.name}.{playbook.name} waits for an approval there{_at(now)}.")
            now = yield from _later(now, server)
    return now.result


def _answered(now: Execution, server: Server, playbook: Playbook) -> Program[Execution]:
    """Passes a question on, and the answer back. If somebody was faster, what they said counts."""
    asked = now.elicitation or Question(f"{server.name}.{playbook.name} asks for something{_at(now)}.")
    answer: Answer = yield AskHuman(asked.prompt, asked.type, asked.options, label=f"{server.name}.{playbook.name}")
    try:
        given = {"execution_id": now.execution_id, "response": answer.value}
        return _execution((yield from server.tool("respond_to_elicitation", given)), server)
    except EffectFailed as error:
        since = yield from _fetched(now, server)
        if error.failed.code != "tool_error" or since == now:
            raise
        return since


def _resumed(now: Execution, server: Server, playbook: Playbook) -> Program[Execution]:
    why = f" ({now.reason})" if now.reason else ""
    question = f"{server.name}.{playbook.name} is paused{why}{_at(now)}. Go on with it?"
    label = f"{server.name}.{playbook.name}"
    answer: Answer = yield AskHuman(question, "confirm", label=label)
    if answer.value.lower() != _YES:
        raise EffectFailed(Failed("paused", f"{server.name}.{playbook.name} stays paused{_at(now)}."))
    given = {"execution_id": now.execution_id}
    return _execution((yield from server.tool("resume_playbook_execution", given)), server)


def _later(now: Execution, server: Server) -> Program[Execution]:
    """The execution when it is no more where it was. Waiting costs nothing but a row."""
    seconds, since = _FIRST_SECONDS, now
    while since.status == now.status:
        yield Wait(seconds)
        seconds = min(_MOST_SECONDS, 2 * seconds)
        since = yield from _fetched(now, server)
    return since


def _fetched(now: Execution, server: Server) -> Program[Execution]:
    given = {"execution_id": now.execution_id}
    return _execution((yield from server.tool("get_playbook_execution", given, reads_only=True)), server)


def _execution(value: Any, server: Server) -> Execution:
    try:
        return (
            msgspec.json.decode(value, type=Execution) if isinstance(value, str) else msgspec.convert(value, Execution)
        )
    except msgspec.MsgspecError as error:
        raise EffectFailed(Failed("bad_answer", f"What {server.name} says is no execution: {error}.")) from None


def _failure(now: Execution, server: Server, playbook: Playbook) -> Failed:
    """Never one that a person decided here: what became of it there is this program's to handle."""
    told = now.error.get("message") if isinstance(now.error, dict) else now.error
    words = f"{server.name}.{playbook.name} has {_ENDED[now.status]}{_at(now)}"
    return Failed(f"remote_{now.status}", f"{words}. {told}" if told else f"{words}.")


def _at(now: Execution) -> str:
    return f": {now.link}" if now.link else f" (execution {now.execution_id})"
