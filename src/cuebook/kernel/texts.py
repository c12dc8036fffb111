"""The texts that a journal leads to, and whether they are what they were: those its records name, and those that a model's
context is made of, block by block. Pure: whoever asks says where texts lie.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cuebook.kernel.belonging import worse
from cuebook.kernel.context import Text, digest_of
from cuebook.kernel.errors import NotFound
from cuebook.kernel.events import AnyEvent, ModelAsked, WaitOpened
from cuebook.kernel.journal import Record, Verdict
from cuebook.kernel.waits import WHOLE

Load = Callable[[str], str]
"""Gives a text by its digest; `NotFound` where it is gone."""

_TEXT = re.compile(rb'\{"digest":"([0-9a-f]{64})","length":\d+\}')
_CONTEXT = re.compile(rb'"context":"([0-9a-f]{64})"')


class Found(msgspec.Struct, frozen=True):
    """A text that a record leads to."""

    seq: int
    """The first record that does."""
    digest: str
    text: str | None
    """None where it is gone."""


def texts_behind(records: Iterable[Record], load: Load) -> Iterator[Found]:
    """Each text that the records lead to, once."""
    seen: set[tuple[str, bool]] = set()
    for record in records:
        waiting = list(_named(record))
        while waiting:
            digest, is_block = one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            text = _loaded(digest, load)
            yield Found(record.seq, digest, text)
            if is_block and text is not None:
                waiting += _parts(text)


def unchanged(records: Sequence[Record], verdict: Verdict, load: Load) -> Verdict:
    """The verdict, or a worse one where a text was changed. One that was purged is gone, not changed: it is named."""
    if verdict.broken_at is not None:
        return verdict
    missing: dict[str, None] = {}
    for found in texts_behind(records, load):
        if found.text is None:
            missing[found.digest] = None
        elif digest_of(found.text) != found.digest:
            return worse(verdict, found.seq, "a text that it refers to was changed")
    return msgspec.structs.replace(verdict, missing=tuple(missing))


def _named(record: Record) -> Iterator[tuple[str, bool]]:
    """What a record itself names, and whether that is a block of a context."""
    if _TEXT.search(record.body):
        for digest in _references(record.body):
            yield digest, False
    if record.kind == ModelAsked.__name__:
        for digest in _CONTEXT.findall(record.body):
            yield digest.decode(), True


def _references(body: bytes) -> list[str]:
    """The texts that a body leads to. Data may look the same as a reference and is none: its place tells."""
    found: list[str] = []

    def show(wanted: type, value: Any) -> Text:
        if isinstance(value, str):
            return Text(value)
        found.append(str(value["digest"]))
        return Text("")

    try:
        event = msgspec.json.decode(body, type=AnyEvent, dec_hook=show)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return found  # it was purged or changed, as its digest tells
    whole = event.details.get(WHOLE) if isinstance(event, WaitOpened) else None
    return [*found, str(whole["digest"])] if isinstance(whole, dict) and "digest" in whole else found


def _parts(block: str) -> Iterator[tuple[str, bool]]:
    """A block says what it follows, and which text it holds."""
    try:
        parent, _, held, _, _ = msgspec.json.decode(block, type=tuple[str, str, str, str, Any])
    except (msgspec.DecodeError, ValueError):
        return  # it was changed, as its digest tells
    if parent:
        yield parent, True
    yield held, False


def _loaded(digest: str, load: Load) -> str | None:
    try:
        return load(digest)
    except NotFound:
        return None
