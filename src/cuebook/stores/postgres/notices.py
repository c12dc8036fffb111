"""Notices between processes that share a database: which runs have new records, which are ready, streamed text,
requests for it, and which limits have a free slot.

A notice only makes others look sooner. A process that misses one finds the same in the tables a little later, and asks
for streamed text again or shows it when the reply is complete.
"""

from __future__ import annotations

import msgspec

from cuebook.kernel.ports import Notice

LONGEST = 7_900
"""Maximum bytes of a notice; Postgres accepts 7,999."""
_encode = msgspec.json.encode


class Message(msgspec.Struct, omit_defaults=True, gc=False):
    """A notice as it is sent."""

    sender: str = msgspec.field(name="s")
    records: dict[str, int] = msgspec.field(name="r", default_factory=dict)
    """The last new record of each run. If there are too many runs to list, it is empty and any run may have changed."""
    ready: str = msgspec.field(name="w", default="")
    text: tuple[str, int, str, int, str, bool] | None = msgspec.field(name="t", default=None)
    """Run, record of the call, step, offset, text, and whether the reply begins again."""
    resend: str = msgspec.field(name="a", default="")
    """The run whose text under way should be sent again."""
    slot: str | None = msgspec.field(name="f", default=None)
    """The limit that has a free slot; empty for any."""


_DECODER = msgspec.json.Decoder(Message)


def records_notice(sender: str, heads: dict[str, int]) -> str:
    said = _encode(Message(sender, heads))
    return (said if len(said) <= LONGEST else _encode(Message(sender))).decode()


def ready_notice(sender: str, run: str) -> str:
    return _encode(Message(sender, ready=run)).decode()


def resend_notice(sender: str, run: str) -> str:
    return _encode(Message(sender, resend=run)).decode()


def slot_notice(sender: str, name: str) -> str:
    said = _encode(Message(sender, slot=name))
    return (said if len(said) <= LONGEST else _encode(Message(sender, slot=""))).decode()


def read(payload: str) -> list[Notice]:
    """The notices in a message; none if it is not from Cuebook."""
    try:
        message = _DECODER.decode(payload)
    except msgspec.DecodeError:
        return []
    sender = message.sender
    if message.ready:
        return [Notice("ready", sender, message.ready)]
    if message.text is not None:
        run, seq, step, offset, text, again = message.text
        return [Notice("text", sender, run, seq, step, offset, text, again)]
    if message.resend:
        return [Notice("resend", sender, message.resend)]
    if message.slot is not None:
        return [Notice("slot", sender, slot=message.slot)]
    return [Notice("records", sender, run, seq) for run, seq in message.records.items()] or [Notice("records", sender)]
