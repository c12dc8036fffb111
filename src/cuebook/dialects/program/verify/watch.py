"""Verifies a reply while it streams: releases the verified part, and stops generation at the first illegal item.

Implements the kernel's `WatchFunction`. It always releases the reply from its beginning, so a `Say` is shown only when
everything up to its end is verified.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.model import ListingLine, Note, Param, Trigger
from cuebook.dialects.program.reply.items import ReplyItem
from cuebook.dialects.program.reply.reader import ReplyReader
from cuebook.dialects.program.verify.verdicts import State, Verdicts
from cuebook.dialects.program.verify.verifier import Verifier
from cuebook.kernel.engine.engine import Seen

NAME = "program"


class _Arguments(msgspec.Struct, frozen=True):
    """The arguments of a watch as plain values, from which it can be recreated."""

    name: str
    lines: tuple[ListingLine, ...]
    position: Position | None
    state: State
    params: tuple[Param, ...] = ()
    returns: str = ""
    triggers: tuple[Trigger, ...] = ()
    notes: tuple[Note, ...] = ()
    description: str = ""
    react: bool = False


def watch_arguments(listing: Listing, position: Position | None, state: State) -> dict[str, Any]:
    """The arguments that identify this watch in a model's question: plain values that can be stored."""
    given = _Arguments(
        listing.name,
        listing.lines,
        position,
        state,
        listing.params,
        listing.returns,
        listing.triggers,
        listing.notes,
        listing.description,
        listing.react,
    )
    plain: dict[str, Any] = msgspec.to_builtins(given)
    return plain


_listings: OrderedDict[bytes, Listing] = OrderedDict()
_MOST_LISTINGS = 64


def _listing(given: _Arguments) -> Listing:
    """The listing of a watch. Recent listings are cached: a playbook is executed in many turns."""
    key = msgspec.json.encode(msgspec.structs.replace(given, position=None, state=State()))
    found = _listings.pop(key, None) or Listing(
        given.name,
        given.lines,
        params=given.params,
        returns=given.returns,
        triggers=given.triggers,
        notes=given.notes,
        description=given.description,
        react=given.react,
    )
    _listings[key] = found
    if len(_listings) > _MOST_LISTINGS:
        _listings.popitem(last=False)
    return found


class ReplyWatch:
    """Watches one reply. It stops at a refusal, or when nothing that follows can have an effect."""

    def __init__(self, verifier: Verifier, question: object = None) -> None:
        """`question` identifies this reply for `verdicts_of`."""
        self._verifier, self._question = verifier, question
        self._reader = ReplyReader()
        self._fed: list[str] = []
        self._held: list[str] = []
        """Text that is not yet released."""
        self._released = 0
        self._stopped = False

    @classmethod
    def of(cls, **arguments: Any) -> ReplyWatch:
        """Recreate the watch from the result of `watch_arguments`."""
        given = msgspec.convert(arguments, _Arguments, strict=False)
        return cls(Verifier(_listing(given), given.position, given.state), arguments["state"])

    def feed(self, text: str) -> Seen:
        if self._stopped:
            return Seen("", stop=True)
        self._fed.append(text)
        self._held.append(text)
        verified = self._verified(self._reader.feed(text))
        self._stopped = self._verifier.ended
        if self._stopped:
            self._reader.finish()
            self._keep()
        return Seen(self._release(verified), stop=self._stopped)

    def finish(self) -> str:
        if self._stopped:
            return ""
        verified = self._verified(self._reader.finish())
        self._keep()
        return self._release(verified if self._verifier.rejected else None)

    def _keep(self) -> None:
        """Store the verdicts of the finished reply, so the caller need not verify it again."""
        text = "".join(self._fed)
        verdicts = self._verifier.finish(len(text), self._reader.after)
        _kept[id(self._question)] = _Verified(self._question, text, verdicts)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)

    def _verified(self, items: list[ReplyItem]) -> int:
        """The end of the last item that was not refused."""
        end = self._released
        for item in items:
            self._verifier.see(item)
            if self._verifier.rejected:
                break
            end = max(end, item.end)
            if self._verifier.ended:
                break
        return end

    def _release(self, end: int | None) -> str:
        if end is not None and end <= self._released:
            return ""
        held = "".join(self._held)
        cut = len(held) if end is None else end - self._released
        self._held = [held[cut:]]
        self._released += cut
        return held[:cut]


class _Verified(msgspec.Struct, frozen=True):
    """The result of a reply that was watched to its end."""

    question: object
    text: str
    verdicts: Verdicts


_kept: OrderedDict[int, _Verified] = OrderedDict()
"""By the identity of the question. The entry keeps the question alive, so no other object can have the same identity.
"""
_MOST_KEPT = 64
"""The maximum number of results that wait for their caller. The results of stopped runs are never fetched."""


def verdicts_of(arguments: dict[str, Any], text: str) -> Verdicts | None:
    """The verdicts of the watch for exactly this question, if it has seen exactly this text. None if there was no watch:
    a reply from a journal is verified as a whole."""
    question = arguments["state"]
    found = _kept.pop(id(question), None)
    return found.verdicts if found is not None and found.question is question and found.text == text else None
