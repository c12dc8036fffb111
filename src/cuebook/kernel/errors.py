"""The errors that users can see: one base class, a stable code for each, and advice on what to do next.

A class docstring is the default message.
"""

from __future__ import annotations

from typing import ClassVar


def with_fix(message: str, fix: str) -> str:
    """The message, followed by how to fix it."""
    stop = "." if fix and message and message[-1] not in ".?!…:" else ""
    return f"{message}{stop} {fix}".strip()


class CuebookError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.fix = fix
        super().__init__(self.message)

    def __str__(self) -> str:
        return with_fix(self.message, self.fix)


class BadInput(CuebookError):
    """The input is not valid."""

    code = "bad_input"
    exit_code = 2


class NotFound(BadInput):
    """It does not exist."""

    code = "not_found"


class Refused(CuebookError):
    """The request came too late or from the wrong place; nothing was changed."""

    code = "refused"
    exit_code = 2


class AlreadyAnswered(Refused):
    """This was already decided."""

    code = "already_answered"


class WaitExpired(Refused):
    """The time to decide this has passed."""

    code = "wait_expired"
    exit_code = 5


class WaitClosed(Refused):
    """Nothing is waiting for this any more because its run was cancelled."""

    code = "wait_closed"


class AlreadyVoted(Refused):
    """This person has already voted on it."""

    code = "already_voted"


class Leased(Refused):
    """Another assistant has this step."""

    code = "leased"


class Busy(Refused):
    """Another process is driving this run."""

    code = "busy"


class AtLimit(Refused):
    """As many runs of this tenant are being driven as are allowed at the same time."""

    code = "at_limit"


class Elsewhere(Refused):
    """The run belongs to another folder."""

    code = "other_workspace"


class TooNew(Refused):
    """The run was started by a newer release, which may interpret it differently."""

    code = "newer_run"


class Conflict(Refused):
    """It conflicts with an earlier decision or request."""

    code = "conflict"


class Fenced(CuebookError):
    """This process lost its claim on the run: another process is driving it now, and nothing more was recorded from
    here."""

    code = "fenced"


class NonDeterminism(CuebookError):
    """The program asked for something other than what its journal contains."""

    code = "non_determinism"


class StoreError(CuebookError):
    """The store could not be read or written."""

    code = "store"


class RunExists(StoreError):
    """A run with this id already exists."""

    code = "run_exists"


class StoreFull(StoreError):
    """The disk is full."""

    code = "store_full"


class StoreLocked(StoreError):
    """Another process holds the store's write lock."""

    code = "store_locked"


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "store_read_only"


class StoreDamaged(StoreError):
    """The store's file is damaged."""

    code = "store_damaged"


class StoreTooNew(StoreError):
    """The store was written by a newer version of Cuebook."""

    code = "store_too_new"
    exit_code = 2
