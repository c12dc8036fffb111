"""The audit of administrative acts as a store keeps it: append-only, with a hash chain for each tenant. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec

GENESIS = "0" * 64
"""The chain value before the first act."""


class AdminAct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One administrative act: who did what to whom, when, and from where."""

    tenant: str
    at: float
    what: str
    """What was done, such as `user.grant`."""
    by: str
    subject: str = ""
    """What it was done to, such as the name of a user."""
    surface: str = ""
    """The way in: `terminal`, `web`, `api`, `mcp`, `slack` or `server`."""
    address: str = ""
    """The network address that the request came from, or the user and the machine of the process."""
    refused: bool = False
    details: dict[str, Any] = {}
    seq: int = 0
    """Its number within its tenant, from 1; set by the store."""


class ActRecord(msgspec.Struct, frozen=True):
    """An act as the store keeps it: the exact text that the chain covers."""

    seq: int
    body: str
    chain: str
    """SHA-256 of the previous chain value and the body, in hexadecimal."""

    @property
    def act(self) -> AdminAct:
        return msgspec.json.decode(self.body, type=AdminAct)


class KeptChange(msgspec.Struct, frozen=True):
    """A change of a stored decision, which applies only if nobody else changed it in the meantime."""

    tenant: str
    kind: str
    name: str
    before: dict[str, Any] | None
    """Its content until now; None if there must be none."""
    after: dict[str, Any] | None
    """Its new content; None removes it."""


class BrokenAudit(msgspec.Struct, frozen=True):
    """Where the chain of the acts does not fit."""

    seq: int
    problem: str


def chained(act: AdminAct, seq: int, previous: str) -> ActRecord:
    """The record of an act that follows the one with this chain value."""
    body = msgspec.json.encode(msgspec.structs.replace(act, seq=seq), order="deterministic").decode()
    return ActRecord(seq, body, chain_value(previous, body))


def chain_value(previous: str, body: str) -> str:
    return sha256(previous.encode() + b"\n" + body.encode()).hexdigest()


class ChainCheck:
    """Checks records of one tenant in their order, a page at a time."""

    def __init__(self, first: int = 1, previous: str = GENESIS) -> None:
        """`first` is the number of the first record, and `previous` the chain value that it continues."""
        self.count = first - 1
        """The number of the last record."""
        self.head = previous
        self.broken: BrokenAudit | None = None

    def see(self, records: Iterable[ActRecord]) -> None:
        for record in records:
            self.count += 1
            if self.broken is None:
                problem = self._problem(record)
                if problem:
                    self.broken = BrokenAudit(self.count, problem)
            self.head = record.chain

    def end(self, seq: int, head: str) -> None:
        """Compares the last record with the number and the chain value that are noted beside the records."""
        if self.broken is None and (seq, head) != (self.count, self.head):
            last = self.count + 1
            self.broken = BrokenAudit(last, f"{seq} acts were recorded, but {self.count} are there")

    def _problem(self, record: ActRecord) -> str:
        if record.seq != self.count:
            return f"act {self.count} is missing"
        if chain_value(self.head, record.body) != record.chain:
            return "it was changed, or the act before it"
        try:
            return "" if record.act.seq == record.seq else "its number was changed"
        except (msgspec.DecodeError, msgspec.ValidationError):
            return "it is not readable"
