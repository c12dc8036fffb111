"""Verifies a reply while it streams: shows what is verified, and stops the generation at the first thing that is not legal.

Implements the kernel's `WatchFunction`. What it releases is always a beginning of the reply, so that a `Say` is seen only
once everything up to its end is verified.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.dialects.program.items import ReplyItem
from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.model import ListingLine, Note, Param, Trigger
from cuebook.dialects.program.reply import ReplyReader, remember
from cuebook.dialects.program.verdicts import State
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

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._reader = ReplyReader()
        self._fed: list[str] = []
        self._items: list[ReplyItem] = []
        self._held: list[str] = []
        """Text that is not yet released."""
        self._released = 0
        self._stopped = False

    @classmethod
    def of(cls, **arguments: Any) -> ReplyWatch:
        """The watch that `watch_arguments` named."""
        given = msgspec.convert(arguments, _Given, strict=False)
        return cls(Verifier(_listing(given), given.position, given.state))

    def feed(self, text: str) -> Seen:
        if self._stopped:
            return Seen("", stop=True)
        self._fed.append(text)
        self._held.append(text)
        verified = self._verified(self._reader.feed(text))
        self._stopped = self._verifier.ended
        if self._stopped:
            self._remember(self._reader.finish())
        return Seen(self._release(verified), stop=self._stopped)

    def finish(self) -> str:
        if self._stopped:
            return ""
        last = self._reader.finish()
        verified = self._verified(last)
        self._remember()
        return self._release(verified if self._verifier.rejected else None)

    def _remember(self, more: Iterable[ReplyItem] = ()) -> None:
        remember("".join(self._fed), [*self._items, *more], self._reader.after)

    def _verified(self, items: list[ReplyItem]) -> int:
        """Where in the reply the last item ends that was not refused."""
        self._items += items
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
