"""Converts the arguments of `verify_reply` from the forms it accepts: a listing, a position, a state. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.model import ListingLine, Playbook, ProgramText
from cuebook.dialects.program.parse.lists import line_of
from cuebook.dialects.program.reply.items import ReplyItem, Step
from cuebook.dialects.program.verify.verdicts import State
from cuebook.kernel.errors import BadInput

Row: TypeAlias = ListingLine | str | Sequence[str]
"""A line: a value, a string such as `02.01:QUE Say(user, Hello)`, or its number, code and text."""
GivenListing: TypeAlias = Listing | Playbook | ProgramText | str | Iterable[Row]
GivenPosition: TypeAlias = Position | str | Mapping[str, Any] | None
GivenState: TypeAlias = State | Mapping[str, Any] | None

_HEADING = re.compile(r"^##\s", re.MULTILINE)
_AGENT = re.compile(r"^#\s", re.MULTILINE)
_NUMBER = re.compile(r"(?:[\w.]*?[^\W\d]\w*+:)?(?P<number>\d{1,4}(?:\.\d{1,4})*+)(?::[A-Za-z]{3})?")
_FIELDS = frozenset(State.__struct_fields__)
_BESIDE = frozenset({"agents", "call_stack", "meetings"})
"""Fields of a prompt's state that no rule uses."""


def listing_of(given: GivenListing, items: Sequence[ReplyItem]) -> Listing:
    """The listing. If there are several playbooks, the one that the reply executes."""
    if isinstance(given, Listing):
        return given
    if isinstance(given, Playbook):
        return Listing.of(given)
    named = first_step(items)
    name = named.playbook if named else ""
    if isinstance(given, ProgramText):
        return Listing.of(_executed(given, name))
    if not isinstance(given, str):
        return Listing(name, _lines(given))
    if _HEADING.search(given) is None:
        return Listing(name, _lines(line for line in given.splitlines() if line.strip()))
    from cuebook.dialects.program.parse import parse

    text = given if _AGENT.search(given) else f"# Agent\n\n{given}"
    return Listing.of(_executed(parse(text, "listing.pbasm"), name))


def _executed(program: ProgramText, name: str) -> Playbook:
    playbooks = {one.name: one for agent in program.agents.values() for one in agent.playbooks.values()}
    if not playbooks:
        raise BadInput(f"{program.name} has no playbook.", fix="Add one with ### Steps.")
    first = next((one for one in playbooks.values() if one.steps), next(iter(playbooks.values())))
    return playbooks.get(name.rpartition(".")[2], first)


def _lines(rows: Iterable[Row]) -> list[ListingLine]:
    return [_line(row) for row in rows]


def _line(row: Row) -> ListingLine:
    if isinstance(row, ListingLine):
        return row
    text = row if isinstance(row, str) else f"{row[0]}:{' '.join(row[1:])}" if 2 <= len(row) <= 3 else ""
    found = line_of(text.strip().removeprefix("- "))
    if found is None:
        raise BadInput(f"{row!r:.80} is not a line of a listing.", fix="Write it as 02.01:QUE Say(user, Hello).")
    return found


def position_of(given: GivenPosition, listing: Listing, items: Sequence[ReplyItem]) -> Position | None:
    """The position of the frame. If it is unknown, the frame is assumed to be where the reply starts."""
    if isinstance(given, Position):
        return given
    if isinstance(given, Mapping):
        return msgspec.convert({**given, "line": number_of(str(given.get("line", "")))}, Position)
    if given is not None:
        return Position(number_of(given))
    named = first_step(items)
    return Position(named.line) if named is not None and named.line in listing.by_number else None


def number_of(text: str) -> str:
    """The number in `2.1`, `02.01`, `Main:02.01` or `Main:02.01:QUE`, in the form of a listing."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"'{text[:80]}' is not a line of a listing.", fix="Write its number, as in 02.01.")
    return ".".join(part.zfill(2) for part in found["number"].split("."))


def state_of(given: GivenState) -> State | None:
    """Convert a mapping, which contains the variables by name or the fields of a `State`. An empty mapping means that
    nothing is known."""
    if given is None or isinstance(given, State):
        return given
    if not isinstance(given.get("variables"), Mapping) or not set(given) <= _FIELDS | _BESIDE:
        given = {"variables": given} if given else {}
    fields = {name: value for name, value in given.items() if name in _FIELDS}
    if "variables" in fields:
        fields["variables"] = {name.removeprefix("$"): value for name, value in fields["variables"].items()}
    return msgspec.convert(fields, State)


def first_step(items: Sequence[ReplyItem]) -> Step | None:
    """The first step of a reply that names a line."""
    return next((item for item in items if isinstance(item, Step) and item.is_line), None)
