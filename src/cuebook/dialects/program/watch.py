"""Verifies a reply while it streams: shows what is verified, and stops the generation at the first thing that is not legal.

Implements the kernel's `WatchFunction`. What it releases is always a beginning of the reply, so that a `Say` is seen only
once everything up to its end is verified.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from cuebook.dialects.program.items import ReplyItem
from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.model import ListingLine, Note, Param, Trigger
from cuebook.dialects.program.reply import ReplyReader
from cuebook.dialects.program.verdicts import State, Verdicts
from cuebook.dialects.program.verify import Verifier
from cuebook.kernel.engine import Seen

NAME = "program"


class _Given(msgspec.Struct, frozen=True):
    """The arguments of a watch: plain values, from which all it needs is made again."""

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
    """What names this watch in a model's question: plain values that can be stored."""
    given = _Given(
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


def _listing(given: _Given) -> Listing:
    """The listing of a watch. Those used last are kept: a playbook is executed in many turns."""
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
    """One reply. It stops when something is refused, or when what follows can have no effect."""

    def __init__(self, verifier: Verifier, question: object = None) -> None:
        """`question` is what `verdicts_of` knows this reply by."""
        self._verifier, self._question = verifier, question
        self._reader = ReplyReader()
        self._fed: list[str] = []
        self._held: list[str] = []
        """Text that is not yet released."""
        self._released = 0
        self._stopped = False

    @classmethod
    def of(cls, **arguments: Any) -> ReplyWatch:
        """The watch that `watch_arguments` named."""
        given = msgspec.convert(arguments, _Given, strict=False)
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
        """The reply is over: whoever asked for it need not verify it once more."""
        text = "".join(self._fed)
        verdicts = self._verifier.finish(len(text), self._reader.after)
        _kept[id(self._question)] = _Verified(self._question, text, verdicts)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)

    def _verified(self, items: list[ReplyItem]) -> int:
        """Where in the reply the last item ends that was not refused."""
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
    """What came of a reply that was watched to its end."""

    question: object
    text: str
    verdicts: Verdicts


_kept: OrderedDict[int, _Verified] = OrderedDict()
"""By the identity of the question, which is kept for as long as its entry is: no other object can have it meanwhile."""
_MOST_KEPT = 64
"""Replies that may wait to be taken by whoever asked. Those of runs that were stopped are never taken."""


def verdicts_of(arguments: dict[str, Any], text: str) -> Verdicts | None:
    """What the watch of this very question found, if it has seen this text and no other. None if nobody has watched: where
    the reply comes from a journal, it is verified as a whole.
    """
    question = arguments["state"]
    found = _kept.pop(id(question), None)
    return found.verdicts if found is not None and found.question is question and found.text == text else None
