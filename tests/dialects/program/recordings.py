"""The recorded replies and compiled listings next to the project, and how to match a reply with its listing."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.reply.items import Assign, Call, Step
from cuebook.dialects.program.reply.reader import Reply, ReplyError, parse_reply

DATA = Path(__file__).resolve().parents[4] / "shared/data/program"

beside = pytest.mark.skipif(not DATA.exists(), reason="the recorded replies are not beside the project")


@cache
def replies() -> tuple[dict[str, Any], ...]:
    text = (DATA / "recorded_replies.jsonl").read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


@cache
def listings() -> dict[str, tuple[Listing, ...]]:
    compiled = json.loads((DATA / "compiled_listings.json").read_text(encoding="utf-8"))
    return {name: tuple(Listing.of_rows(name, rows) for rows in many) for name, many in compiled.items()}


@cache
def read() -> tuple[Reply | ReplyError, ...]:
    """Each of the replies, parsed, or the parse error."""
    return tuple(_read(reply["text"]) for reply in replies())


def _read(text: str) -> Reply | ReplyError:
    try:
        return parse_reply(text)
    except ReplyError as error:
        return error


def listing_for(reply: Reply) -> Listing | None:
    """The listing that a reply most likely executed: the one with most of its lines, codes and calls."""
    steps = [step for step in reply.steps if step.is_line]
    known = listings().get(steps[0].playbook, ()) if steps else ()
    return max(known, key=lambda listing: (_lines(listing, steps), _calls(listing, reply)), default=None)


def _lines(listing: Listing, steps: list[Step]) -> int:
    found = 0
    for step in steps:
        indexes = listing.by_number.get(step.line)
        if indexes:
            found += 1 + (listing.lines[indexes[0]].code == step.code)
    return found


def _calls(listing: Listing, reply: Reply) -> int:
    found, indexes = 0, None
    for item in reply.items:
        if isinstance(item, Step):
            indexes = listing.by_number.get(item.line)
        call = item if isinstance(item, Call) else item.call if isinstance(item, Assign) else None
        if call is not None and indexes:
            found += call.name.rpartition(".")[2] in listing.lines[indexes[0]].text
    return found
