"""Where a reader of a run's stream is: the id of an event, exact to the event and to the character.

`17.1~15.240.9f3a21bc` says: of all records before the 17th everything was sent, of the 17th one event, and of the text
that the model call of record 15 gives 240 characters, whose checksum follows. By the checksum it shows whether the text
has begun again since. A fourth part is the checksum of all the text that was drawn before its last piece is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from cuebook.surfaces.web.problems import Problem

_ID = re.compile(r"(\d{1,9})(?:\.(\d{1,6}))?((?:~\d{1,9}\.\d{1,9}\.[0-9a-f]{8}(?:\.[0-9a-f]{8})?){0,200})", re.ASCII)


class Sent(NamedTuple):
    """How much of a text was sent: characters, and their checksum."""

    length: int = 0
    check: int = 0
    drawn: int = 0
    """The checksum of the text, with the piece that comes next, if what it shows besides was sent already."""

    def plus(self, piece: str) -> Sent:
        return Sent(self.length + len(piece), crc32(piece.encode("utf-8", "surrogatepass"), self.check))

    def begins(self, text: str) -> bool:
        """Whether what was sent is how this text begins."""
        return len(text) >= self.length and Sent().plus(text[: self.length]).check == self.check

    def __str__(self) -> str:
        return f"{self.length}.{self.check:08x}" + (f".{self.drawn:08x}" if self.drawn else "")


NOTHING = Sent()


class Position(NamedTuple):
    """All records before `record` were sent, of it the first `number` events, and so much of each text under way."""

    record: int = 1
    number: int = 0
    texts: Mapping[int, Sent] = {}

    def __str__(self) -> str:
        texts = (f"~{seq}.{sent}" for seq, sent in sorted(self.texts.items()) if sent != NOTHING)
        return f"{self.record}.{self.number}{''.join(texts)}"

    @classmethod
    def read(cls, id: str) -> Position:
        """From an event's id; nothing, or 0, is the beginning."""
        if id in ("", "0"):
            return cls()
        found = _ID.fullmatch(id)
        if found is None:
            raise Problem(
                400, "bad_event_id", "This is no id of an event.", fix="Give one that the stream gave, or none."
            )
        texts: dict[int, Sent] = {}
        for part in found[3].split("~")[1:]:
            seq, length, *checks = part.split(".")
            texts[int(seq)] = Sent(int(length), *(int(check, 16) for check in checks))
        return cls(int(found[1]), int(found[2] or 0), texts)
