"""Outcomes: everything that can come back from an effect, as plain values that can be stored.

A failure is an outcome, too; it reaches the program as an exception. Nothing here knows which effect gives which.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.errors import CuebookError, told


class Outcome(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """What came back from an effect."""


CostOrigin = Literal["reported", "estimated", "unknown"]


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens and money. Cached tokens are a part of the input, reasoning tokens of the output."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars; none where nobody knows."""
    origin: CostOrigin = "unknown"


SAID = "said"
"""Among the details of a failed model call: what people had been shown of its reply by then."""


class Reply(Outcome, frozen=True):
    content: Text
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """The model that really answered, as `provider/model`."""
    finish: str = "stop"
    """`stop`, `length` (cut at the token limit), `tool_calls` or `watch` (stopped by the watch). A reply that was refused or
    filtered is a failure, `model_refused`; so is an empty one, `reply_empty`, unless its effect is lenient or has a watch."""
    usage: Usage = Usage()
    seconds: float = 0.0
    retries: int = 0
    released: int | None = None
    """With a watch: how many characters observers were shown."""

    @property
    def text(self) -> str:
        return str(self.content)


REFUSED = "model_refused"
"""The failure of a model call that the model, or a filter of its provider, refused to answer."""


class ToolResult(Outcome, frozen=True):
    value: Any = None
    is_error: bool = False
    kept: int | None = None
    """Where the value was cut, the characters that are its own: what follows them is a remark about that."""
    size: int = 0
    """Where the value was cut, the bytes that it had."""


class CommandResult(Outcome, frozen=True):
    exit_code: int
    stdout: Text = Text("")
    """Where it was cut, its beginning."""
    stderr: Text = Text("")
    truncated: bool = False
    """Whether stdout was cut."""
    replaced: bool = False
    """Whether bytes of stdout that are no UTF-8 were replaced."""
    stderr_truncated: bool = False
    signal: str = ""
    """The signal that ended it, as in `SIGSEGV`; the exit code is negative then."""
    seconds: float = 0.0
    sandbox: str = ""
    """What it ran in: `landlock`, `bubblewrap` or `none`."""
    size: int = 0
    """Where stdout was cut, the bytes that it had."""
    tail: Text = Text("")
    """Where stdout was cut and its end was asked for, its last lines."""


class HttpResponse(Outcome, frozen=True):
    status: int
    headers: dict[str, str] = {}
    body: Text = Text("")
    url: str = ""
    """Where the answer came from, after redirects."""
    truncated: bool = False
    replaced: bool = False
    """Whether bytes of the body that are no text were replaced."""
    size: int = 0
    """Where the body was cut, the bytes that it has; 0 where the server did not say."""


class Source(Outcome, frozen=True):
    content: Text
    digest: str = ""


class Done(Outcome, frozen=True):
    """It happened, and there is nothing more to say (or a plain value)."""

    value: Any = None


class Answer(Outcome, frozen=True):
    value: str
    by: str = ""
    given_for: str = ""
    """The label that it was given for beforehand."""
    question: str = ""
    """What it answers, where no wait in the journal says so."""


class Resumed(Outcome, frozen=True):
    """A breakpoint was passed; `overrides` are the values that the person changed."""

    overrides: dict[str, Any] = {}
    by: str = ""


class Elapsed(Outcome, frozen=True):
    """A wait ended by its time."""


class Message(Outcome, frozen=True):
    """A wait ended by a message."""

    value: Any = None
    by: str = ""


class Moment(Outcome, frozen=True):
    at: float
    """Seconds since the epoch."""


class Drawn(Outcome, frozen=True):
    value: float
    """In [0, 1)."""


class PythonCall(msgspec.Struct, frozen=True):
    name: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}


class Called(Outcome, frozen=True):
    """A Python function stands still until these calls are answered."""

    calls: tuple[PythonCall, ...]


class Returned(Outcome, frozen=True):
    """A Python function came to its end."""

    value: Any = None


UNANSWERED = "unanswered"
"""Among the details of a failure: it began, and whoever performed it cannot say whether it was done."""


class Failed(Outcome, frozen=True):
    code: str
    message: str
    fix: str = ""
    retryable: bool = False
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, error: CuebookError) -> Failed:
        """What an error comes to for the program."""
        return cls(error.code, error.message, error.fix)

    def __str__(self) -> str:
        return told(self.message, self.fix)


AnyOutcome: TypeAlias = (
    Reply
    | ToolResult
    | CommandResult
    | HttpResponse
    | Source
    | Done
    | Answer
    | Resumed
    | Elapsed
    | Message
    | Moment
    | Drawn
    | Called
    | Returned
    | Failed
)


def is_incomplete(outcome: Any) -> bool:
    """Whether an outcome does not hold all that was given, as it was: some of it was cut off, or bytes were replaced."""
    given = outcome.details if isinstance(outcome, Failed) else {}
    cut = getattr(outcome, "truncated", False) or given.get("truncated")
    replaced = getattr(outcome, "replaced", False) or given.get("replaced")
    return bool(cut or replaced or getattr(outcome, "kept", None) is not None)


class EffectFailed(Exception):
    """Thrown into a program at the effect that failed; uncaught, it fails the run."""

    def __init__(self, failed: Failed, seq: int | None = None) -> None:
        super().__init__(str(failed))
        self.failed = failed
        self.seq = seq
        """The record of the failure, where the engine threw it."""


class Cancelled(BaseException):
    """Thrown into a program when its run is cancelled. It may still yield effects that undo its work."""
