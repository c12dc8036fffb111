"""The requests of the runtime contract, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cuebook.kernel.errors import BadInput

_YEAR = 366 * 24 * 3600 * 1000

Words = Annotated[str, Meta(min_length=1)]
Reason = Annotated[str, Meta(max_length=10_000)]
Duration = Annotated[int, Meta(gt=0, le=_YEAR)]
"""Milliseconds."""
Patience = Annotated[int, Meta(ge=0, le=_YEAR)]
"""Milliseconds; 0 is allowed."""


class InvalidRequest(BadInput):
    """The request is malformed."""

    code = "invalid_request"


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Run(_Request, frozen=True, tag_field="action", tag="run"):
    """Starts a run."""

    pipeline: Words
    """The id or path of a stored playbook, or a playbook's text."""
    args_json: str | None = None
    args: dict[str, Any] | None = None
    cwd: Words | None = None
    timeout_ms: Duration | None = None
    """The working time that the run may use. Waiting for someone does not count."""
    wait_ms: Patience | None = None
    """How long the caller waits. The run continues after that."""
    max_output_bytes: Annotated[int, Meta(gt=0)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Two requests with the same key start one run."""


class Resume(_Request, frozen=True, tag_field="action", tag="resume"):
    """Decides what a run is waiting for."""

    token: Words
    """A resume token, or a wait's id or a prefix of it."""
    approve: bool
    reason: Reason = ""
    answer: str | None = None
    """The answer to a question that needs more than yes or no."""
    timeout_ms: Duration | None = None
    """The maximum working time from now on. It raises the time budget only if the budget is spent."""
    wait_ms: Patience | None = None


class Cancel(_Request, frozen=True, tag_field="action", tag="cancel"):
    """Cancels a run; a second request stops it immediately."""

    run_id: Words
    reason: Reason = ""
    wait_ms: Patience | None = None


class Status(_Request, frozen=True, tag_field="action", tag="status"):
    """Asks for the status of a run."""

    run_id: Words
    wait_ms: Patience | None = None


Request = Run | Resume | Cancel | Status


def read(request: Mapping[str, Any] | str | bytes) -> Request:
    """Parses a request from JSON text or plain values. Raises `InvalidRequest` if it is malformed."""
    try:
        if isinstance(request, str | bytes):
            asked: Request = msgspec.json.decode(request, type=Request)
        else:
            asked = msgspec.convert(dict(request), Request)
            msgspec.json.encode(asked)  # rejects half a surrogate pair
    except (ValueError, TypeError, RecursionError) as error:
        problem = str(error) or "it is nested too deeply"
        raise InvalidRequest(
            f"Invalid request: {problem}.",
            fix="A request is an object with its fields and an action: run, resume, cancel or status.",
        ) from None
    if isinstance(asked, Run) and asked.args is not None and asked.args_json is not None:
        raise InvalidRequest("Invalid request: it has both args and argsJson.", fix="Pass only one of them.")
    return asked
