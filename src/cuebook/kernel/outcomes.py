"""Outcomes: everything that can come back from an effect, as plain values that can be stored.

A failure is an outcome too; it reaches the program as an exception. Nothing here depends on which effect returns which
outcome.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from cuebook.kernel.context import Attachment, Text, ToolCall
from cuebook.kernel.errors import CuebookError, with_fix
from cuebook.kernel.files import FileRef


class Outcome(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """The result of an effect."""


CostOrigin = Literal["reported", "estimated", "unknown"]


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens and money. Cached tokens are part of the input, reasoning tokens part of the output."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars; None if unknown."""
    origin: CostOrigin = "unknown"


SUPERSEDED = "superseded"
"""The failure of a branch that was interrupted or never began because the `All` around it was decided without it."""

SAID = "said"
"""Key in the details of a failed model call: the part of the reply that users had already seen."""


class Reply(Outcome, frozen=True):
    content: Text
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """The model that actually answered, as `provider/model`."""
    finish: str = "stop"
    """`stop`, `length` (cut at the token limit), `tool_calls` or `watch` (stopped by the watch). A refused or filtered
    reply is the failure `model_refused`; an empty reply is the failure `reply_empty`, unless its effect is lenient or
    has a watch."""
    usage: Usage = Usage()
    seconds: float = 0.0
    retries: int = 0
    released: int | None = None
    """With a watch: how many characters observers saw."""
    window: int | None = None
    """The context window of the model that answered, in tokens, if it is known."""
    thinking: tuple[dict[str, Any], ...] = ()
    """The model's reasoning before its calls, in its provider's own form, if the provider wants it back."""
    session: str = ""
    """The session of the coding agent that answered. Its calls are requests that it waits for."""

    @property
    def text(self) -> str:
        return str(self.content)


REQUESTED = "changes_requested"
"""Failure code of an effect whose approver asked for changes first. Only effects that allow it can fail with it."""

REJECTED_BY = "rejected_by"
"""Key in the details of a failed model call: the provider that rejected our key, or lacks one. The call waits for another key."""

REFUSED = "model_refused"
"""The failure of a call that the model, or its provider's filter, refused to answer."""


class ToolResult(Outcome, frozen=True):
    value: Any = None
    is_error: bool = False
    kept: int | None = None
    """If the value was cut, the number of characters that were kept; the rest is a note about the cut."""
    size: int = 0
    """The original size in bytes, if the value was cut."""
    attachments: tuple[Attachment, ...] = ()
    """Images and documents for the model that made the call. The value describes them."""


class CommandResult(Outcome, frozen=True):
    exit_code: int
    stdout: Text = Text("")
    """Only its beginning, if it was cut."""
    stderr: Text = Text("")
    truncated: bool = False
    """Whether stdout was cut."""
    replaced: bool = False
    """Whether invalid UTF-8 bytes in stdout were replaced."""
    stderr_truncated: bool = False
    signal: str = ""
    """The signal that killed it, such as `SIGSEGV`. If set, the exit code is negative."""
    seconds: float = 0.0
    sandbox: str = ""
    """The sandbox: `landlock`, `bubblewrap` or `none`."""
    size: int = 0
    """The original size of stdout in bytes, if it was cut."""
    tail: Text = Text("")
    """The last lines of stdout, if it was cut and its end was requested."""
    files: tuple[FileRef, ...] = ()
    """The files that it was asked to produce."""


class HttpResponse(Outcome, frozen=True):
    status: int
    headers: dict[str, str] = {}
    body: Text = Text("")
    url: str = ""
    """The final URL after redirects."""
    truncated: bool = False
    replaced: bool = False
    """Whether invalid bytes in the body were replaced."""
    size: int = 0
    """The original size of the body in bytes, if it was cut; 0 if unknown."""
    files: tuple[FileRef, ...] = ()
    """The body, if it was downloaded to a file."""


