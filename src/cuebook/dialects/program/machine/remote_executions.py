"""Runs a playbook on another Cuebook server and waits for it, through the tools of that server.

`execute_playbook` runs to the end or to a pause, and returns the execution: its `status` and what it needs. Questions
are passed to the person who runs this program, and the answers are passed back. Approvals are handled on the other
server; this program only waits, and shows a link. The server starts one execution per key, so nothing runs twice.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from cuebook.dialects.program.model import Param, Playbook
from cuebook.dialects.program.parse.signatures import name_of
from cuebook.kernel.effects import AskHuman, Program, QuestionType, Wait
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Answer, EffectFailed, Failed

EXECUTE = "execute_playbook"
KEY = "client_key"
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 300.0
"""The pause between two polls of a running execution. It doubles each time."""
_YES = "yes"
_ENDED = {"failed": "failed", "cancelled": "been cancelled", "expired": "expired"}

Status = Literal[
    "pending", "running", "paused", "awaiting_input", "awaiting_approval", "completed", "failed", "cancelled", "expired"
]


class Server(Protocol):
    @property
    def name(self) -> str: ...

    def tool(self, tool: str, arguments: dict[str, Any], **how: Any) -> Program[Any]:
        """Call a tool of the server and return its result. Raise `EffectFailed` if it fails."""


class Question(msgspec.Struct, frozen=True):
    prompt: str
    type: QuestionType = "input"
    options: tuple[str, ...] = ()


class Execution(msgspec.Struct, frozen=True):
    """A run on another server, as its tools report it. Other fields are ignored."""

    execution_id: str
    status: Status
    result: Any = None
    error: Any = None
    """A string, or a mapping with a code and a message."""
    reason: str = ""
    """Why it is paused."""
    elicitation: Question | None = None
    link: str = ""
    """A URL where someone can view it and decide."""


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
    """The playbooks that a server lists. If two have the same name, the first wins."""
    rows = listed.get("playbooks", listed.get("result")) if isinstance(listed, dict) else listed
    try:
        offered = msgspec.convert(rows, tuple[Offered, ...])
    except msgspec.ValidationError as error:
        raise EffectFailed(Failed("bad_answer", f"Its list of playbooks is invalid: {error}.")) from None
    found: dict[str, Playbook] = {}
    for one in offered:
        params = tuple(Param(given.name, has_default=not given.required) for given in one.inputs)
        about = {"public": True, "playbook_id": one.playbook_id, "keyed": keyed}
        name = name_of(one.name or one.playbook_id.rpartition("/")[2].partition(".")[0])
        found.setdefault(name, Playbook(name, "python", params, description=one.description, metadata=about))
    return list(found.values())


def execute(server: Server, playbook: Playbook, given: dict[str, Any]) -> Program[Any]:
    """Return the result of an execution once it has ended. Raise `EffectFailed` if it failed."""
    about = playbook.metadata
    wanted = {"playbook_id": about["playbook_id"], "input_values": given}
    # With a key the server starts it only once, so nobody has to be asked whether it happened.
    how = {"key_at": KEY, "idempotent": True} if about["keyed"] else {}
    now = _execution((yield from server.tool(EXECUTE, wanted, **how)), server)
    warned = False
    while now.status != "completed":
        if now.status in _ENDED:
            raise EffectFailed(_failure(now, server, playbook))
        if now.status == "awaiting_input":
            now = yield from _answered(now, server, playbook)
        elif now.status == "paused" and now.reason != "timer":
            now = yield from _resumed(now, server, playbook)
        else:
            if now.status == "awaiting_approval" and not warned:
                warned = True
                yield Warned(
                    "approval", f"{server.name}.{playbook.name} is waiting for approval on that server{_at(now)}."
                )
            now = yield from _later(now, server)
    return now.result


def _answered(now: Execution, server: Server, playbook: Playbook) -> Program[Execution]:
    """Forward a question and return the answer. If it was answered there in the meantime, that answer counts."""
    asked = now.elicitation or Question(f"{server.name}.{playbook.name} needs input{_at(now)}.")
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
    question = f"{server.name}.{playbook.name} is paused{why}{_at(now)}. Continue?"
    label = f"{server.name}.{playbook.name}"
    answer: Answer = yield AskHuman(question, "confirm", label=label)
    if answer.value.lower() != _YES:
        raise EffectFailed(Failed("paused", f"{server.name}.{playbook.name} stays paused{_at(now)}."))
    given = {"execution_id": now.execution_id}
    return _execution((yield from server.tool("resume_playbook_execution", given)), server)


def _later(now: Execution, server: Server) -> Program[Execution]:
    """Poll until the status has changed. Waiting costs only a row in the store."""
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
        raise EffectFailed(Failed("bad_answer", f"{server.name} did not return an execution: {error}.")) from None


def _failure(now: Execution, server: Server, playbook: Playbook) -> Failed:
    """The failure of a remote execution. A program can handle it, no matter who caused it there."""
    message = now.error.get("message") if isinstance(now.error, dict) else now.error
    words = f"{server.name}.{playbook.name} has {_ENDED[now.status]}{_at(now)}"
    return Failed(f"remote_{now.status}", f"{words}. {message}" if message else f"{words}.")


def _at(now: Execution) -> str:
    return f": {now.link}" if now.link else f" (execution {now.execution_id})"
