"""A list of runs as users ask for it: what they filter by, checked, and pages that follow each other by a cursor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import get_args

import msgspec

from cuebook.formats.moments import EXPECTED, moment_of
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import RunStatus
from cuebook.kernel.ports import RunFilter, RunMark
from cuebook.kernel.run import RunRow
from cuebook.kernel.triggers import TRIGGERS, trigger_words
from cuebook.service.runs.objects import INTERRUPTED

LISTED: tuple[str, ...] = (*get_args(RunStatus), INTERRUPTED)
"""Statuses that runs can be filtered by."""
_LONGEST = 500
_MOST_WORDS = 10


class UnknownStatus(BadInput):
    """There is no such status."""

    code = "bad_status"


class RunPage(msgspec.Struct, frozen=True):
    """A part of a list."""

    rows: list[RunRow]
    next: str = ""
    """The cursor of the next page; empty on the last one."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a user filters by, as text from an option or a query."""

    playbook: str = ""
    """The name of the playbook, as lists show it."""
    owner: str = ""
    status: Sequence[str] = ()
    since: str = ""
    until: str = ""
    trigger: str = ""
    search: str = ""
    """Words, each of which must be found."""

    @property
    def says_something(self) -> bool:
        return any(msgspec.structs.astuple(self))

    @property
    def words(self) -> dict[str, str]:
        """What was given, for records."""
        given = {**msgspec.structs.asdict(self), "status": ", ".join(self.status)}
        return {name: value for name, value in given.items() if value}

    def checked(self, now: float, interrupted: Collection[str] = (), prefix: str = "") -> RunFilter:
        """The filter. Raises `BadInput`, which names the option with its prefix, if something is wrong."""
        for name in ("playbook", "owner", "since", "until", "trigger", "search"):
            _check_text(getattr(self, name), prefix + name)
        status = [_status(one, f"{prefix}status") for one in self.status]
        which = RunFilter(
            name=self.playbook or None,
            owner=self.owner or None,
            status=status,
            among=set(interrupted) if INTERRUPTED in status else None,
            since=_moment(self.since, now, f"{prefix}since"),
            until=_moment(self.until, now, f"{prefix}until"),
            trigger=_trigger(self.trigger, f"{prefix}trigger"),
        )
        words = self.search.split()
        if len(words) > _MOST_WORDS:
            raise BadInput(f"{prefix}search: at most {_MOST_WORDS} words.", fix="Use fewer words.")
        if words:
            which["words"] = words
        return which


def cursor_of(row: RunRow) -> str:
    """The cursor of the page that begins after this run."""
    text = f"{row.created.hex()} {row.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def mark_of(cursor: str) -> RunMark:
    """The position that a cursor stands for. Raises `BadInput` if it is not a cursor."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True).decode()
        created, run = text.split(" ")
        return RunMark(float.fromhex(created), run)
    except (ValueError, OverflowError, binascii.Error):
        raise BadInput("The cursor is not one of a list of runs.", fix="Use the cursor of the last page.") from None


def page_of(rows: Sequence[RunRow], limit: int) -> RunPage:
    """A page, from its rows and, if there are more, the first of the next page."""
    return RunPage(list(rows[:limit]), cursor_of(rows[limit - 1]) if len(rows) > limit else "")


def _check_text(text: str, name: str) -> None:
    """Refuses what no database can compare."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{name}: this is not valid text.") from None
    if "\0" in text or len(text) > _LONGEST:
        raise BadInput(f"{name}: expected at most {_LONGEST} characters, without NUL.")


def _status(given: str, name: str) -> str:
    status = given.strip().replace(" ", "_")
    if status not in LISTED:
        close = get_close_matches(status, LISTED, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UnknownStatus(f"{name}: unknown status '{status[:100]}'.", fix=f"{hint}Choose from: {', '.join(LISTED)}.")
    return status


def _moment(text: str, now: float, name: str) -> float | None:
    try:
        return moment_of(text, now) if text else None
    except ValueError:
        raise BadInput(f"{name}: cannot read '{text[:100]}'.", fix=f"Write {EXPECTED}.") from None


def _trigger(text: str, name: str) -> str | None:
    """`person` means that none of the triggers started the run."""
    if not text:
        return None
    if text == PERSON:
        return ""
    if text.partition(":")[0] not in TRIGGERS:
        raise BadInput(
            f"{name}: unknown trigger '{text[:100]}'.",
            fix=f"Use {trigger_words()}, a kind alone, such as schedule, or {PERSON}.",
        )
    return text


PERSON = "person"
"""The trigger of runs that people and programs started themselves."""