class Page(Outcome, frozen=True):
    """The page of the run's browser after a command."""

    url: str
    title: str = ""
    text: Text = Text("")
    """The result of the command: the text that was extracted, otherwise the text of the page."""
    html: Text = Text("")
    """The elements of the page as HTML, if the command shows or changes the page."""
    picture: Attachment | None = None
    """A picture of the page, in which secrets are covered."""
    status: int | None = None
    """The HTTP status of the page, if this command opened it."""
    elements: dict[str, str | None] = {}
    """The text of the elements that were looked at, by selector; null for an element that the page does not have."""
    opened: bool = False
    """Whether the command opened another page."""
    truncated: bool = False
    """Whether the text was cut."""
    html_truncated: bool = False
    size: int = 0
    """The original size of the text in bytes, if it was cut."""
    files: tuple[FileRef, ...] = ()
    """The file that was downloaded."""


class Source(Outcome, frozen=True):
    content: Text
    digest: str = ""


class Done(Outcome, frozen=True):
    """The effect happened; there is no result, or only a plain value."""

    value: Any = None


class Answer(Outcome, frozen=True):
    value: str
    by: str = ""
    given_for: str = ""
    """The label for which it was given in advance."""
    question: str = ""
    """The question, if no wait in the journal contains it."""


class Resumed(Outcome, frozen=True):
    """A breakpoint was passed; `overrides` are the values that the user changed."""

    overrides: dict[str, Any] = {}
    by: str = ""


class Elapsed(Outcome, frozen=True):
    """A wait ended because its time was up."""


class Message(Outcome, frozen=True):
    """A wait ended because a message arrived."""

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
    """A Python function is waiting for answers to these calls."""

    calls: tuple[PythonCall, ...]


class Returned(Outcome, frozen=True):
    """A Python function returned."""

    value: Any = None


class PlaybookResult(Outcome, frozen=True):
    """A child run completed."""

    run: str
    text: Text = Text("")
    """Its artifact; without one, its result as JSON."""
    type: str = ""
    """The type of the artifact."""
    value: Any = None
    """What its program returned."""
    used: dict[str, float] = {}
    """What it used since its last report to its parent, by the names of `Totals`."""
    files: tuple[FileRef, ...] = ()
    """The files that its steps produced. Of two with the same name, the later one."""


SUPERSEDED_RUN = "superseded_run"
"""The failure of a run that another run continues with a changed text."""


CHILD_FAILED = "child_failed"
"""The failure of a child run. Its details name the run and its own failure."""
CHILD, USED = "child", "used"
"""Keys in these details: the id of the child run, and what it used, as in `PlaybookResult`."""


LACKS_SECRET = "lacks_secret"
"""Key in the details of a failure: a secret is unavailable just now, so the effect waits instead of failing."""
UNANSWERED = "unanswered"
"""Key in the details of a failure: the effect began, and its performer cannot tell whether it happened."""


RESUMABLE = "resumable"
"""Key in the details of such a failure: a coding agent's process was lost, and its session may go on in another one."""


class Failed(Outcome, frozen=True):
    code: str
    message: str
    fix: str = ""
    retryable: bool = False
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, error: CuebookError) -> Failed:
        """The failure that the program receives for an error."""
        return cls(error.code, error.message, error.fix)

    def __str__(self) -> str:
        return with_fix(self.message, self.fix)


AnyOutcome: TypeAlias = (
    Reply
    | ToolResult
    | CommandResult
    | HttpResponse
    | Page
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
    | PlaybookResult
    | Failed
)


def is_incomplete(outcome: Any) -> bool:
    """Whether an outcome is incomplete: part of it was cut off, or bytes were replaced."""
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
        """The record of the failure, if the engine threw it."""


class Cancelled(BaseException):
    """Thrown into a program when its run is cancelled. It may still yield effects that undo its work."""

    def __init__(self, message: str = "", *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt
        """Whether the effect that it interrupted may have happened."""
