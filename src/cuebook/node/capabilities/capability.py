"""A capability: a name with actions, each an async function whose arguments are checked against a schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from cuebook.kernel.errors import BadInput, Refused
from cuebook.performers.nodes.protocol import Offered, OfferedAction


class NotAllowed(Refused):
    """This node does not allow it."""

    code = "not_allowed"


class BadArguments(BadInput):
    """The arguments do not fit the action."""

    code = "bad_arguments"


class Result(msgspec.Struct, frozen=True):
    """What an action returns. A function may also return a text, or any other value that JSON can express."""

    text: str = ""
    value: Any = None
    """If it is not None, it is the output of the step, instead of the text."""
    stderr: str = ""
    exit_code: int | None = None
    cut: bool = False
    """Whether something was left out because it was too long."""


def _unseen(stream: Literal["stdout", "stderr"], data: bytes) -> None:
    pass


class Work(msgspec.Struct, frozen=True):
    """One request, as an action sees it."""

    id: str
    """The same whenever the server asks for the same thing again; a node performs it at most once."""
    run: str = ""
    step: str = ""
    seconds: float = 60.0
    """How long it may take."""
    max_output: int = 32_768
    """How many bytes of text, and of error output, are kept."""
    output: Callable[[Literal["stdout", "stderr"], bytes], None] = _unseen
    """Shows output while the action runs. It is not part of the result."""


class Failure(Exception):
    """An action that failed after it had begun, with its output until then."""

    def __init__(self, code: str, message: str, fix: str = "", *, text: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.text = text
        self.stderr = stderr


Perform = Callable[[dict[str, Any], Work], Awaitable[Any]]
Check = Callable[[dict[str, Any]], Awaitable[None]]


class Action(msgspec.Struct, frozen=True):
    """Something that a capability can do.

    `function` is awaited with the arguments and the `Work`, and ended by a cancellation when its time is over or the run is
    cancelled. A `cuebook.CuebookError` that it raises becomes the failure of the step.
    """

    name: str
    about: str
    """What it does, in one sentence."""
    function: Perform
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "additionalProperties": False})
    """The JSON Schema of its arguments."""
    reads_only: bool = False
    """Whether it changes nothing."""
    idempotent: bool = False
    """Whether it may be repeated when its outcome is unknown."""
    check: Check | None = None
    """Raises `CuebookError` for arguments that are refused. It is awaited before anything is done."""
    keeps_time: bool = False
    """Whether the function ends by itself when its time is over."""


class Capability(msgspec.Struct, frozen=True):
    """Actions that belong together."""

    name: str
    actions: tuple[Action, ...]

    def action(self, name: str) -> Action | None:
        return next((one for one in self.actions if one.name == name), None)

    @property
    def offered(self) -> Offered:
        return Offered(
            name=self.name,
            actions=tuple(
                OfferedAction(
                    name=one.name,
                    about=one.about,
                    schema=one.schema,
                    reads_only=one.reads_only,
                    idempotent=one.idempotent,
                )
                for one in self.actions
            ),
        )
